"""Fetches of followers over the wire: what the leader sends, and what it learns about the follower."""

import itertools

import pytest

from kafkapy.errors import Errors
from kafkapy.metadata.roles import PartitionRole
from kafkapy.protocol.apis import FETCH, PRODUCE
from kafkapy.replica.throttles import UNLIMITED
from kafkapy.server.new_followers import NewFollowers
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.requests import (
    FETCH_VERSION,
    VERSION,
    batch,
    end_offset,
    fetch,
    fetch_request,
    lead_with,
    make_topic,
    produce,
    request,
    start_broker,
)

ME, OTHER, THIRD = 0, 1, 2
NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def undisturbed(monkeypatch):
    """Keep waiting fetches from being answered when the broker begins to lead partitions (see test_new_followers)."""
    monkeypatch.setattr(NewFollowers, "became_leader", lambda self, partition: None)


@pytest.fixture
def topic(wire):
    return make_topic(wire, f"followed-{next(NUMBERS)}")


@pytest.fixture
def partition(broker, topic):
    return lead_with(broker, topic, [ME, OTHER, THIRD], [ME, OTHER])


@pytest.fixture
def follower(broker):
    with Wire(broker.bootstrap_servers) as connection:
        yield connection


def follow(wire, topic, offset=0, replica=OTHER, version=FETCH_VERSION, **settings):
    response = wire.call(FETCH, version, fetch_request(topic, offset, replica=replica, **settings))
    return response.responses[0].partitions[0]


def test_a_follower_reads_up_to_the_log_end_offset_and_moves_the_high_watermark(wire, follower, topic, partition):
    produce(wire, topic, batch(b"one", b"two"))
    assert (end_offset(wire, topic), len(fetch(wire, topic).records)) == (0, 0)
    read = follow(follower, topic)
    assert (read.error_code, read.high_watermark, len(read.records)) == (Errors.NONE, 0, partition.log.size)
    assert follow(follower, topic, 2).high_watermark == 2
    assert (end_offset(wire, topic), len(fetch(wire, topic).records)) == (2, partition.log.size)


@pytest.mark.parametrize("version", [14, 15, 17])
def test_the_replica_id_of_all_versions_is_known(wire, follower, topic, partition, version):
    produce(wire, topic, batch(b"one"))
    asked = fetch_request(topic, 1, replica=OTHER if version < 15 else -1)
    asked.replica_state.replica_id = OTHER if version >= 15 else -1
    asked.topics[0].topic_id = partition.log.topic_id
    assert follower.call(FETCH, version, asked).responses[0].partitions[0].error_code == Errors.NONE
    assert partition.log.high_watermark == 1


def test_acks_all_waits_for_the_fetch_of_the_follower(wire, follower, topic, partition):
    wire.send(PRODUCE, VERSION, request(topic, batch(b"one"), acks=-1))
    eventually(lambda: partition.log.log_end_offset == 1)
    assert follow(follower, topic).high_watermark == 0
    follow(follower, topic, 1)
    assert wire.receive(PRODUCE, VERSION)[1].responses[0].partition_responses[0].error_code == Errors.NONE


def test_a_waiting_fetch_of_a_follower_ends_with_an_append_and_not_with_a_high_watermark(
    broker, wire, follower, topic, partition
):
    produce(wire, topic, batch(b"one"))
    purgatory = broker.services.replicas.fetch_purgatory
    follower.send(FETCH, FETCH_VERSION, fetch_request(topic, 1, replica=THIRD, wait=60_000))
    eventually(lambda: purgatory.delayed == 1)
    with Wire(broker.bootstrap_servers) as other:
        follow(other, topic, 1)
    eventually(lambda: partition.log.high_watermark == 1)
    assert purgatory.delayed == 1
    produce(wire, topic, batch(b"two"))
    read = follower.receive(FETCH, FETCH_VERSION)[1].responses[0].partitions[0]
    assert (read.high_watermark, len(read.records) > 0) == (1, True)


def test_a_fetch_that_waits_says_what_the_follower_had_when_it_came(broker, wire, follower, topic, partition):
    """The leader must not take the offset at the end of the fetch: those records are only on their way then."""
    purgatory = broker.services.replicas.fetch_purgatory
    follower.send(FETCH, FETCH_VERSION, fetch_request(topic, 0, replica=OTHER, wait=60_000))
    eventually(lambda: purgatory.delayed == 1)
    fetched_at = partition.in_sync.followers[OTHER].fetched_at
    produce(wire, topic, batch(b"one"))
    follower.receive(FETCH, FETCH_VERSION)
    known = partition.in_sync.followers[OTHER]
    assert (known.end_offset, known.leader_end, known.fetched_at) == (0, 0, fetched_at)


@pytest.mark.parametrize(("epoch", "code"), [(1, Errors.UNKNOWN_LEADER_EPOCH), (-1, Errors.NOT_LEADER_OR_FOLLOWER)])
def test_a_broker_that_is_no_replica_yet_gets_a_retriable_error(follower, topic, partition, epoch, code):
    assert partition.leader_epoch == 1
    assert follow(follower, topic, replica=7, epoch=epoch).error_code == code
    assert follow(follower, topic, replica=7, epoch=0).error_code == Errors.FENCED_LEADER_EPOCH


def test_the_leader_epoch_is_checked_before_the_leadership(broker, wire, follower, topic, partition):
    services = broker.services
    role = PartitionRole(topic, 0, partition.log.topic_id, OTHER, 5, 5, [OTHER], [ME, OTHER])
    assert services.roles.apply(services.topics.controller_epoch, [role]) == {}
    for epoch, code in ((4, "FENCED_LEADER_EPOCH"), (6, "UNKNOWN_LEADER_EPOCH"), (5, "NOT_LEADER_OR_FOLLOWER")):
        assert follow(follower, topic, epoch=epoch).error_code == getattr(Errors, code)
    assert follow(follower, topic).error_code == Errors.NOT_LEADER_OR_FOLLOWER


def test_below_the_log_start_is_out_of_range_even_if_the_logs_diverge(broker, wire, follower, topic, partition):
    produce(wire, topic, batch(b"1", b"2", b"3", b"4"))  # in leader epoch 1
    for _ in range(2):
        partition = lead_with(broker, topic, [ME, OTHER], [ME, OTHER])
    produce(wire, topic, batch(b"5"))  # in leader epoch 3
    follow(follower, topic, 5)
    partition.delete_records(2)
    diverging = follow(follower, topic, 3, fetched_epoch=2).diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (1, 4)
    assert follow(follower, topic, 1, fetched_epoch=2).error_code == Errors.OFFSET_OUT_OF_RANGE


def test_a_diverging_partition_does_not_hold_the_others_up(broker, wire, follower):
    topic = f"followed-{next(NUMBERS)}"
    wire.create_topic(topic, 2)
    for index in range(2):
        lead_with(broker, topic, [ME, OTHER], [ME, OTHER], index)
        produce(wire, topic, batch(b"value"), index=index)
    asked = fetch_request(topic, 1, replica=OTHER, fetched_epoch=0, wait=60_000, min_bytes=1 << 20)
    asked.topics[0].partitions.append(fetch_request(topic, 0, replica=OTHER).topics[0].partitions[0])
    asked.topics[0].partitions[1].partition = 1
    diverging, normal = follower.call(FETCH, FETCH_VERSION, asked).responses[0].partitions
    assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (0, 0)
    assert len(diverging.records) == 0
    assert len(normal.records) == broker.services.replicas.get(topic, 1).log.size
    known = [broker.services.replicas.get(topic, index).in_sync.followers[OTHER] for index in range(2)]
    assert [one.end_offset for one in known] == [-1, 0]  # nothing is known of a diverging follower


def open_session(follower, topic, offset, replica=OTHER):
    response = follower.call(FETCH, FETCH_VERSION, fetch_request(topic, offset, replica=replica, session=(0, 0)))
    assert response.session_id > 0
    return response.session_id


def in_session(topic=None, offset=0, *, session, epoch, wait=0, replica=OTHER):
    """Return an incremental fetch that names the topic or, without one, names nothing."""
    asked = fetch_request(topic or "", offset, replica=replica, session=(session, epoch), wait=wait)
    if topic is None:
        asked.topics = []
    return asked


def partitions_of(response):
    assert response.error_code == Errors.NONE
    return [one for topic in response.responses for one in topic.partitions]


def test_a_session_tells_a_follower_a_new_high_watermark_without_waking_it(broker, wire, follower, topic, partition):
    produce(wire, topic, batch(b"one"))
    session = open_session(follower, topic, 1, THIRD)
    purgatory = broker.services.replicas.fetch_purgatory
    follower.send(FETCH, FETCH_VERSION, in_session(session=session, epoch=1, wait=60_000, replica=THIRD))
    eventually(lambda: purgatory.delayed == 1)
    with Wire(broker.bootstrap_servers) as other:
        follow(other, topic, 1)
    eventually(lambda: partition.log.high_watermark == 1)
    assert purgatory.delayed == 1
    produce(wire, topic, batch(b"two"))
    (read,) = partitions_of(follower.receive(FETCH, FETCH_VERSION)[1])
    assert (read.high_watermark, len(read.records) > 0) == (1, True)
    with Wire(broker.bootstrap_servers) as other:
        follow(other, topic, 2)
    response = follower.call(FETCH, FETCH_VERSION, in_session(topic, 2, session=session, epoch=2, replica=THIRD))
    assert [(one.high_watermark, len(one.records)) for one in partitions_of(response)] == [(2, 0)]
    response = follower.call(FETCH, FETCH_VERSION, in_session(session=session, epoch=3, replica=THIRD))
    assert partitions_of(response) == []


def test_a_consumers_session_is_not_woken_by_records_that_are_not_replicated(broker, wire, follower, topic, partition):
    consumer = Wire(broker.bootstrap_servers)
    session = open_session(consumer, topic, 0, -1)
    woken = []
    sessions = broker.services.fetch_sessions
    (found,) = [one for one in sessions if one.id == session]
    wake, found.wake = found.wake, lambda one: (woken.append(one), wake(one))
    consumer.send(FETCH, FETCH_VERSION, in_session(session=session, epoch=1, wait=60_000, replica=-1))
    eventually(lambda: broker.services.replicas.fetch_purgatory.delayed == 1)
    produce(wire, topic, batch(b"one"))
    assert woken == []
    follow(follower, topic, 1)
    (read,) = partitions_of(consumer.receive(FETCH, FETCH_VERSION)[1])
    assert (read.high_watermark, len(read.records)) == (1, partition.log.size)
    consumer.close()


def test_a_follower_with_nothing_to_fetch_is_known_to_be_caught_up(tmp_path):
    """The follower's incremental fetches name no partitions, and still count for all partitions of the session."""
    server = start_broker(tmp_path, broker_id=ME, replica_lag_time_max_ms=2000)
    with Wire(server.bootstrap_servers) as follower:
        topic = make_topic(follower, "quiet")
        partition = lead_with(server, topic, [ME, OTHER], [ME, OTHER])
        session = open_session(follower, topic, 0)
        begun = partition.in_sync.followers[OTHER].caught_up_at
        epochs = itertools.count(1)

        def is_refreshed():
            asked = in_session(session=session, epoch=next(epochs))
            assert partitions_of(follower.call(FETCH, FETCH_VERSION, asked)) == []
            return partition.in_sync.followers[OTHER].caught_up_at > begun

        eventually(is_refreshed)
    server.stop()


def test_a_client_that_may_not_follow_opens_no_session(tmp_path):
    """A follower's session may replace sessions of consumers, so a client must not get one by claiming to follow."""
    server = start_broker(tmp_path, authorizer_class_name="kafka.security.authorizer.AclAuthorizer")
    try:
        with Wire(server.bootstrap_servers) as wire:
            response = wire.call(FETCH, FETCH_VERSION, fetch_request("t", replica=OTHER, session=(0, 0)))
        assert response.responses[0].partitions[0].error_code == Errors.TOPIC_AUTHORIZATION_FAILED
        assert (response.session_id, len(server.services.fetch_sessions)) == (0, 0)
    finally:
        server.stop()


def test_a_partition_that_is_lost_ends_the_waiting_session_of_its_follower(broker, wire, follower, topic, partition):
    session = open_session(follower, topic, 0)
    follower.send(FETCH, FETCH_VERSION, in_session(session=session, epoch=1, wait=60_000))
    eventually(lambda: broker.services.replicas.fetch_purgatory.delayed == 1)
    services = broker.services
    role = PartitionRole(topic, 0, partition.log.topic_id, OTHER, 5, 5, [OTHER], [ME, OTHER])
    assert services.roles.apply(services.topics.controller_epoch, [role]) == {}
    (read,) = partitions_of(follower.receive(FETCH, FETCH_VERSION)[1])
    assert read.error_code == Errors.NOT_LEADER_OR_FOLLOWER


def test_a_throttled_follower_gets_no_records_while_the_limit_is_exceeded(broker, wire, follower, topic, partition):
    produce(wire, topic, batch(b"one"))
    throttle = broker.services.throttles.leader
    purgatory = broker.services.replicas.fetch_purgatory
    throttle.set_topic(topic, [f"0:{ME}"], ME)
    throttle.limit = 1
    try:
        assert (
            len(follow(follower, topic, replica=THIRD).records) == partition.log.size
        )  # this first fetch is within the limit
        assert throttle.is_exceeded()
        assert len(follow(follower, topic, replica=OTHER).records) == partition.log.size  # in sync: never throttled
        read = follow(follower, topic, replica=THIRD)
        assert (read.error_code, len(read.records), read.log_start_offset) == (Errors.NONE, 0, 0)
        session = open_session(follower, topic, 0, THIRD)
        follower.send(FETCH, FETCH_VERSION, in_session(session=session, epoch=1, wait=60_000, replica=THIRD))
        eventually(lambda: purgatory.delayed == 1)
        produce(wire, topic, batch(b"two"))
        assert purgatory.delayed == 1  # after an empty response the follower would fetch again at once
        throttle.limit = 1 << 40
        produce(wire, topic, batch(b"three"))
        (read,) = partitions_of(follower.receive(FETCH, FETCH_VERSION)[1])
        assert len(read.records) == partition.log.size
    finally:
        throttle.set_topic(topic, [], ME)
        throttle.limit = UNLIMITED
