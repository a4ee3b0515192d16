"""docs/original-clients.md: the examples run, and the tables agree with the code."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kafkapy.client import Admin
from kafkapy.client.original.assignment import STRATEGIES
from kafkapy.client.original.consuming.settings import ConsumerSettings
from kafkapy.client.original.producing.producer_config import read_config
from kafkapy.runtime.addresses import host_port
from tests.zookeeper.conftest import Start

PAGE = (Path(__file__).parents[2] / "docs" / "original-clients.md").read_text()


def test_the_examples_run(start: Start, connect: str, capsys: pytest.CaptureFixture[str]) -> None:
    bootstrap = start().bootstrap_servers
    with Admin(bootstrap) as admin:
        admin.create_topic("orders", 4)
    names: dict[str, Any] = {}
    received = []
    for example in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        here = example.replace("127.0.0.1:2181/kafka", connect).replace("127.0.0.1:9092", bootstrap)
        exec(here.replace('"127.0.0.1", 9092', f'"127.0.0.1", {bootstrap.rpartition(":")[2]}'), names)
        received.append(capsys.readouterr().out.splitlines())
    taken, lost, sent, simple = (lines for lines in received if lines)
    assert taken == ["b'order 0'"]
    assert lost == ["about to lose [('orders', 0), ('orders', 1), ('orders', 2), ('orders', 3)]"]
    assert sent == ["2"]
    assert simple[-1] == "10"


@pytest.mark.parametrize(
    ("topics", "strategies"), [({"orders": 10}, ["range"]), ({"orders": 4, "bills": 4}, ["range", "roundrobin"])]
)
def test_the_assignments_are_those_of_the_tables(topics: dict[str, int], strategies: list[str]) -> None:
    streams = {"billing_one": dict.fromkeys(topics, 2), "billing_two": dict.fromkeys(topics, 1)}
    partitions = {topic: [str(number) for number in range(count)] for topic, count in topics.items()}
    cells: dict[str, list[str]] = defaultdict(list)
    for strategy in strategies:
        owned: dict[str, dict[str, list[int]]] = defaultdict(lambda: {topic: [] for topic in topics})
        for (topic, name), thread in STRATEGIES[strategy](streams, partitions).items():
            owned[str(thread)][topic].append(int(name))
        for thread_name, its_own in owned.items():
            parts = {topic: ", ".join(map(str, sorted(numbers))) for topic, numbers in its_own.items()}
            named = len(topics) > 1
            cells[thread_name].append(" · ".join(f"{topic} {text}" if named else text for topic, text in parts.items()))
    assert len(cells) == 3
    for thread_name, its_cells in cells.items():
        assert f"| {' | '.join([thread_name, *its_cells])} |" in PAGE


def test_the_defaults_are_those_of_the_tables() -> None:
    consumer = ConsumerSettings("", "")
    producer = read_config({"metadata.broker.list": host_port("127.0.0.1", 9092)})
    for row in (
        f"| `auto.commit.interval.ms` | `autocommit.interval.ms` | {consumer.auto_commit_interval_ms} |",
        f"| `rebalance.max.retries` | `rebalance.retries.max` | {consumer.rebalance_max_retries} |",
        f"| `rebalance.backoff.ms` | the same | {consumer.rebalance_backoff_ms} |",
        f"| `fetch.message.max.bytes` | `fetch.size` | {consumer.fetch_message_max_bytes} |",
        f"| `queued.max.message.chunks` | `queuedchunks.max` | {consumer.queued_max_message_chunks} |",
        f"| `request.required.acks`: 0, 1, -1 | | **{producer.acks}** |",
        f"| `message.send.max.retries` | `num.retries` | **{producer.retries}** |",
        f"| `request.timeout.ms` | `socket.timeout.ms` | {producer.request_timeout_s * 1000:.0f} |",
        f"| `queue.buffering.max.ms` | `queue.time` | {producer.queue_time_s * 1000:.0f} |",
        f"| `queue.buffering.max.messages` | `queue.size` | {producer.queue_size} |",
        f"| `batch.num.messages` | `batch.size` | {producer.batch_size} |",
    ):
        assert row in PAGE
