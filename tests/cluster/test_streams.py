"""Kafka Streams 3.9.1 counts words exactly once while the brokers of its cluster are killed one after the other."""

from collections import Counter
from pathlib import Path

import pytest

from tests.harness.cluster import Cluster
from tests.harness.streams import PARTITIONS, Counts, Instance, lines_all_the_time

pytestmark = [pytest.mark.other_runtime, pytest.mark.timeout(400)]


def test_words_are_counted_exactly_once_although_brokers_die(tmp_path: Path) -> None:
    sent = Counter[str]()
    with Cluster(tmp_path / "cluster", ("kafka", "kafkapy", "kafka")) as cluster:
        for topic in ("lines", "counts"):
            cluster.create_topic(topic, PARTITIONS)
        instance = Instance(cluster.bootstrap, "word-count", tmp_path / "instance", cluster.inside_clients())
        counts = Counts(cluster.bootstrap)
        try:
            with lines_all_the_time(cluster.bootstrap, sent):
                instance.wait_until_it_runs()
                counts.read_until(sent.total() + 100, [instance])
                for number in cluster.members:
                    cluster[number].kill()
                    counts.read_until(sent.total() + 100, [instance])
                    cluster.heal()
                    cluster.wait_until_quiet()
            counts.read_until(sent.total(), [instance])
            instance.stop()
        finally:
            counts.close()
            instance.kill()
    assert counts.latest == dict(sent)
    for word, each in counts.seen.items():
        assert each == list(range(1, sent[word] + 1)), word
