"""The original consumer on a cluster of Kafka 0.7: znodes, wire protocol and byte offsets."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkapy.client.errors import UnsupportedByBroker
from kafkapy.client.original.consuming.connector import ConsumerConnector
from kafkapy.client.original.errors import ConsumerTimeout
from kafkapy.client.original.filters import Whitelist
from kafkapy.errors import Errors, KafkaError
from kafkapy.runtime.config_def import ConfigError
from tests.harness.golden_07 import GOLDEN_07, TOPICS_07, expected
from tests.harness.waiting import eventually
from tests.harness.zookeeper import PATIENT_MS

Open = Callable[..., ConsumerConnector]


@pytest.fixture
def consumer(connect: str, broker_07: object) -> Iterator[Open]:
    opened: list[ConsumerConnector] = []

    def opener(**settings: str) -> ConsumerConnector:
        given = {"zk.connect": connect, "groupid": "g", "zk.sessiontimeout.ms": str(PATIENT_MS)}
        given |= {"rebalance.backoff.ms": "100", "autooffset.reset": "smallest", "consumer.timeout.ms": "10000"}
        connector = ConsumerConnector(given | {name.replace("_", "."): value for name, value in settings.items()})
        opened.append(connector)
        return connector

    yield opener
    for connector in opened:
        connector.shutdown()


def test_every_message_has_its_byte_offset(consumer: Open) -> None:
    wanted = {topic: expected(f"{topic}-0") for topic in TOPICS_07}
    streams = consumer(fetch_size="2000").create_message_streams(dict.fromkeys(TOPICS_07, 1))
    for topic, (stream,) in streams.items():
        got = [next(stream) for _ in wanted[topic]]
        assert [(one.offset, one.value) for one in got] == [(offset, payload) for offset, _, payload in wanted[topic]]
        assert {(one.topic, one.partition, one.key, one.timestamp) for one in got} == {(topic, 0, None, -1)}


def test_members_register_and_own_partitions_as_consumers_of_0_7_do(consumer: Open, zk: KazooClient) -> None:
    golden = {
        one["path"]: one["data"] for one in map(json.loads, (GOLDEN_07 / "znodes.jsonl").read_text().splitlines())
    }
    for name in ("one", "two"):
        consumer(groupid="group-a", consumerid=name).create_message_streams({"two-partitions": 1})
    consumer(groupid="group-white", consumerid="three").create_message_streams_by_filter(Whitelist("(gzip|none)"), 2)
    named = {path: data for path, data in golden.items() if re.search("/(ids|owners)/.*[^/]+$", path)}
    wanted = {path: data for path, data in named.items() if path.startswith("/consumers") and data is not None}
    assert len(wanted) == 7
    eventually(lambda: {path: text_at(zk, path) for path in wanted} == wanted)


def test_committed_offsets_are_just_behind_the_delivered_messages(consumer: Open, zk: KazooClient) -> None:
    wanted = {partition: expected(f"two-partitions-{partition}") for partition in (0, 1)}
    first = consumer(autocommit_enable="false")
    (stream,) = first.create_message_streams({"two-partitions": 1})["two-partitions"]
    taken: Counter[int] = Counter()
    for _ in range(sum(map(len, wanted.values()))):
        record = next(stream)
        assert (record.offset, record.value) == wanted[record.partition][taken[record.partition]][::2]
        taken[record.partition] += 1
        first.commit_offsets()
        # Within a compressed message, the start of that message is committed, so that a consumer can resume there.
        rest = wanted[record.partition][taken[record.partition] :]
        after = rest[0][0] if rest else wanted[record.partition][-1][1]
        assert text_at(zk, f"/consumers/g/offsets/two-partitions/8-{record.partition}") == str(after)
    first.shutdown()
    (stream,) = consumer(consumer_timeout_ms="300").create_message_streams({"two-partitions": 1})["two-partitions"]
    with pytest.raises(ConsumerTimeout):
        next(stream)


def test_a_member_resumes_where_the_last_consumer_of_0_7_stopped(consumer: Open, zk: KazooClient) -> None:
    wanted = expected("none-0")
    middle = wanted[len(wanted) // 2][0]
    zk.create("/consumers/g/offsets/none/8-0", str(middle).encode(), makepath=True)
    (stream,) = consumer().create_message_streams({"none": 1})["none"]
    assert next(stream).offset == middle


def test_an_offset_that_is_gone_is_reset_as_the_setting_says(consumer: Open, zk: KazooClient) -> None:
    zk.create("/consumers/g/offsets/none/8-0", b"99999999", makepath=True)
    (stream,) = consumer().create_message_streams({"none": 1})["none"]
    assert next(stream).offset == 0


def test_a_message_larger_than_a_fetch_raises_an_error(consumer: Open) -> None:
    (stream,) = consumer(fetch_size="20").create_message_streams({"gzip": 1})["gzip"]
    with pytest.raises(KafkaError, match=r"gzip-8-0 at offset 0 has a message of \d+ bytes .* larger than 20"):
        next(stream)


def test_an_invalid_message_raises_an_error_with_its_position(consumer: Open, data_07: Path) -> None:
    segment = data_07 / "none-0" / f"{0:020}.kafka"
    stored = bytearray(segment.read_bytes())
    (at, _, _), *_ = expected("none-0")[1:]
    stored[at + 8] ^= 1  # a bit of the CRC
    segment.write_bytes(stored)
    (stream,) = consumer().create_message_streams({"none": 1})["none"]
    assert next(stream).offset == 0
    with pytest.raises(KafkaError, match=f"none-8-0 at offset {at}: .* has CRC") as raised:
        next(stream)
    assert raised.value.code == Errors.CORRUPT_MESSAGE


def test_broken_znodes_of_0_7_are_logged_and_the_others_are_used(
    consumer: Open, zk: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    zk.create("/brokers/ids/1", b"nonsense")
    zk.create("/brokers/topics/none/1", b"few")
    (stream,) = consumer().create_message_streams({"none": 1})["none"]
    assert next(stream).offset == 0
    for path in ("/brokers/ids/1", "/brokers/topics/none/1"):
        assert f"{path} in ZooKeeper is ignored: " in caplog.text


def test_settings_that_0_7_does_not_have_are_refused(consumer: Open) -> None:
    with pytest.raises(ConfigError, match=r"offsets\.storage=kafka: must be zookeeper for brokers of Kafka 0\.7"):
        consumer(offsets_storage="kafka")
    member = consumer()
    with pytest.raises(UnsupportedByBroker, match=r"Kafka 0\.7"):
        member.open_cluster()


def text_at(zk: KazooClient, path: str) -> str | None:
    try:
        return zk.get(path)[0].decode()
    except NoNodeError:
        return None
