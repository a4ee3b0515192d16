"""The checker finds each kind of violation in histories made by hand, and none in a sound history."""

import copy
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.cluster.checker import End, Stored, check
from tests.cluster.history import Event, History
from tests.cluster.rdkafka_clients import is_no_truncation

SOURCE, COPY = "in", "out"


def history(client: str, role: str, *events: Event, **about: Any) -> History:
    return History(client, role, about, [*events, {"e": "done", "t": 99.0}])


def event(kind: str, p: int, t: float = 0.0, topic: str = SOURCE, **more: Any) -> Event:
    return {"e": kind, "t": t, "topic": topic, "p": p, **more}


class Run:
    """A sound run with two partitions of three records, a copy, consumers and a group. Tests then break it."""

    def __init__(self) -> None:
        self.end: End = {
            (SOURCE, p): [Stored(offset, 4 + offset // 2, f"a:{2 * offset + p}") for offset in range(3)] for p in (0, 1)
        }
        self.end[COPY, 0] = [
            Stored(0, 1, "c:0|a:0", committed=False),
            *(Stored(3 + n, 1, f"c:{n + 1}|a:{n}") for n in range(6)),
        ]
        self.producer = history("a", "producer", acks="all", idempotent=True, topic=SOURCE)
        for number in range(6):
            self.producer.events.insert(-1, event("sent", number % 2, v=f"a:{number}"))
            self.producer.events.insert(-1, event("acked", number % 2, v=f"a:{number}", o=number // 2))
        self.copier = history("c", "copier", idempotent=True, topic=COPY)
        for stored in self.end[COPY, 0]:
            self.copier.events.insert(-1, event("sent", 0, topic=COPY, v=stored.value))
        committed = [stored.value for stored in self.end[COPY, 0][1:]]
        self.copier.events.insert(-1, {"e": "ended", "t": 1.0, "outcome": "aborted", "values": ["c:0|a:0"]})
        self.copier.events.insert(-1, {"e": "ended", "t": 2.0, "outcome": "committed", "values": committed})
        self.consumer = self._consumer("r", "read_committed", {SOURCE: 2, COPY: 1})
        self.member = self._consumer("m", "read_uncommitted", {SOURCE: 2}, role="member", group="g")
        self.member.events.insert(0, event("assigned", 0, 1.0, o=0, t0=0.9))
        self.member.events.insert(-1, event("committed", 0, 5.0, o=2, t0=4.9))
        self.member.events.insert(-1, event("assigned", 0, 6.0, o=2, t0=5.5))
        self.watcher = history("w", "watcher")
        for epoch, high in ((1, 5), (1, 6), (2, 4), (2, 9)):
            self.watcher.events.insert(-1, event("hw", 0, epoch=epoch, hw=high))

    def _consumer(
        self, client: str, isolation: str, topics: dict[str, int], role: str = "consumer", **about: Any
    ) -> History:
        made = history(client, role, isolation=isolation, topics=topics, **about)
        for (topic, p), records in self.end.items():
            for record in records:
                if topic in topics and record.committed:
                    seen = event("seen", p, topic=topic, o=record.offset, v=record.value, epoch=record.epoch)
                    made.events.insert(-1, seen)
        return made

    def problems(self) -> list[str]:
        histories = [self.producer, self.copier, self.consumer, self.member, self.watcher]
        return check(histories, self.end, {COPY: SOURCE})

    def finds(self, *words: str) -> None:
        """Assert that the checker finds a problem whose sentence has all these words."""
        found = self.problems()
        assert any(all(word in problem for word in words) for problem in found), found

    def seen(self, history: History, value: str) -> Event:
        return next(event for event in history.of("seen") if event["v"] == value)


def test_nothing_is_found_in_a_sound_run() -> None:
    assert Run().problems() == []


def test_an_acknowledged_record_that_is_lost() -> None:
    run = Run()
    del run.end[SOURCE, 1][2]
    run.finds("a:5", "lost")


def test_an_acknowledged_record_whose_offset_has_another() -> None:
    run = Run()
    run.end[SOURCE, 1][2] = run.end[SOURCE, 1][2]._replace(value="b:1")
    run.finds("a:5", "lost")
    run.finds("no client sent b:1")


def test_an_acknowledged_record_that_is_at_another_offset() -> None:
    run = Run()
    run.end[SOURCE, 1][2] = run.end[SOURCE, 1][2]._replace(offset=7)
    run.finds("a:5", "moved to [7]")


def test_an_acknowledged_record_that_is_in_another_partition() -> None:
    run = Run()
    run.end[SOURCE, 0].append(run.end[SOURCE, 1].pop()._replace(offset=3))
    run.finds("a:5", "lost")


def test_a_record_that_was_acknowledged_without_an_offset() -> None:
    run = Run()
    acked = next(event for event in run.producer.of("acked") if event["v"] == "a:5")
    del acked["o"]
    assert run.problems() == []
    del run.end[SOURCE, 1][2]
    run.finds("a:5", "lost")


def test_a_record_that_is_there_twice() -> None:
    run = Run()
    run.end[SOURCE, 1].append(Stored(3, 5, "a:5"))
    run.finds("a:5 is there 2 times")


def test_a_record_without_acknowledgement_that_is_there_twice() -> None:
    run = Run()
    run.producer.events.insert(-1, event("sent", 0, v="a:6"))
    run.end[SOURCE, 0] += [Stored(3, 5, "a:6"), Stored(4, 5, "a:6")]
    run.finds("a:6 is there 2 times")


def test_records_of_a_producer_in_another_order() -> None:
    run = Run()
    first, second = run.end[SOURCE, 0][1:]
    run.end[SOURCE, 0][1:] = [first._replace(value=second.value), second._replace(value=first.value)]
    for acked in run.producer.of("acked"):
        if acked["v"] in ("a:2", "a:4"):
            acked["o"] = 3 - acked["o"]
    run.finds("the order is wrong")


def test_a_consumer_saw_a_record_that_is_not_there_in_the_end() -> None:
    run = Run()
    run.consumer.events.insert(-1, event("seen", 0, o=3, v="a:9", epoch=5))
    run.finds("r saw a:9", "in the end there is None")


def test_a_consumer_saw_a_record_that_was_replaced_by_another() -> None:
    run = Run()
    run.seen(run.consumer, "a:4")["v"] = "a:9"
    run.finds("r saw a:9", "in the end there is a:4")


def test_two_consumers_saw_different_records_at_one_offset() -> None:
    run = Run()
    run.seen(run.member, "a:4")["v"] = "a:9"
    run.finds("m saw a:9", "in the end there is a:4")
    assert not [problem for problem in run.problems() if problem.startswith("r saw")]


def test_a_consumer_saw_a_record_of_another_leader_epoch() -> None:
    run = Run()
    run.seen(run.consumer, "a:4")["epoch"] = 3
    run.finds("r saw a:4", "of leader epoch 3", "it is of 5")


def test_a_consumer_without_leader_epochs_is_no_problem() -> None:
    run = Run()
    run.seen(run.consumer, "a:4")["epoch"] = -1
    assert run.problems() == []


def test_a_reader_of_committed_records_saw_an_aborted_one() -> None:
    run = Run()
    run.consumer.events.insert(-1, event("seen", 0, topic=COPY, o=0, v="c:0|a:0", epoch=1))
    run.finds("r saw c:0|a:0", "which was not committed")


def test_a_consumer_did_not_see_a_record() -> None:
    run = Run()
    run.consumer.events.remove(run.seen(run.consumer, "a:2"))
    run.finds("r did not see in-0", "not seen [1]")


def test_a_consumer_saw_a_record_twice() -> None:
    run = Run()
    run.consumer.events.insert(-1, copy.copy(run.seen(run.consumer, "a:2")))
    run.finds("r did not see in-0 once and in order", "more than once [1]")


def test_a_high_watermark_that_goes_back_within_an_epoch() -> None:
    run = Run()
    run.watcher.events.insert(-1, event("hw", 0, epoch=2, hw=8))
    run.finds("in-0", "from 9 to 8", "leader epoch 2")


def test_a_group_that_lost_an_acknowledged_commit() -> None:
    run = Run()
    run.member.events.insert(-1, event("assigned", 0, 8.0, o=1, t0=7.9))
    run.finds("m got the committed offset 1 of in-0", "had committed 2")


def test_a_commit_that_was_acknowledged_after_the_question_may_be_missing_in_the_answer() -> None:
    run = Run()
    run.member.events.insert(-1, event("assigned", 0, 5.1, o=0, t0=4.95))
    assert run.problems() == []


def test_a_group_that_did_not_see_a_record() -> None:
    run = Run()
    run.member.events.remove(run.seen(run.member, "a:3"))
    run.finds("group g did not see in-1 at [1]")


def test_a_committed_transaction_of_which_a_part_is_missing() -> None:
    run = Run()
    run.end[COPY, 0][2] = run.end[COPY, 0][2]._replace(committed=False)
    run.finds("c's transaction", "ended as committed", "5 of its 6")


def test_an_aborted_transaction_that_is_committed() -> None:
    run = Run()
    run.end[COPY, 0][0] = run.end[COPY, 0][0]._replace(committed=True)
    run.finds("c's transaction", "ended as aborted", "1 of its 1")


def test_a_transaction_of_unknown_outcome_of_which_a_part_is_committed() -> None:
    run = Run()
    for ended in run.copier.of("ended"):
        ended["outcome"] = "unknown"
    assert run.problems() == []
    run.end[COPY, 0][2] = run.end[COPY, 0][2]._replace(committed=False)
    run.finds("ended as unknown", "5 of its 6")


def test_a_copy_without_one_of_its_records() -> None:
    run = Run()
    del run.end[COPY, 0][3]
    run.finds("a:2 of in is 0 times in out")


def test_a_copy_with_a_record_twice() -> None:
    run = Run()
    run.end[COPY, 0].append(Stored(9, 1, "c:7|a:2"))
    run.finds("a:2 of in is 2 times in out")


def test_an_error_of_a_client() -> None:
    run = Run()
    run.consumer.events.insert(0, {"e": "error", "t": 0.0, "error": "offset out of range"})
    run.finds("r: offset out of range")


def test_a_client_that_did_not_come_to_its_end() -> None:
    run = Run()
    del run.consumer.events[-1]
    run.finds("r did not come to its end")


@pytest.mark.parametrize(("epoch_of_last_record", "expected"), [(2, True), (1, True), (0, False), (None, False)])
def test_only_a_truncation_after_an_earlier_epoch_than_that_of_the_last_record_is_none(
    epoch_of_last_record: int | None, expected: bool
) -> None:
    text = (  # of librdkafka 2.16, about batches of a response that are before its position
        "Partition log truncation detected at offset 10 (leader epoch 0): broker end offset is 5 (offset leader epoch "
        "0). Reset to INVALID.: Local: Partition log truncation detected (broker 1001)"
    )
    assert is_no_truncation(KafkaError(KafkaError._AUTO_OFFSET_RESET, text), epoch_of_last_record) is expected
    out_of_range = KafkaError(KafkaError._AUTO_OFFSET_RESET, "fetch failed at offset 10 (leader epoch 0)")
    assert not is_no_truncation(out_of_range, epoch_of_last_record)
