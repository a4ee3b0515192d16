"""`kafkapy groups` and `kafkapy consume --zookeeper` with a broker of Kafka 0.8.2.2, its consumer, which keeps its
offsets in Kafka, and its ConsumerOffsetChecker."""

import json
from collections import Counter
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kafkapy.client import KeyedMessage, Producer
from kafkapy.tools.main import main
from tests.harness.broker_08 import Kafka08Broker
from tests.harness.original import Member, kafka
from tests.harness.waiting import eventually

GROUP, TOPIC = "old", "flights"
IN_KAFKA = {"offsets.storage": "kafka", "dual.commit.enabled": "false"}


def test_a_group_of_kafka_08(connect: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    def run(*words: object) -> str:
        capfdbinary.readouterr()
        code = main([*map(str, words), "--zookeeper", connect])
        out, err = capfdbinary.readouterr()
        assert (code, err) == (0, b"")
        return out.decode()

    def described() -> list[tuple[str, ...]]:
        """Return topic, partition, committed, end, lag and owner of each row of `kafkapy groups describe`."""
        (found,) = json.loads(run("groups", "describe", GROUP, "--json"))
        keys = ("topic", "partition", "committed", "end", "lag", "owner")
        return [tuple(str(row[key]) for key in keys) for row in found["offsets"]]

    _make_chroot(connect)
    broker = Kafka08Broker(tmp_path / "broker", connect)
    member = None
    try:
        with Producer({"metadata.broker.list": broker.bootstrap, "request.required.acks": "1"}) as producer:
            for number in range(30):
                producer.send(KeyedMessage(TOPIC, b"%d" % number, b"%d" % number))
        member = Member("0.8.2.2", tmp_path, connect, GROUP, "m", TOPIC, **IN_KAFKA)
        member.wait_until_ready()
        eventually(lambda: len(member.seen) == 30 and {row[4] for row in described()} == {"0"}, seconds=40)
        ours = described()
        theirs = kafka("0.8.2.2", "kafka.tools.ConsumerOffsetChecker", "--zookeeper", connect, "--group", GROUP)
        assert ours == [tuple(line.split()[1:]) for line in theirs.splitlines() if line.startswith(GROUP)]
        member.leave()

        words = ("reset-offsets", GROUP, "--topic", TOPIC, "--to-offset", 4)
        assert run("groups", *words, "--execute").endswith("Committed 3 offsets.\n")
        assert [row[2:5] for row in described()] == [("4", row[3], str(int(row[3]) - 4)) for row in ours]
        assert Counter(run("consume", TOPIC).split()) == Counter(str(number) for number in range(30))
        properties = tmp_path / "consumer.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in IN_KAFKA.items()))
        printed = run("consume", TOPIC, "--group", GROUP, "--consumer-config", properties)
        assert len(printed.split()) == 30 - 3 * 4
        assert {row[4] for row in described()} == {"0"}
    finally:
        if member is not None:
            member.kill()
        broker.stop()


def _make_chroot(connect: str) -> None:
    """Create the chroot, of which Kafka 0.8 would create only one level."""
    servers, _, path = connect.partition("/")
    zk = KazooClient(servers)
    zk.start()
    zk.ensure_path(f"/{path}")
    zk.stop()
    zk.close()
