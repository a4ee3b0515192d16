"""Kafka's TransactionsCommand with the broker, compared with `kafkapy transactions`.

Both must show the same for the same transactions, and each must end hanging transactions that the other finds.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from kafkapy.client import Admin, Cluster, NewTopic
from kafkapy.protocol import apis
from kafkapy.record.batch import build
from tests.harness import brokers
from tests.harness.commands import kafkapy, kafkapy_json
from tests.harness.kafka_tools import KafkaTools, Said

pytestmark = pytest.mark.other_runtime

READ_COMMITTED = 1
LATEST = -1


class Bench:
    """A broker, Kafka's tools and `kafkapy transactions`."""

    def __init__(self, bootstrap: str, tools: KafkaTools) -> None:
        self.bootstrap = bootstrap
        self._tools = tools

    def kafka(self, *options: object) -> Said:
        """Run Kafka's command."""
        return self._tools.run(
            "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", self.bootstrap, *options
        )

    def kafka_table(self, *options: object) -> list[dict[str, str]]:
        """Return the rows of the table that Kafka's command prints, by its column names."""
        output = self.kafka(*options)
        assert output.code == 0, output
        head, *rows = ([cell.strip() for cell in line.split("\t")[:-1]] for line in output.out.splitlines() if line)
        return [dict(zip(head, row, strict=True)) for row in rows]

    def ours(self, *words: object) -> Said:
        """Run `kafkapy transactions ...`."""
        return kafkapy(self.bootstrap, "transactions", *words)

    def our_json(self, *words: object) -> Any:
        """Run `kafkapy transactions ... --json`. Return the parsed output."""
        return kafkapy_json(self.bootstrap, "transactions", *words)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    # Verification prevents hanging transactions. Without it, the tests can create one like old clients could.
    settings = {"transaction.partition.verification.enable": "false"}
    broker = brokers.start(tmp_path_factory.mktemp("transactions"), settings)
    tools = KafkaTools()
    try:
        yield Bench(broker.bootstrap, tools)
    finally:
        tools.close()
        broker.stop()


@pytest.fixture
def topic(bench: Bench, request: pytest.FixtureRequest) -> str:
    """Create a topic with three partitions."""
    name = str(request.function.__name__)
    with Admin(bench.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 3)])
    return name


@pytest.fixture
def begin(bench: Bench) -> Callable[..., Producer]:
    """Return a function that begins a transaction with a record in each of a topic's given partitions."""

    def make(transactional_id: str, topic: str, *partitions: int) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": bench.bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 300_000,
            }
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        for index in partitions:
            producer.produce(topic, b"in a transaction", partition=index)
        assert producer.flush(30) == 0
        return producer

    return make


def leave_hanging(bench: Bench, topic: str, partition: int) -> int:
    """Write a record of a transaction that no coordinator knows. Return the producer id."""
    with Cluster(bench.bootstrap) as cluster:
        connection = cluster.connection(cluster.leader_of(topic, partition))
        request = apis.INIT_PRODUCER_ID.Request(transactional_id=None, transaction_timeout_ms=1000)
        response = connection.call(apis.INIT_PRODUCER_ID, request)
        batch = build(
            [(round(time.time() * 1000), None, b"left alone", ())],
            producer_id=response.producer_id,
            producer_epoch=response.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        shape = apis.PRODUCE.Request
        topics = [
            shape.TopicData(name=topic, partition_data=[shape.TopicData.PartitionData(index=partition, records=batch)])
        ]
        answer = connection.call(
            apis.PRODUCE, shape(transactional_id="nobody", acks=-1, timeout_ms=30_000, topic_data=topics)
        )
        assert answer.responses[0].partition_responses[0].error_code == 0
        return int(response.producer_id)


def stable_offset(bench: Bench, topic: str, partition: int) -> int:
    """Return the last stable offset."""
    with Cluster(bench.bootstrap) as cluster:
        shape = apis.LIST_OFFSETS.Request
        asked = shape.Topics(
            name=topic, partitions=[shape.Topics.Partitions(partition_index=partition, timestamp=LATEST)]
        )
        request = shape(replica_id=-1, isolation_level=READ_COMMITTED, topics=[asked])
        answer = cluster.connection(cluster.leader_of(topic, partition)).call(apis.LIST_OFFSETS, request)
        return int(answer.topics[0].partitions[0].offset)


def test_both_list_the_same_transactions(bench: Bench, topic: str, begin: Callable[..., Producer]) -> None:
    begin("list-committed", topic, 0).commit_transaction(30)
    ongoing = begin("list-ongoing", topic, 1)
    theirs = {
        (row["TransactionalId"], row["Coordinator"], row["ProducerId"], row["TransactionState"])
        for row in bench.kafka_table("list")
    }
    ours = bench.our_json("list")
    assert theirs == {
        (one["transactionalId"], str(one["coordinator"]), str(one["producerId"]), one["state"]) for one in ours
    }
    states = {one["transactionalId"]: one["state"] for one in ours}
    assert (states["list-committed"], states["list-ongoing"]) == ("CompleteCommit", "Ongoing")
    assert [one["transactionalId"] for one in bench.our_json("list", "--state", "ongoing")] == ["list-ongoing"]
    assert bench.kafka_table("list", "--duration-filter", 3_600_000) == []
    assert bench.our_json("list", "--longer-than", "1h") == []
    ongoing.abort_transaction(30)


def test_both_describe_the_same_transaction(bench: Bench, topic: str, begin: Callable[..., Producer]) -> None:
    producer = begin("described", topic, 0, 2)
    (theirs,) = bench.kafka_table("describe", "--transactional-id", "described")
    (ours,) = bench.our_json("describe", "described")
    assert set(theirs["TopicPartitions"].split(",")) == {f"{topic}-0", f"{topic}-2"}
    assert [(one["topic"], one["partition"]) for one in ours["partitions"]] == [(topic, 0), (topic, 2)]
    for column, key in {
        "CoordinatorId": "coordinator",
        "ProducerId": "producerId",
        "ProducerEpoch": "producerEpoch",
        "TransactionState": "state",
        "TransactionTimeoutMs": "timeoutMs",
        "CurrentTransactionStartTimeMs": "startedMs",
    }.items():
        assert theirs[column] == str(ours[key]), column
    assert (ours["state"], ours["timeoutMs"]) == ("Ongoing", 300_000)
    assert f"{topic}:0,2" in bench.ours("describe").out
    producer.abort_transaction(30)
    (theirs,) = bench.kafka_table("describe", "--transactional-id", "described")
    (ours,) = bench.our_json("describe", "described")
    assert theirs["TransactionState"] == ours["state"] == "CompleteAbort"
    assert (theirs["TopicPartitions"], ours["partitions"]) == ("", [])


def test_both_report_a_missing_transactional_id(bench: Bench) -> None:
    output = bench.kafka("describe", "--transactional-id", "nobody-knows")
    assert output.code == 1
    assert "could not be found" in output.err
    assert bench.ours("describe", "nobody-knows") == Said(
        1, "", "kafkapy: there is no transactional id 'nobody-knows'.\n"
    )
    assert bench.ours("abort", "nobody-knows").err == "kafkapy: there is no transactional id 'nobody-knows'.\n"


def test_both_describe_the_same_producers(bench: Bench, topic: str, begin: Callable[..., Producer]) -> None:
    begin("producer-done", topic, 0).commit_transaction(30)
    ongoing = begin("producer-ongoing", topic, 0, 1)
    for index in range(3):
        theirs = bench.kafka_table("describe-producers", "--topic", topic, "--partition", index)
        ours = bench.our_json("describe-producers", topic, "--partition", index)
        assert len(ours) == (2, 1, 0)[index]
        assert sorted(tuple(row.values()) for row in theirs) == sorted(
            (
                str(one["producerId"]),
                str(one["producerEpoch"]),
                str(one["coordinatorEpoch"]),
                str(one["lastSequence"]),
                str(one["lastTimestamp"]),
                "None" if one["transactionStartOffset"] is None else str(one["transactionStartOffset"]),
            )
            for one in ours
        )
    opened = {(one["partition"], one["transactionStartOffset"]) for one in bench.our_json("describe-producers", topic)}
    assert opened == {(0, None), (0, 2), (1, 0)}
    ongoing.abort_transaction(30)


def test_both_find_hanging_transactions_and_each_can_end_them(
    bench: Bench, topic: str, begin: Callable[..., Producer]
) -> None:
    ongoing = begin("does-not-hang", topic, 0)
    producers = {index: leave_hanging(bench, topic, index) for index in (0, 1)}

    def hanging() -> set[tuple[int, int, int]]:
        theirs = bench.kafka_table("find-hanging", "--topic", topic, "--max-transaction-timeout", 0)
        ours = bench.our_json("find-hanging", topic, "--older-than", "0s")
        found = {(one["partition"], one["producerId"], one["transactionStartOffset"]) for one in ours}
        assert found == {(int(row["Partition"]), int(row["ProducerId"]), int(row["StartOffset"])) for row in theirs}
        return found

    assert hanging() == {(0, producers[0], 1), (1, producers[1], 0)}
    assert (
        f"abort --topic {topic} --partition 0 --start-offset 1\n"
        in bench.ours("find-hanging", "--older-than", "0s").out
    )
    assert bench.ours("find-hanging", topic).out == "No transaction hangs in 3 partitions.\n"
    assert stable_offset(bench, topic, 1) == 0
    assert bench.kafka("abort", "--topic", topic, "--partition", 1, "--start-offset", 0).code == 0
    assert stable_offset(bench, topic, 1) == 2
    assert hanging() == {(0, producers[0], 1)}
    output = bench.ours("abort", "--topic", topic, "--partition", 0, "--start-offset", 1)
    assert output == Said(0, f"Aborted the transaction at 1 in {topic}:0.\n", "")
    assert hanging() == set()
    ongoing.commit_transaction(30)
    assert stable_offset(bench, topic, 0) == 4  # a record and a marker of each transaction


def test_transactions_that_do_not_hang_are_not_aborted(
    bench: Bench, topic: str, begin: Callable[..., Producer]
) -> None:
    producer = begin("whole", topic, 0, 1)
    output = bench.ours("abort", "--topic", topic, "--partition", 0, "--start-offset", 0)
    assert (output.code, output.out) == (1, "")
    assert "does not hang: transactional id 'whole' is Ongoing; `kafkapy transactions abort whole` aborts" in output.err
    producer.commit_transaction(30)
    for command in (
        bench.kafka("abort", "--topic", topic, "--partition", 0, "--start-offset", 0),
        bench.ours("abort", "--topic", topic, "--partition", 0, "--start-offset", 0),
    ):
        assert command.code == 1
        assert "open transaction" in command.err


def test_a_transaction_is_aborted_by_its_id_and_its_producer_is_fenced(
    bench: Bench, topic: str, begin: Callable[..., Producer]
) -> None:
    producer = begin("fenced", topic, 0, 2)
    output = bench.ours("abort", "fenced")
    assert output == Said(0, f"Aborted the transaction of fenced in {topic}:0,2; its producer is fenced.\n", "")
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(30)
    assert refused.value.args[0].name() == "_FENCED"
    assert [stable_offset(bench, topic, index) for index in (0, 2)] == [2, 2]
    (described,) = bench.our_json("describe", "fenced")
    assert (described["partitions"], described["timeoutMs"]) == ([], 300_000)
    assert "has no open transaction" in bench.ours("abort", "fenced").err
