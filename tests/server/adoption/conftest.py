"""Fixtures with log directories and ZooKeeper nodes of real Kafka brokers, for tests of adoption."""

import json
import shutil
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "data" / "golden"


class GoldenNodes:
    """The ZooKeeper nodes of a golden directory's broker, read from its znodes.jsonl."""

    def __init__(self, name, file="znodes.jsonl"):
        lines = (GOLDEN / name / file).read_text().splitlines()
        self.nodes = {node["path"]: node["data"] for node in map(json.loads, lines)}

    def data(self, path):
        if path not in self.nodes:
            return None
        data = self.nodes[path]
        return b"" if data is None else data.encode()

    def children(self, path):
        if path not in self.nodes:
            return None
        prefix = path.rstrip("/") + "/"
        return [one[len(prefix) :] for one in self.nodes if one.startswith(prefix) and "/" not in one[len(prefix) :]]


@pytest.fixture
def golden_nodes():
    return GoldenNodes


@pytest.fixture
def golden_copy(tmp_path):
    """Return a function that copies the data of a golden directory: golden_copy("kafka-3.9.1-v2") returns the path."""

    def copy(name, part="data"):
        path = tmp_path / name
        shutil.copytree(GOLDEN / name / part, path)
        return path

    return copy


@pytest.fixture
def small(tmp_path):
    """Return a function that copies a few partitions of Kafka 3.9.1 and the files at the top of their log directory."""

    def copy(*partitions, name="small"):
        path = tmp_path / name
        path.mkdir()
        data = GOLDEN / "kafka-3.9.1-v2" / "data"
        for file in ("meta.properties", ".kafka_cleanshutdown"):
            shutil.copy(data / file, path)
        for partition in partitions:
            shutil.copytree(data / partition, path / partition)
        return path

    return copy
