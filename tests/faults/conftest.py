"""Fixtures of the fault tests: bad input, bad starts, crashes and full disks, with brokers in their own processes."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "beyond_kafka: Apache Kafka 3.9.1 does not survive this, so it is not asked")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that Apache Kafka cannot pass when the tests are run against it."""
    if os.environ.get("KAFKAPY_INTEROP_BROKER") == "kafka":
        left = [item for item in items if item.get_closest_marker("beyond_kafka")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """Return a directory, in memory if possible, since the tests create and delete many thousands of files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as directory:
        yield Path(directory)
