"""Brokers on adopted copies of golden directories."""

import os
import shutil

import pytest

from kafkapy.server.adoption.adopt import adopt
from kafkapy.server.adoption.knowledge import Knowledge
from kafkapy.testing.broker import Broker

from .support import FOLDERS, GOLDEN

# Kafka and kafkapy take a segment without timestamps as old as its file, and a copied file is as old as the copy. Most
# segments were written long after the timestamps in them. A segment emptied by cleaning kept the time at which its file
# was written, of which we only know that it lies between the times that 0.10.2.2 answered with.
WRITTEN_AT = 1_795_270_000.0
EMPTIED = {"v1-compacted-ct-0": 1_795_267_454.4, "v1-compacted-ct-gzip-0": 1_795_267_455.2}


@pytest.fixture(scope="module")
def adopted(tmp_path_factory):
    """Return adopted(folder): a running broker on an adopted copy of a golden directory, shared by a module's tests."""
    running = {}

    def start(folder):
        if folder not in running:
            path = tmp_path_factory.mktemp(folder) / "data"
            shutil.copytree(GOLDEN / folder / FOLDERS[folder], path)
            for file in path.glob("*/*"):
                at = EMPTIED.get(file.parent.name, WRITTEN_AT)
                os.utime(file, (at, at))
            adopt([path], Knowledge(), broker_id=4 if folder == "kafka-0.8.2.2" else None)
            running[folder] = Broker(path).start()
        return running[folder]

    yield start
    for broker in running.values():
        broker.stop()
