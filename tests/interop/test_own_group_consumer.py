"""kafkapy's group consumer works with kafkapy and with Apache Kafka."""

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from kafkapy.client import (
    Admin,
    CommitFailed,
    GroupConsumer,
    GroupFailed,
    OffsetAndMetadata,
    RebalanceListener,
    RecordProducer,
)
from kafkapy.client.cluster import TopicPartition
from kafkapy.client.fetched import ConsumerRecord
from kafkapy.errors import Errors, KafkaError
from tests.harness.brokers import Broker
from tests.harness.waiting import eventually

QUICKLY = {"heartbeat_interval_s": 0.05, "session_timeout_s": 6.0, "max_poll_interval_s": 6.0}


class Events(RebalanceListener):
    """A listener that records the consumer's callbacks."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[int]]] = []

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("assigned", {index for _, index in partitions}))

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("revoked", {index for _, index in partitions}))

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("lost", {index for _, index in partitions}))

    def all(self, what: str) -> list[set[int]]:
        return [partitions for event, partitions in self.calls if event == what]


class Polling:
    """A consumer that polls on its own thread until it is stopped."""

    def __init__(self, consumer: GroupConsumer, topics: Any) -> None:
        self.consumer = consumer
        self.events = Events()
        self.records: list[ConsumerRecord] = []
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        consumer.subscribe(topics, self.events)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def partitions(self) -> set[int]:
        return {index for _, index in self.consumer.assignment}

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.records += self.consumer.poll(0.1)
            self.consumer.close()
        except BaseException as error:
            self.failure = error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class Rig:
    """A topic, and consumers of one group, which are closed at the end of the test."""

    def __init__(self, servers: str, name: str) -> None:
        self.servers = servers
        self.name = name
        self.admin = Admin(servers)
        self.producer = RecordProducer(self.admin.cluster)
        self._opened: list[Polling | GroupConsumer] = []

    def topic(self, partitions: int = 4) -> str:
        self.admin.create_topic(self.name, partitions)
        return self.name

    def consumer(self, **more: Any) -> GroupConsumer:
        settings = {"auto_offset_reset": "earliest", **QUICKLY, **more}
        group = settings.pop("group", self.name)
        consumer = GroupConsumer(self.servers, group, **settings)
        self._opened.append(consumer)
        return consumer

    def polling(self, topics: Any = None, **more: Any) -> Polling:
        polling = Polling(self.consumer(**more), topics or [self.name])
        self._opened.append(polling)
        return polling

    def send(self, values: range, topic: str | None = None, **more: Any) -> None:
        for value in values:
            self.producer.send(topic or self.name, b"%d" % value, b"%d" % value, **more)
        self.producer.flush()

    def close(self) -> None:
        for one in self._opened:
            if isinstance(one, Polling):
                one.stop()
        for one in self._opened:
            if isinstance(one, GroupConsumer):
                one.close()
        self.admin.close()


@pytest.fixture
def rig(coordinator: Broker, topic_name: str) -> Iterator[Rig]:
    rig = Rig(coordinator.bootstrap, topic_name)
    yield rig
    rig.close()


def values(*lists: Sequence[ConsumerRecord]) -> list[int]:
    return sorted(int(record.value or b"") for records in lists for record in records)


def take(consumer: GroupConsumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []

    def enough() -> bool:
        records.extend(consumer.poll(0.2))
        return len(records) >= count

    eventually(enough, what=f"{count} records")
    return records


ASSIGNORS = [("range",), ("roundrobin",), ("sticky",), ("cooperative-sticky",), ("cooperative-sticky", "range")]


@pytest.mark.parametrize("assignors", ASSIGNORS, ids="+".join)
def test_every_record_is_read_once_while_members_join_and_leave(rig: Rig, assignors: Sequence[str]) -> None:
    rig.topic(4)
    rig.send(range(100))
    first = rig.polling(assignors=assignors)
    eventually(lambda: len(first.records) == 100, what="the first member reads all")
    second = rig.polling(assignors=assignors)
    eventually(
        lambda: len(first.partitions) == len(second.partitions) == 2, what="two members have two partitions each"
    )
    assert first.partitions | second.partitions == {0, 1, 2, 3}
    rig.send(range(100, 200))
    eventually(lambda: len(first.records) + len(second.records) >= 200, what="both read what is new")
    first.stop()
    eventually(lambda: len(second.partitions) == 4, what="the one that stays has all partitions")
    rig.send(range(200, 300))
    eventually(lambda: len(first.records) + len(second.records) >= 300, what="the one that stays reads on")
    assert values(first.records, second.records) == list(range(300))
    assert first.failure is second.failure is None


def test_a_cooperative_member_keeps_reading_partitions_that_stay_assigned(rig: Rig) -> None:
    rig.topic(4)
    first = rig.polling(assignors=["cooperative-sticky"])
    eventually(lambda: len(first.partitions) == 4, what="the first member has all partitions")
    second = rig.consumer(assignors=["cooperative-sticky"])
    second.subscribe([rig.name])
    second.poll(0)  # joins, and then does not poll for a while, so the group waits
    rig.send(range(40))
    eventually(lambda: len(first.records) >= 10, what="the first member reads while the group rebalances")
    eventually(lambda: second.poll(0.05) or len(second.assignment) == 2, what="the second member gets its share")
    eventually(lambda: len(first.partitions) == 2, what="the first member has let go of two")
    (revoked,) = first.events.all("revoked")
    assert {index for _, index in second.assignment} == revoked
    assert first.partitions == {0, 1, 2, 3} - revoked


def test_an_eager_member_revokes_all_partitions_first(rig: Rig) -> None:
    rig.topic(2)
    first = rig.polling(assignors=["range"])
    eventually(lambda: len(first.partitions) == 2, what="the first member has all partitions")
    second = rig.polling(assignors=["range"])
    eventually(lambda: len(second.partitions) == len(first.partitions) == 1, what="both have one partition")
    assert first.events.all("revoked")[0] == {0, 1}
    assert first.events.calls[:2] == [("assigned", {0, 1}), ("revoked", {0, 1})]


def test_a_pattern_includes_topics_that_are_created_later(rig: Rig) -> None:
    rig.topic(1)
    polling = rig.polling(re.compile(f"^{re.escape(rig.name)}"), metadata_max_age_s=0.1)
    rig.send(range(5))
    eventually(lambda: len(polling.records) == 5, what="the topic that was there")
    other = rig.admin.create_topic(f"{rig.name}-more", 2).name
    rig.send(range(5, 10), other)
    eventually(lambda: len(polling.records) == 10, what="the topic that was made later")
    assert values(polling.records) == list(range(10))
    assert polling.consumer.assignment == {(rig.name, 0), (other, 0), (other, 1)}


def test_added_partitions_are_assigned(rig: Rig) -> None:
    rig.topic(1)
    members = [rig.polling(metadata_max_age_s=0.1) for _ in range(2)]
    eventually(
        lambda: sum(len(member.partitions) for member in members) == 1, what="one of the members has the partition"
    )
    rig.admin.create_partitions(rig.name, 4)
    eventually(lambda: all(len(member.partitions) == 2 for member in members), what="each has two")


def test_a_topic_created_after_the_consumer_is_read(rig: Rig) -> None:
    polling = rig.polling(metadata_max_age_s=0.1)
    rig.topic(2)
    rig.send(range(10))
    eventually(lambda: len(polling.records) >= 10, what="the records")


def test_the_next_consumer_begins_at_the_committed_offsets(rig: Rig) -> None:
    topic = rig.topic(1)
    rig.send(range(20))
    consumer = rig.consumer(auto_commit=False, max_records=5)
    consumer.subscribe([topic])
    take(consumer, 5)
    assert consumer.position(topic, 0) == 5
    consumer.commit()
    assert consumer.committed([(topic, 0), ("not-there", 3)]) == {(topic, 0): OffsetAndMetadata(5)}
    consumer.commit({(topic, 0): OffsetAndMetadata(7, "as far as the seventh")})
    take(consumer, 5)
    consumer.close()
    again = rig.consumer(auto_commit=False)
    again.subscribe([topic])
    assert values(take(again, 13)) == list(range(7, 20))
    assert again.committed([(topic, 0)])[topic, 0].metadata == "as far as the seventh"


def test_asynchronous_commits_call_their_callback(rig: Rig) -> None:
    topic = rig.topic(1)
    rig.send(range(3))
    consumer = rig.consumer(auto_commit=False)
    consumer.subscribe([topic])
    take(consumer, 3)
    calls: list[tuple[Mapping[TopicPartition, OffsetAndMetadata], Exception | None]] = []
    consumer.commit_async(callback=lambda offsets, error: calls.append((offsets, error)))
    consumer.commit_async({(topic, 0): 1}, callback=lambda offsets, error: calls.append((offsets, error)))
    consumer.commit_async({(topic, 77): 1}, callback=lambda offsets, error: calls.append((offsets, error)))
    eventually(lambda: consumer.poll(0.05) or len(calls) == 3, what="three callbacks")
    assert calls[0] == ({(topic, 0): OffsetAndMetadata(3)}, None)
    assert calls[1] == ({(topic, 0): OffsetAndMetadata(1)}, None)
    assert isinstance(calls[2][1], KafkaError)
    assert calls[2][1].code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert consumer.committed([(topic, 0)]) == {(topic, 0): OffsetAndMetadata(1)}


def test_a_commit_with_too_much_metadata_is_refused(rig: Rig) -> None:
    topic = rig.topic(1)
    consumer = rig.consumer(auto_commit=False)
    consumer.subscribe([topic])
    eventually(lambda: consumer.poll(0.05) or consumer.assignment, what="the assignment")
    with pytest.raises(KafkaError) as error:
        consumer.commit({(topic, 0): OffsetAndMetadata(0, "x" * 5000)})
    assert error.value.code == Errors.OFFSET_METADATA_TOO_LARGE
    assert f"{topic}-0" in str(error.value)
    with pytest.raises(ValueError, match=r"is -1; an offset is 0 or more"):
        consumer.commit({(topic, 0): -1})


def test_offsets_are_committed_automatically(rig: Rig) -> None:
    topic = rig.topic(1)
    rig.send(range(3))
    consumer = rig.consumer(auto_commit_interval_s=0.05)
    consumer.subscribe([topic])
    take(consumer, 3)
    eventually(
        lambda: consumer.poll(0.05) or consumer.committed([(topic, 0)]) == {(topic, 0): (3, "", -1)}, what="the commit"
    )


def test_without_a_committed_offset_a_consumer_begins_at_the_earliest_record(rig: Rig) -> None:
    topic = rig.topic(1)
    rig.send(range(2))
    consumer = rig.consumer(auto_offset_reset="earliest")
    consumer.subscribe([topic])
    assert values(take(consumer, 2)) == [0, 1]


def test_without_a_committed_offset_a_consumer_begins_at_the_end(rig: Rig) -> None:
    topic = rig.topic(1)
    rig.send(range(2))
    consumer = rig.consumer(auto_offset_reset="latest")
    consumer.subscribe([topic])
    eventually(lambda: consumer.poll(0) or consumer.positions(), what="a position")
    rig.send(range(2, 4))
    assert values(take(consumer, 2)) == [2, 3]


def test_without_a_committed_offset_a_consumer_can_raise(rig: Rig) -> None:
    topic = rig.topic(1)
    consumer = rig.consumer(auto_offset_reset="none")
    consumer.subscribe([topic])
    with pytest.raises(KafkaError, match=f"no committed offset in {topic}-0; seek to one, or choose"):
        eventually(lambda: consumer.poll(0.05), what="the refusal")


def test_a_consumer_can_seek_pause_and_resume(rig: Rig) -> None:
    topic = rig.topic(2)
    rig.send(range(10), partition=0, timestamp=1600000000000)
    rig.send(range(10, 20), partition=1, timestamp=1600000005000)
    consumer = rig.consumer()
    consumer.subscribe([topic])
    assert values(take(consumer, 20)) == list(range(20))
    assert consumer.end_offsets() == {(topic, 0): 10, (topic, 1): 10}
    assert consumer.beginning_offsets([(topic, 1)]) == {(topic, 1): 0}
    consumer.seek(topic, 0, 8)
    assert values(take(consumer, 2)) == [8, 9]
    consumer.seek_to_beginning()
    consumer.pause([(topic, 0)])
    assert consumer.paused == {(topic, 0)}
    assert values(take(consumer, 10)) == list(range(10, 20))
    assert consumer.position(topic, 0) == 0
    consumer.resume([(topic, 0)])
    assert values(take(consumer, 10)) == list(range(10))
    consumer.seek_to_timestamp(1600000004000)
    assert values(take(consumer, 10)) == list(range(10, 20))
    assert consumer.positions() == {(topic, 0): 10, (topic, 1): 10}
    with pytest.raises(ValueError, match=f"{topic}-7 is not assigned to this consumer, which has {topic}-0"):
        consumer.seek(topic, 7, 0)


def test_an_offset_out_of_range_is_reset_or_raised(rig: Rig) -> None:
    topic = rig.topic(1)
    rig.send(range(10))
    rig.admin.delete_records({(topic, 0): 5})
    patient = rig.consumer(auto_commit=False)
    patient.subscribe([topic])
    take(patient, 5)
    patient.seek(topic, 0, 2)
    assert values(take(patient, 5)) == list(range(5, 10))
    patient.commit({(topic, 0): 2})
    patient.close()
    strict = rig.consumer(auto_offset_reset="none")
    strict.subscribe([topic])
    with pytest.raises(KafkaError, match=f"{topic}-0 at offset 2: .*Seek to one of them") as error:
        eventually(lambda: strict.poll(0.05), what="the refusal")
    assert error.value.code == Errors.OFFSET_OUT_OF_RANGE


def test_a_static_member_rejoins_without_a_rebalance(rig: Rig) -> None:
    rig.topic(4)
    stays = rig.polling(instance_id="stays")
    goes = rig.polling(instance_id="goes")
    eventually(lambda: len(stays.partitions) == len(goes.partitions) == 2, what="two members have two partitions each")
    had, events = goes.partitions, list(stays.events.calls)
    generation = stays.consumer.group_metadata().generation
    goes.stop()
    back = rig.polling(instance_id="goes")
    eventually(lambda: back.partitions == had, what="the member has its former partitions")
    rig.send(range(50))
    eventually(lambda: len(stays.records) + len(back.records) == 50, what="both read")
    assert stays.events.calls == events
    assert back.consumer.group_metadata().generation == generation


def test_a_second_member_with_the_same_instance_id_fences_the_first(rig: Rig) -> None:
    rig.topic(1)
    first = rig.polling(instance_id="twin")
    eventually(lambda: first.partitions, what="the first has the partition")
    second = rig.polling(instance_id="twin")
    eventually(lambda: second.partitions, what="the second has the partition")
    failure = eventually(lambda: first.failure, what="the first consumer fails")
    assert isinstance(failure, GroupFailed)
    assert failure.code == Errors.FENCED_INSTANCE_ID
    assert "'twin'; give each consumer an instance id of its own" in str(failure)


def test_heartbeats_continue_while_the_caller_works(rig: Rig) -> None:
    topic = rig.topic(2)
    rig.send(range(1))
    consumer = rig.consumer(session_timeout_s=2.0)
    consumer.subscribe([topic])
    take(consumer, 1)
    generation = consumer.group_metadata().generation
    time.sleep(3.0)  # work that is longer than the session time-out
    consumer.commit()
    assert consumer.group_metadata().generation == generation


def test_a_caller_that_does_not_poll_for_too_long_loses_its_partitions(rig: Rig) -> None:
    topic = rig.topic(2)
    rig.send(range(4))
    slow = rig.consumer(max_poll_interval_s=0.5, auto_commit=False)
    events = Events()
    slow.subscribe([topic], events)
    take(slow, 4)
    other = rig.polling()
    eventually(lambda: len(other.partitions) == 2, what="the other one has all partitions")
    with pytest.raises(CommitFailed, match="poll more often") as error:
        slow.commit()
    assert error.value.code == Errors.UNKNOWN_MEMBER_ID
    eventually(lambda: slow.poll(0.05) or len(slow.assignment) == 1, what="it is a member again")
    assert events.calls[:2] == [("assigned", {0, 1}), ("lost", {0, 1})]
    assert events.calls[-1][0] == "assigned"


def test_a_dead_members_partitions_are_reassigned_when_its_session_expires(rig: Rig) -> None:
    rig.topic(2)
    dies = rig.consumer(session_timeout_s=0.6, auto_commit=False)
    dies.subscribe([rig.name])
    eventually(lambda: dies.poll(0.05) or len(dies.assignment) == 2, what="the first has all partitions")
    dies._session.close()  # ends heartbeats without a LeaveGroup request
    heir = rig.polling()
    eventually(lambda: len(heir.partitions) == 2, what="the heir has all partitions")
    dies._session.subscription = None  # so that close() does not leave the group


def test_members_without_a_common_assignor_are_refused(rig: Rig) -> None:
    rig.topic(1)
    first = rig.polling(assignors=["range"])
    eventually(lambda: first.partitions, what="the first is a member")
    second = rig.polling(assignors=["sticky"])
    failure = eventually(lambda: second.failure, what="the second is refused")
    assert isinstance(failure, GroupFailed)
    assert failure.code == Errors.INCONSISTENT_GROUP_PROTOCOL
    assert "no assignor in common" in str(failure)


def test_a_session_time_out_that_the_broker_does_not_allow_is_refused(rig: Rig) -> None:
    rig.topic(1)
    consumer = rig.consumer(session_timeout_s=4000.0)
    consumer.subscribe([rig.name])
    with pytest.raises(GroupFailed, match=r"session_timeout_s is not between what .* allow"):
        eventually(lambda: consumer.poll(0.05), what="the refusal")


def test_unsubscribing_revokes_all_partitions(rig: Rig) -> None:
    rig.topic(2)
    consumer = rig.consumer()
    events = Events()
    consumer.subscribe([rig.name], events)
    eventually(lambda: consumer.poll(0.05) or len(consumer.assignment) == 2, what="all partitions")
    consumer.unsubscribe()
    assert consumer.assignment == frozenset()
    assert events.calls == [("assigned", {0, 1}), ("revoked", {0, 1})]
    with pytest.raises(ValueError, match="nothing is subscribed"):
        consumer.poll(0)
    heir = rig.polling()
    eventually(lambda: len(heir.partitions) == 2, what="another one has them at once")


def test_wrong_calls_raise_an_error_with_the_reason(rig: Rig) -> None:
    with pytest.raises(ValueError, match="group's name is empty"):
        rig.consumer(group="")
    with pytest.raises(ValueError, match="auto_offset_reset is 'first'; it can be earliest, latest, none"):
        rig.consumer(auto_offset_reset="first")
    with pytest.raises(ValueError, match="isolation is 'commited'; it can be read_uncommitted or read_committed"):
        rig.consumer(isolation="commited")
    with pytest.raises(ValueError, match="heartbeat_interval_s is 9; it must be above 0 and below session_timeout_s"):
        rig.consumer(heartbeat_interval_s=9)
    consumer = rig.consumer()
    with pytest.raises(ValueError, match="topics to subscribe are \\[\\]"):
        consumer.subscribe([])
    consumer.close()
    with pytest.raises(ValueError, match="is closed; make a new one"):
        consumer.poll()
