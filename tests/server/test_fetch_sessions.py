"""Fetch sessions: what an incremental fetch reads and answers (KIP-227)."""

import threading

import pytest

from kafkapy.errors import Errors
from kafkapy.replica.fetch import FetchRead
from kafkapy.server.fetching.session import FetchPartition
from kafkapy.server.fetching.sessions import FINAL_EPOCH, NO_SESSION, FetchSessionCache

ZERO = bytes(16)


class Records:
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


def part(topic: str = "t", index: int = 0, offset: int = 0) -> FetchPartition:
    return FetchPartition(topic, ZERO, index, offset, 1 << 20)


def read(high_watermark: int = 0, records: int = 0, error: int = Errors.NONE) -> FetchRead:
    return FetchRead(error, high_watermark, high_watermark, 0, Records(records) if records else None)


def fetch(cache, session_id, epoch, asked=(), forgotten=(), now=0.0, ids=False, **how):
    return cache.context(session_id, epoch, list(asked), list(forgotten), uses_topic_ids=ids, now=now, **how)


def open_session(cache, partitions, now=0.0):
    context = fetch(cache, 0, 0, partitions, now=now)
    error, session_id, response = context.respond([read() for _ in partitions], now)
    assert error == Errors.NONE
    assert len(response) == len(partitions)
    return session_id


def test_a_full_fetch_opens_a_session_and_answers_every_partition():
    cache = FetchSessionCache(10)
    assert open_session(cache, [part(index=0), part(index=1)]) > 0
    assert cache.partitions == 2


def test_the_first_incremental_fetch_reads_all_partitions_and_answers_only_news():
    cache = FetchSessionCache(10)
    session = open_session(cache, [part(index=0), part(index=1)])
    context = fetch(cache, session, 1)
    assert [one.index for one in context.partitions] == [0, 1]
    error, response_id, response = context.respond([read(), read(5, 100)], 0.0)
    assert (error, response_id) == (Errors.NONE, session)
    assert [asked.index for asked, _ in response] == [1]


def test_a_partition_with_data_is_read_last_the_next_time():
    cache = FetchSessionCache(10)
    session = open_session(cache, [part(index=0), part(index=1)])
    fetch(cache, session, 1).respond([read(5, 100), read()], 0.0)
    assert [one.index for one in fetch(cache, session, 2, everything=True).partitions] == [1, 0]


def test_later_fetches_read_partitions_that_are_named_or_changed_or_have_errors_or_more_records():
    cache = FetchSessionCache(10)
    session = open_session(cache, [part(index=index) for index in range(5)])
    first = fetch(cache, session, 1)
    first.respond([read(), read(), read(-1, error=Errors.NOT_LEADER_OR_FOLLOWER), read(5, 100), read()], 0.0)
    assert [one.index for one in fetch(cache, session, 2).partitions] == [2, 3]
    first.partitions[4].changed()
    assert [one.index for one in fetch(cache, session, 3, [part(index=1)]).partitions] == [1, 2, 4, 3]


def test_all_are_read_when_the_isolation_level_changes():
    cache = FetchSessionCache(10)
    session = open_session(cache, [part(index=0), part(index=1)])
    fetch(cache, session, 1, isolation=1).respond([read()] * 2, 0.0)
    assert fetch(cache, session, 2, isolation=1).partitions == []
    assert len(fetch(cache, session, 3, isolation=0).partitions) == 2


def test_a_partition_that_changes_during_a_fetch_is_read_by_the_next_fetch():
    cache = FetchSessionCache(10)
    session = open_session(cache, [part()])
    context = fetch(cache, session, 1)
    context.partitions[0].changed()
    context.respond([read()], 0.0)
    assert len(fetch(cache, session, 2).partitions) == 1


def test_a_fetch_takes_no_changed_partitions_after_its_last_read():
    cache = FetchSessionCache(10)
    session = open_session(cache, [part()])
    context = fetch(cache, session, 1)
    assert context.due_now(to_answer=True) == context.partitions
    context.partitions[0].changed()
    assert context.due_now() == []
    context.respond([read()], 0.0)
    assert len(fetch(cache, session, 2).partitions) == 1


def test_the_partitions_of_an_overtaken_fetch_are_read_by_the_one_that_overtakes_it():
    cache = FetchSessionCache(10)
    session = open_session(cache, [part()])
    context = fetch(cache, session, 1)
    context.respond([read()], 0.0)
    context.partitions[0].changed()
    overtaken = fetch(cache, session, 2)
    assert len(fetch(cache, session, 3).partitions) == 1
    overtaken.respond([read(5)], 0.0)
    assert len(fetch(cache, session, 4).partitions) == 1


def test_the_fetch_that_waits_in_a_session_is_woken_by_a_change_and_when_the_session_ends():
    woken = []
    cache = FetchSessionCache(10, wake=woken.append)
    context = fetch(cache, open_session(cache, [part()]), 1)
    context.partitions[0].changed()
    assert woken == [context.session]
    assert len(context.due_now()) == 1
    assert not context.is_over
    fetch(cache, context.session.id, FINAL_EPOCH)
    assert woken == [context.session] * 2
    assert context.is_over
    assert context.due_now() == []


def test_an_incremental_fetch_changes_adds_and_forgets_partitions():
    cache = FetchSessionCache(10)
    session = open_session(cache, [part(index=0), part(index=1)])
    context = fetch(cache, session, 1, [part(index=0, offset=7), part(index=2)], [("t", 1)])
    assert [(one.index, one.fetch_offset) for one in context.partitions] == [(0, 7), (2, 0)]


def test_an_error_is_returned_each_time_and_the_recovery_once():
    cache = FetchSessionCache(10)
    session = open_session(cache, [part()])
    for epoch in (1, 2):
        response = fetch(cache, session, epoch).respond([read(-1, error=Errors.UNKNOWN_TOPIC_OR_PARTITION)], 0.0)[2]
        assert len(response) == 1
    assert len(fetch(cache, session, 3).respond([read(0)], 0.0)[2]) == 1
    assert fetch(cache, session, 4).partitions == []


def test_an_unknown_session_a_wrong_epoch_and_a_change_to_topic_ids_are_session_errors():
    cache = FetchSessionCache(10)
    session = open_session(cache, [part()])
    assert fetch(cache, session + 1, 1).error_code == Errors.FETCH_SESSION_ID_NOT_FOUND
    assert fetch(cache, session, 5).error_code == Errors.INVALID_FETCH_SESSION_EPOCH
    assert fetch(cache, session, 1, ids=True).error_code == Errors.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_answer_of_a_request_that_was_overtaken_is_refused():
    cache = FetchSessionCache(10)
    session = open_session(cache, [part()])
    first = fetch(cache, session, 1)
    fetch(cache, session, 2)
    assert first.respond([read(9, 10)], 0.0)[0] == Errors.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize("epoch", [0, FINAL_EPOCH])
def test_a_full_fetch_closes_the_session_it_names(epoch):
    cache = FetchSessionCache(10)
    session = open_session(cache, [part()])
    context = fetch(cache, session, epoch, [part()])
    assert len(cache) == 0
    new_session = context.respond([read()], 0.0)[1]
    assert (new_session == 0) == (epoch == FINAL_EPOCH)


def test_a_session_without_partitions_ends():
    cache = FetchSessionCache(10)
    session = open_session(cache, [part()])
    fetch(cache, session, 1, forgotten=[("t", 0)])
    assert len(cache) == 0


def test_a_full_cache_gives_no_session_until_one_is_stale():
    cache = FetchSessionCache(1, eviction_seconds=120)
    old = open_session(cache, [part()])
    context = fetch(cache, 0, 0, [part()], now=10)
    assert context.respond([read()], 10.0)[1] == 0
    newer = fetch(cache, 0, 0, [part()], now=200).respond([read()], 200.0)[1]
    assert newer not in (0, old)
    assert cache.evictions == 1


def test_a_small_session_older_than_the_eviction_time_makes_room_for_a_larger_one():
    cache = FetchSessionCache(1, eviction_seconds=120)
    small = open_session(cache, [part()])
    fetch(cache, small, 1, now=100)  # recently used at 150, but older than the eviction time
    larger = fetch(cache, 0, 0, [part(index=0), part(index=1)], now=150).respond([read(), read()], 150.0)[1]
    assert larger != 0
    assert fetch(cache, small, 2).error_code == Errors.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_in_use_is_not_replaced_by_one_of_the_same_size():
    cache = FetchSessionCache(1, eviction_seconds=120)
    used = open_session(cache, [part()])
    fetch(cache, used, 1, now=100)
    assert fetch(cache, 0, 0, [part()], now=150).respond([read()], 150.0)[1] == NO_SESSION
    assert fetch(cache, used, 2).error_code == Errors.NONE


def test_answers_and_requests_of_one_session_from_many_threads_never_clash():
    cache = FetchSessionCache(10)
    session = open_session(cache, [part(index=index) for index in range(20)])
    failures = []

    def fetch_often(first):
        try:
            for turn in range(300):
                state = cache._sessions[session]
                context = fetch(cache, session, state.epoch, [part(index=first + turn % 7)], [("t", first + turn % 5)])
                context.respond([read(turn, 10) for _ in context.partitions], 0.0)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=fetch_often, args=(100 * number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_all_sessions_together_hold_no_more_partitions_than_they_may():
    cache = FetchSessionCache(10, eviction_seconds=120, max_partitions=5)
    first = open_session(cache, [part(index=index) for index in range(3)])
    refused = fetch(cache, 0, 0, [part(index=index) for index in range(3)]).respond([read()] * 3, 0.0)
    assert (refused[0], refused[1], len(refused[2])) == (Errors.NONE, 0, 3)  # answered, but without a session
    second = open_session(cache, [part(), part(), part(index=1)])  # the same partition twice counts once
    assert (first == 0, second == 0, cache.partitions) == (False, False, 5)
    grown = fetch(cache, first, 1, [part(index=7)])
    assert grown.error_code == Errors.FETCH_SESSION_ID_NOT_FOUND  # the consumer then sends a full fetch
    assert (len(cache), cache.partitions) == (1, 2)
    stale = fetch(cache, 0, 0, [part(index=index) for index in range(4)], now=500).respond([read()] * 4, 500.0)[1]
    assert stale != 0
    assert (len(cache), cache.partitions) == (1, 4)


def follow(cache, count, now):
    """Open a follower's session with `count` partitions, and return its id, or NO_SESSION if there is no room."""
    parts = [part(index=index) for index in range(count)]
    context = fetch(cache, 0, 0, parts, now=now, is_follower=True)
    return context.respond([read() for _ in parts], now)[1]


def test_a_followers_session_takes_the_place_of_a_consumers_of_any_age_and_size():
    cache = FetchSessionCache(2, eviction_seconds=120)
    large = open_session(cache, [part(index=index) for index in range(3)])
    small = open_session(cache, [part(index=index) for index in range(2)])
    first = follow(cache, 1, now=1.0)
    assert {one.id for one in cache} == {large, first}
    second = follow(cache, 1, now=1.0)
    assert {one.id for one in cache} == {first, second}
    assert small not in {first, second}


def test_a_followers_session_gives_way_to_a_consumers_only_if_it_is_unused():
    cache = FetchSessionCache(1, eviction_seconds=120)
    follower = follow(cache, 1, now=0.0)
    fetch(cache, follower, 1, now=100.0)
    assert fetch(cache, 0, 0, [part()], now=200.0).respond([read()], 200.0)[1] == NO_SESSION
    assert fetch(cache, 0, 0, [part()], now=221.0).respond([read()], 221.0)[1] != NO_SESSION


def test_a_followers_session_replaces_an_old_one_of_another_follower_only_if_that_is_smaller():
    cache = FetchSessionCache(1, eviction_seconds=120)
    other = follow(cache, 2, now=0.0)
    assert follow(cache, 3, now=100.0) == NO_SESSION
    fetch(cache, other, 1, now=119.0)
    assert follow(cache, 2, now=121.0) == NO_SESSION
    assert follow(cache, 3, now=121.0) != NO_SESSION


def open_as(cache, principal, partitions, now=0.0):
    context = fetch(cache, 0, 0, partitions, now=now, principal=principal)
    return context.respond([read() for _ in partitions], now)[1]


def test_one_principal_cannot_take_all_sessions():
    cache = FetchSessionCache(10)
    taken = [open_as(cache, "User:greedy", [part()]) for _ in range(12)]
    assert taken[10:] == [NO_SESSION] * 2
    assert open_as(cache, "User:alice", [part()]) != NO_SESSION
    assert fetch(cache, taken[0], 1).error_code == Errors.FETCH_SESSION_ID_NOT_FOUND  # the least recently used
    assert fetch(cache, taken[1], 1).error_code == Errors.NONE
    others = [open_as(cache, "User:alice", [part()]) for _ in range(5)]
    assert [one != NO_SESSION for one in others] == [True, True, False, False, False]  # greedy has 7 sessions, alice 3
    assert open_as(cache, "User:bob", [part()]) != NO_SESSION
    assert len(cache) == 10


def test_one_principal_cannot_take_all_partitions():
    cache = FetchSessionCache(10, max_partitions=100)
    assert open_as(cache, "User:greedy", [part(index=n) for n in range(90)]) != NO_SESSION
    assert open_as(cache, "User:alice", [part(index=n) for n in range(60)]) == NO_SESSION
    assert open_as(cache, "User:alice", [part(index=n) for n in range(40)]) != NO_SESSION
    assert cache.partitions == 40


def test_the_sessions_of_followers_are_not_given_to_other_principals():
    cache = FetchSessionCache(2)
    for _ in range(2):
        context = fetch(cache, 0, 0, [part()], is_follower=True, principal="User:broker")
        assert context.respond([read()], 0.0)[1] != NO_SESSION
    assert open_as(cache, "User:alice", [part()]) == NO_SESSION
