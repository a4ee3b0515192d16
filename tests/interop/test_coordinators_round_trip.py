"""Groups and transactions of Kafka 3.9.1 continue in kafkapy, and then in Kafka again, with members, offsets, and the
transactions that were open or only prepared when the broker stopped."""

import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkapy.client.administration.group_admin import GroupAdmin
from kafkapy.client.administration.txn_admin import TransactionAdmin, TransactionDescription
from kafkapy.client.cluster import Cluster
from kafkapy.coordinator.offset_records import decode_key
from kafkapy.coordinator.shards import partition_of
from kafkapy.coordinator.transaction_records import STATES, TransactionState, encode_key, encode_state
from kafkapy.protocol import apis
from kafkapy.record.batch import records_of
from tests.harness.batches import iter_batches
from tests.harness.brokers import QUICK, Broker, KafkaBroker, KafkapyBroker, free_port, kafkapy_command
from tests.harness.clients.confluent import Confluent
from tests.harness.consumed import consumed
from tests.harness.group_wire import GroupWire, commit_of

pytestmark = pytest.mark.other_runtime

PATIENCE_S = 60
TOPIC, PARTITIONS = "flights", 4
SETTINGS = {**QUICK, "log.cleaner.backoff.ms": "100", "offsets.retention.check.interval.ms": "600000"}


class Member:
    """A consumer that runs while one broker replaces another on the same port."""

    def __init__(self, bootstrap: str, group: str, instance: str | None) -> None:
        self.assignments: list[list[int]] = []
        own = {"group.instance.id": instance} if instance else {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "session.timeout.ms": 45_000,
                "auto.commit.interval.ms": 200,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                **own,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._assigned)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments.append(sorted(one.partition for one in partitions))

    def _run(self) -> None:
        while not self._stopping:
            self._consumer.poll(0.1)

    def close(self) -> None:
        self._stopping = True
        self._thread.join(30)
        self._consumer.close()


def until(look: Any, wanted: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (found := look()) != wanted:
        assert time.monotonic() < deadline, f"{found} is not {wanted}"
        time.sleep(0.1)


def admin_of(broker: Broker) -> Cluster:
    return Cluster(broker.bootstrap)


def groups_of(broker: Broker) -> dict[str, Any]:
    """Return state, protocol, members and offsets of all groups, from admin requests."""
    with admin_of(broker) as cluster:
        admin = GroupAdmin(cluster)
        names = [one.id for one in admin.list_groups()]
        offsets = admin.offsets(names)
        return {
            name: (one.state, one.protocol_type, one.protocol, sorted(one.members, key=lambda m: m.id), offsets[name])
            for name, one in admin.describe(names).items()
            if not isinstance(one, Exception)
        }


def transactions_of(broker: Broker) -> dict[str, str]:
    with admin_of(broker) as cluster:
        return {one.id: one.state for one in TransactionAdmin(cluster).list_transactions()}


def description(broker: Broker, name: str) -> TransactionDescription:
    with admin_of(broker) as cluster:
        found = TransactionAdmin(cluster).describe([name])[name]
    assert isinstance(found, TransactionDescription)
    return found


def offset_of(broker: Broker, group: str, partition: int) -> int | None:
    with admin_of(broker) as cluster:
        offsets = GroupAdmin(cluster).offsets([group])[group]
    assert isinstance(offsets, dict)
    found = offsets.get((TOPIC, partition))
    return None if found is None else found.offset


def committed_values(broker: Broker) -> set[bytes | None]:
    read = consumed(broker.bootstrap, [(TOPIC, index) for index in range(PARTITIONS)], "read_committed")
    return {one.value for part in read.values() for one in part.records}


def produce(bootstrap: str, prefix: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        producer.produce(TOPIC, f"{prefix} {number}".encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def begun(bootstrap: str, name: str, partition: int, timeout_ms: int = 900_000) -> Producer:
    """Begin a transaction with a record, whose value is the name, and an offset of the group with this name."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    producer.init_transactions(PATIENCE_S)
    begin(bootstrap, producer, name, partition)
    return producer


def begin(bootstrap: str, producer: Producer, name: str, partition: int) -> None:
    producer.begin_transaction()
    producer.produce(TOPIC, name.encode(), partition=partition)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name.partition("/")[0]})
    offset = [TopicPartition(TOPIC, partition, 7)]
    producer.send_offsets_to_transaction(offset, consumer.consumer_group_metadata(), PATIENCE_S)
    consumer.close()
    assert producer.flush(30) == 0


def prepare_commit(broker: Broker, name: str) -> None:
    """Write the state PrepareCommit, as if the broker had stopped between the decision and the first marker."""
    open_one = description(broker, name)
    by_topic: dict[str, list[int]] = {}
    for topic, index in open_one.partitions:
        by_topic.setdefault(topic, []).append(index)
    now = int(time.time() * 1000)
    prepared = TransactionState(
        open_one.producer_id,
        open_one.producer_epoch,
        open_one.timeout_ms,
        STATES.index("PrepareCommit"),
        tuple((topic, tuple(indices)) for topic, indices in by_topic.items()),
        now,
        open_one.started_ms or now,
    )
    # Both brokers allow writes to internal topics with this client id.
    writer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "__admin_client"})
    index = partition_of(name, int(SETTINGS["transaction.state.log.num.partitions"]))
    writer.produce("__transaction_state", encode_state(prepared), encode_key(name), partition=index)
    assert writer.flush(30) == 0


class Left:
    """Transactions at a broker's stop: one that continues, one past its time-out, and one that is only prepared."""

    def __init__(self, broker: Broker, kind: str) -> None:
        self.open, self.late, self.prepared = (f"{name}/{kind}" for name in ("open", "late", "prepared"))
        self.producer = begun(broker.bootstrap, self.open, 0)
        self._idle = [begun(broker.bootstrap, self.prepared, 1), begun(broker.bootstrap, self.late, 2, 5_000)]
        prepare_commit(broker, self.prepared)
        self.before = groups_of(broker)

    def continue_at(self, broker: Broker) -> None:
        """Finish the transactions with the next broker."""
        until(lambda: transactions_of(broker)[self.prepared], "CompleteCommit")
        until(lambda: transactions_of(broker)[self.late], "CompleteAbort")
        assert transactions_of(broker)[self.open] == "Ongoing"
        assert offset_of(broker, "open", 0) is None
        assert offset_of(broker, "late", 2) is None
        until(lambda: offset_of(broker, "prepared", 1), 7)  # Kafka commits the offset a moment after its markers
        self.producer.commit_transaction(PATIENCE_S)
        until(lambda: transactions_of(broker)[self.open], "CompleteCommit")
        until(lambda: offset_of(broker, "open", 0), 7)
        values = committed_values(broker)
        assert {self.open.encode(), self.prepared.encode()} <= values
        assert self.late.encode() not in values
        with admin_of(broker) as cluster:
            admin = GroupAdmin(cluster)
            assert admin.delete(["open", "prepared"]) == {"open": None, "prepared": None}


def fill(broker: KafkaBroker) -> None:
    client = Confluent(broker.bootstrap)
    client.create_topic(TOPIC, PARTITIONS, {})
    client.close()
    produce(broker.bootstrap, "first")
    wire = GroupWire(broker.bootstrap)
    for group in ("offsets", "expired", "deleted"):
        wire.find_coordinator(group)
    wire.commit("offsets", {(TOPIC, 0): (5, "with metadata"), (TOPIC, 1): 6})
    commit = apis.OFFSET_COMMIT.Request
    offset = commit.Topics.Partitions(partition_index=0, committed_offset=5, committed_metadata="")
    topics = [commit.Topics(name=TOPIC, partitions=[offset])]
    kept_for_1_ms = commit(
        group_id="expired", generation_id_or_member_epoch=-1, member_id="", retention_time_ms=1, topics=topics
    )
    wire.call(apis.OFFSET_COMMIT, 2, kept_for_1_ms)
    wire.commit("deleted", {(TOPIC, 0): 5})
    wire.close()
    with admin_of(broker) as cluster:
        assert GroupAdmin(cluster).delete(["deleted"]) == {"deleted": None}


def commit_together(broker: KafkapyBroker, partitions: int) -> None:
    """Commit offsets until a batch of the log has commits of several groups, whose requests came in one turn."""
    wires = [GroupWire(broker.bootstrap) for _ in range(24)]
    groups = [name for name in (f"together-{n}" for n in range(200)) if partition_of(name, partitions) == 0]
    for group in groups:
        wires[0].find_coordinator(group)
    offset = 0

    def of_several() -> bool:
        nonlocal offset
        offset += 1
        for number, wire in enumerate(wires):
            wire.send(apis.OFFSET_COMMIT, 8, commit_of(groups[number % len(groups)], {(TOPIC, 0): (offset, "")}))
        for wire in wires:
            assert wire.receive(apis.OFFSET_COMMIT, 8)[1].topics[0].partitions[0].error_code == 0
        written = b"".join(one.read_bytes() for one in sorted((broker.data / "__consumer_offsets-0").glob("*.log")))
        keys = ([decode_key(one.key) for one in records_of(written, batch)] for batch in iter_batches(written))
        return any(len({key.group for key in batch if key is not None}) > 1 for batch in keys)

    until(of_several, True)
    for wire in wires:
        wire.close()


def same_groups(before: dict[str, Any], broker: Broker, *gone: str) -> None:
    names = before.keys() - {"prepared", "late", *gone}
    if broker.kind == "kafka":  # lists no groups before it gets its leaderships
        until(lambda: names <= groups_of(broker).keys(), True)
    after = groups_of(broker)
    for name in names:
        *then, committed = before[name]
        *now, found = after[name]
        assert now == then
        if name == "live":  # its members may have committed further offsets since
            assert found.keys() == committed.keys()
            assert all(found[key].offset >= committed[key].offset for key in committed)
        else:
            assert found == committed
    assert "deleted" not in after


def reads_on(members: list[Member], broker: Broker, prefix: str) -> None:
    """Check that new records are read and committed by the same members in the same generation."""
    produce(broker.bootstrap, prefix)
    ends = ends_of(broker)
    until(lambda: [offset_of(broker, "live", index) for index in range(PARTITIONS)], ends)
    assert sorted(one for member in members for one in member.assignments) == [[0, 1], [2, 3]]


def ends_of(broker: Broker) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    found = [consumer.get_watermark_offsets(TopicPartition(TOPIC, index), 30)[1] for index in range(PARTITIONS)]
    consumer.close()
    return found


def test_kafka_then_kafkapy_then_kafka(tmp_path: Path) -> None:
    port = free_port()
    broker: Broker
    broker = kafka = KafkaBroker(tmp_path, SETTINGS, port=port)
    fill(kafka)
    members = [Member(kafka.bootstrap, "live", "the first")]
    members.append(Member(kafka.bootstrap, "live", None))
    until(lambda: sorted(member.assignments[-1] for member in members if member.assignments), [[0, 1], [2, 3]])
    for member in members:
        del member.assignments[:-1]
    reads_on(members, kafka, "second")
    left = Left(kafka, "kafka")
    assert "expired" in left.before
    kafka.stop_broker()
    adopted = subprocess.run(
        [*kafkapy_command(), "log", "adopt", str(kafka.data), "--zookeeper", kafka.zookeeper],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    kafka.stop()
    assert (adopted.returncode, adopted.stderr) == (0, "")

    # Without the settings for numbers of partitions, since those of the existing topics count.
    own = {name: value for name, value in SETTINGS.items() if not name.endswith("num.partitions")}
    own["offsets.retention.check.interval.ms"] = "300"
    broker = kafkapy = KafkapyBroker(tmp_path, own, port=port)
    same_groups(left.before, broker, "expired")
    until(lambda: "expired" in groups_of(kafkapy), False)
    left.continue_at(broker)
    reads_on(members, broker, "third")
    commit_together(kafkapy, int(SETTINGS["offsets.topic.num.partitions"]))
    left = Left(broker, "kafkapy")
    broker.stop()

    broker = KafkaBroker(tmp_path, SETTINGS, port=port)
    same_groups(left.before, broker)
    assert "expired" not in groups_of(broker)
    left.continue_at(broker)
    reads_on(members, broker, "fourth")
    for member in members:
        member.close()
    broker.stop()
