"""Unmodified producers, consumers and the mirror of Kafka 0.7.2 work with kafkapy brokers.

KAFKAPY_KAFKA_07 is the class path of a Kafka 0.7.2 built from source: see tests.harness.broker_07.
"""

import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kafkapy.client.original.producing.producer import Producer
from kafkapy.client.original.producing.producer_messages import KeyedMessage
from tests.harness import toolchain
from tests.harness.broker_07 import REAL, AnyBroker07, Broker07, RealBroker07, free_port
from tests.harness.brokers import LOG4J, Process
from tests.harness.waiting import eventually

pytestmark = pytest.mark.skipif(not REAL, reason="KAFKAPY_KAFKA_07 names no Kafka 0.7.2")

LINES = [f"line {number}" for number in range(300)]


def java(tmp_path: Path, name: str) -> list[str]:
    log4j = tmp_path / f"{name}.log4j"
    log4j.write_text(LOG4J)
    return [toolchain.find("java"), "-Xmx128m", "-XX:TieredStopAtLevel=1", f"-Dlog4j.configuration=file:{log4j}",
            "-cp", REAL]  # fmt: skip


def produce(tmp_path: Path, connect: str, lines: Sequence[str], *options: str) -> None:
    command = [*java(tmp_path, "producer"), "kafka.producer.ConsoleProducer", "--zookeeper", connect, "--topic", "sent"]
    text = "".join(f"{line}\n" for line in lines)
    running = subprocess.Popen([*command, *options], stdin=subprocess.PIPE, text=True)
    try:
        running.communicate(text, timeout=60 if "--sync" in options else 4)
    except subprocess.TimeoutExpired:  # without --sync, the tool's sending thread never ends, but has sent everything
        assert "--sync" not in options
    finally:
        running.kill()
        running.wait()


def consume(tmp_path: Path, connect: str, group: str) -> Process:
    command = [*java(tmp_path, group), "kafka.consumer.ConsoleConsumer", "--zookeeper", connect, "--group", group]
    return Process([*command, "--whitelist", "sent", "--from-beginning"], tmp_path / f"{group}.log")


def lines_of(*consumers: Process) -> Counter[str]:
    return Counter(line for one in consumers for line in one.lines if line.startswith("line "))


@pytest.fixture
def started(zk: KazooClient, connect: str, tmp_path: Path):  # type: ignore[no-untyped-def]
    brokers: list[AnyBroker07] = []

    def start(kind: type[Broker07] | type[RealBroker07] = Broker07, broker_id: int = 8, where: str = connect):  # type: ignore[no-untyped-def]
        directory = tmp_path / f"data-{len(brokers)}"
        broker = kind(directory, where, {"sent": 2}, free_port(), brokerid=str(broker_id))
        brokers.append(broker)
        return broker

    yield start
    for broker in brokers:
        broker.stop()


@pytest.mark.parametrize("options", [(), ("--sync",), ("--compress",)])
def test_what_its_producer_sends_its_consumer_receives(started, connect, tmp_path, options) -> None:  # type: ignore[no-untyped-def]
    started()
    produce(tmp_path, connect, LINES, *options)
    consumer = consume(tmp_path, connect, "group")
    try:
        eventually(lambda: lines_of(consumer) == Counter(LINES), seconds=30)
        with Producer({"zk.connect": connect, "serializer.class": "kafka.serializer.StringEncoder"}) as producer:
            producer.send([KeyedMessage("sent", f"line of {number}") for number in range(10)])
        eventually(lambda: lines_of(consumer).total() == len(LINES) + 10, seconds=30)
    finally:
        consumer.kill()


def test_a_broker_of_each_kind_is_in_one_cluster(started, zk, connect, tmp_path) -> None:  # type: ignore[no-untyped-def]
    started(Broker07, 8)
    started(RealBroker07, 9)
    eventually(lambda: zk.exists("/brokers/ids") and sorted(zk.get_children("/brokers/ids")) == ["8", "9"], seconds=30)
    both = ({"8", "9"},)
    for round_number in range(20):  # a producer picks a broker for each batch
        produce(tmp_path, connect, LINES[round_number::20], "--sync")
        if zk.exists("/brokers/topics/sent") and (set(zk.get_children("/brokers/topics/sent")),) == both:
            LINES_SENT = [line for number in range(round_number + 1) for line in LINES[number::20]]
            break
    consumers = [consume(tmp_path, connect, "group")]
    try:
        eventually(lambda: lines_of(*consumers) == Counter(LINES_SENT), seconds=30)
    finally:
        for one in consumers:
            one.kill()


def test_its_mirror_copies_from_and_to_kafkapy(started, zk, connect, tmp_path) -> None:  # type: ignore[no-untyped-def]
    zk.ensure_path("/source")
    zk.ensure_path("/target")
    started(Broker07, 8, f"{connect}/source")
    started(Broker07, 8, f"{connect}/target")
    produce(tmp_path, f"{connect}/source", LINES, "--sync")
    (tmp_path / "consumer.properties").write_text(
        f"zk.connect={connect}/source\ngroupid=mirror\nautooffset.reset=smallest\n"
    )
    (tmp_path / "target.properties").write_text(f"zk.connect={connect}/target\nproducer.type=sync\n")
    options = ["--consumer.config", str(tmp_path / "consumer.properties"), "--producer.config"]
    command = [*java(tmp_path, "mirror"), "kafka.tools.MirrorMaker", *options, str(tmp_path / "target.properties")]
    mirror = Process([*command, "--whitelist", "sent"], tmp_path / "mirror.log")
    consumer = None
    try:
        eventually(lambda: zk.exists("/target/brokers/topics/sent/8"), seconds=60)
        consumer = consume(tmp_path, f"{connect}/target", "group")
        eventually(lambda: lines_of(consumer) == Counter(LINES), seconds=60)
    finally:
        mirror.kill()
        if consumer is not None:
            consumer.kill()
