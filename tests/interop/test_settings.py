"""Clients exchange records with other broker settings, too: copy path, threads, addresses, flushes, directories."""

import os
import time
from pathlib import Path

import pytest

from tests.harness.brokers import KafkapyBroker
from tests.harness.clients.base import Record
from tests.harness.clients.registry import KINDS
from tests.harness.scenario import KEEP, PARTITIONS, assert_same, end_offsets, records_for

pytestmark = pytest.mark.other_runtime

SETTINGS = {
    "without sendfile": {"kafkapy.zero.copy.enable": "false"},
    "three network threads": {"num.network.threads": "3"},
    "ipv6": {"listeners": "PLAINTEXT://[::1]:0"},
    "a listener of another name": {
        "listeners": "INSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    },
    "a flush for every record": {"log.flush.interval.messages": "1"},
    "two data directories": {},
}


@pytest.mark.parametrize("case", SETTINGS)
def test_clients_exchange_records(case: str, tmp_path: Path) -> None:
    settings = dict(SETTINGS[case])
    if case == "two data directories":
        settings["log.dirs"] = f"{tmp_path}/one,{tmp_path}/two"
    broker = KafkapyBroker(tmp_path, settings)
    clients = [KINDS[name](broker.bootstrap) for name in ("confluent-kafka", "kafka-python", "franz-go")]
    try:
        for number, writer in enumerate(clients):
            topic, since = f"by-{writer.name}", int(time.time() * 1000)
            writer.create_topic(topic, PARTITIONS, {**KEEP, "max.message.bytes": str(4 << 20)})
            sent = records_for(writer, f"{case} {number}")
            writer.produce(topic, sent, codec=("none", "lz4", "zstd")[number], idempotent=True)
            end = end_offsets(sent)
            for reader in clients:
                got = reader.fetch(topic, dict.fromkeys(end, 0), end)
                assert_same(sent, got, reader=reader, since_ms=since)
            big = os.urandom(1 << 20)
            writer.produce(topic, [Record(big, partition=0)])
            for reader in clients:
                (read,) = reader.fetch(topic, {0: end[0]}, {0: end[0] + 1})[0]
                assert read.value == big
    finally:
        for client in clients:
            client.close()
        broker.stop()
    if case == "two data directories":
        used = [{path.name for path in (tmp_path / name).glob("by-*")} for name in ("one", "two")]
        assert abs(len(used[0]) - len(used[1])) <= 1
        assert len(used[0] | used[1]) == 3 * PARTITIONS
