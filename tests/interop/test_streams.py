"""Kafka Streams 3.9.1 counts words exactly once while one of its two instances is killed and restarted."""

from collections import Counter
from pathlib import Path

import pytest

from tests.harness import brokers
from tests.harness.clients.registry import Clients
from tests.harness.streams import PARTITIONS, Counts, Instance, lines_all_the_time

pytestmark = pytest.mark.other_runtime


def test_words_are_counted_exactly_once_although_an_instance_dies(
    coordinator: brokers.Broker, coordinated: Clients, tmp_path: Path
) -> None:
    admin, bootstrap, sent = coordinated["confluent-kafka"], coordinator.bootstrap, Counter[str]()
    for topic in ("lines", "counts"):
        admin.create_topic(topic, PARTITIONS)
    instances = [Instance(bootstrap, "word-count", tmp_path / name) for name in "ab"]
    counts = Counts(bootstrap)
    try:
        with lines_all_the_time(bootstrap, sent):
            for instance in instances:
                instance.wait_until_it_runs()
            counts.read_until(sent.total() + 100, instances)
            instances[0].kill()
            counts.read_until(sent.total() + 100, instances)
            instances.append(Instance(bootstrap, "word-count", tmp_path / "a"))
            instances[2].wait_until_it_runs()
            counts.read_until(sent.total() + 100, instances)
        counts.read_until(sent.total(), instances)
        for instance in instances[1:]:
            instance.stop()
    finally:
        counts.close()
        for instance in instances:
            instance.kill()
    assert counts.latest == dict(sent)
    for word, each in counts.seen.items():
        assert each == list(range(1, sent[word] + 1)), word
