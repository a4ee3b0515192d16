"""Indexes that Kafka wrote, compared with indexes rebuilt from its .log files."""

import json
import shutil
from functools import cache

import pytest

from kafkapy.log.config import LogConfig
from kafkapy.log.manager import LogManager
from kafkapy.runtime.clock import ManualClock
from tests.log.support import ManualScheduler

from .support import FOLDERS, GOLDEN, expected, lines_of

SUFFIXES = (".index", ".timeindex", ".txnindex")
NOW = 1_795_270_000_000


@cache
def configs(folder):
    """Return the settings of the folder's topics that indexes depend on."""
    if folder == "kafka-3.9.1-recovery":
        return {}
    found = {}
    for node in lines_of(GOLDEN / folder / "znodes.jsonl"):
        if node["path"].startswith("/config/topics/"):
            settings = json.loads(node["data"])["config"]
            found[node["path"].rpartition("/")[2]] = LogConfig.from_overrides(LogConfig(), settings)
    return found


def config_of(folder, topic):
    if folder == "kafka-3.9.1-recovery" and not topic.startswith("__"):
        return LogConfig({"segment.bytes": 1200, "segment.index.bytes": 1024, "index.interval.bytes": 256})
    return configs(folder).get(topic, LogConfig())


def load(folder, directory):
    manager = LogManager([directory], LogConfig(), clock=ManualClock(NOW), scheduler=ManualScheduler())
    manager.load(lambda topic: config_of(folder, topic))
    return manager


@pytest.fixture(scope="module", params=FOLDERS)
def folder(request):
    return request.param


@pytest.fixture(scope="module")
def copies(tmp_path_factory, folder):
    """Return two copies of the directory: one with the stored indexes, one with rebuilt indexes."""
    stored, rebuilt = (tmp_path_factory.mktemp(folder) / "data" for _ in range(2))
    for directory in (stored, rebuilt):
        shutil.copytree(GOLDEN / folder / FOLDERS[folder], directory)
    for path in rebuilt.glob("*-*/*"):
        if path.suffix in SUFFIXES:
            path.unlink()
    # After a clean shutdown only missing indexes would be rebuilt, not short ones.
    (rebuilt / ".kafka_cleanshutdown").unlink()
    return stored, rebuilt


def test_every_offset_is_found_through_both(copies, folder):
    managers = [load(folder, directory) for directory in copies]
    try:
        stored, rebuilt = ({log.name: log for log in manager} for manager in managers)
        assert stored.keys() == rebuilt.keys()
        for name in stored:
            pairs = list(zip(stored[name].segments.items, rebuilt[name].segments.items, strict=True))
            assert pairs
            for one, other in pairs:
                end = one.tail().next_offset
                for offset in range(one.base_offset, end):
                    assert one.locate(offset, one.size) == other.locate(offset, other.size), (one, offset)
    finally:
        for manager in managers:
            manager.close()


def reopened(folder):
    """Return the segments that Kafka wrote to before and after a restart, as their leader epochs or producers show.

    A broker takes a new block of 1000 producer ids at its start. When it opens a segment again it does not know how
    many bytes there were since the last index entry, and closing a segment adds an entry for its largest timestamp.
    """
    found = set()
    for name, batches in expected(folder).items():
        marks = {}
        for one in batches:
            if "leaderEpoch" in one:
                block = one["producerId"] // 1000 if one["producerId"] >= 0 else None
                marks.setdefault(one["file"], set()).update({("epoch", one["leaderEpoch"]), ("block", block)})
        for file, seen in marks.items():
            if len(seen - {("block", None)}) > 2:
                found.add(f"{name}/{file.removesuffix('.log')}")
    return found


# The same for internal topics, whose batches show neither.
REOPENED_INTERNAL = {
    "__consumer_offsets-1/00000000000000000000",
    "__transaction_state-1/00000000000000000000",
}
# Cleaning removed the aborted records and their markers, and left their entries in the transaction index.
OF_CLEANED_AWAY = {
    "v2-compacted-txn-0/00000000000000000002.txnindex",
    "v2-compacted-txn-0/00000000000000000011.txnindex",
}
NOT_AN_INDEX = {"v2-txn-0/00000000000000000043.txnindex"}


def test_rebuilt_indexes_equal_kafkas_byte_for_byte(copies, folder):
    rebuilt = copies[1]
    load(folder, rebuilt).close()
    different = set()
    for path in (GOLDEN / folder / FOLDERS[folder]).glob("*-*/*"):
        if path.suffix in SUFFIXES:
            rebuilt_file = rebuilt / path.parent.name / path.name
            if not rebuilt_file.exists() or rebuilt_file.read_bytes() != path.read_bytes():
                different.add(f"{path.parent.name}/{path.name}")
    if folder.startswith("kafka-3.9.1"):
        different -= OF_CLEANED_AWAY | NOT_AN_INDEX
        assert {name.rpartition(".")[0] for name in different} <= reopened(folder) | REOPENED_INTERNAL
    else:
        # Brokers before 0.11 wrote one entry for an append of several messages or wrappers, with its first offset.
        # Since then, and in kafkapy, there is one for each wrapper or message, with its last offset.
        assert all((GOLDEN / folder / "data" / name).stat().st_size for name in different)
        assert {name.rpartition(".")[2] for name in different} <= {"index", "timeindex"}
