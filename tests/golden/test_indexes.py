"""Indexes that Kafka wrote, beside those that are built anew from its .log files."""

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
    """The settings of the folder's topics that indexes depend on."""
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
    """(with the stored indexes, with indexes built anew)."""
    stored, rebuilt = (tmp_path_factory.mktemp(folder) / "data" for _ in range(2))
    for directory in (stored, rebuilt):
        shutil.copytree(GOLDEN / folder / FOLDERS[folder], directory)
    for path in rebuilt.glob("*-*/*"):
        if path.suffix in SUFFIXES:
            path.unlink()
    (rebuilt / ".kafka_cleanshutdown").unlink()  # else only missing files would be made, not those that are short
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
    """Segments to which Kafka wrote before and after a restart, as the leader epochs or the producers in them show.

    A broker takes a new block of 1000 producer ids at its start. Opening a segment again makes it forget how many bytes
    there were since the last entry, and closing one adds an entry for its largest time.
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


# The same of the internal topics, in whose batches neither shows it.
REOPENED_INTERNAL = {
    "__consumer_offsets-1/00000000000000000000",
    "__transaction_state-1/00000000000000000000",
}
# Cleaning took the aborted records and their markers away, and left the entries that told of them.
OF_CLEANED_AWAY = {
    "v2-compacted-txn-0/00000000000000000002.txnindex",
    "v2-compacted-txn-0/00000000000000000011.txnindex",
}
NOT_AN_INDEX = {"v2-txn-0/00000000000000000043.txnindex"}


def test_indexes_built_anew_are_kafkas_byte_for_byte(copies, folder):
    rebuilt = copies[1]
    load(folder, rebuilt).close()
    different = set()
    for path in (GOLDEN / folder / FOLDERS[folder]).glob("*-*/*"):
        if path.suffix in SUFFIXES:
            made = rebuilt / path.parent.name / path.name
            if not made.exists() or made.read_bytes() != path.read_bytes():
                different.add(f"{path.parent.name}/{path.name}")
    if folder.startswith("kafka-3.9.1"):
        different -= OF_CLEANED_AWAY | NOT_AN_INDEX
        assert {name.rpartition(".")[0] for name in different} <= reopened(folder) | REOPENED_INTERNAL
    else:
        # Brokers before 0.11 put one entry for an append of several messages or wrappers, under its first offset; since
        # then, and here, it is one for a wrapper or message, under its last.
        assert all((GOLDEN / folder / "data" / name).stat().st_size for name in different)
        assert {name.rpartition(".")[2] for name in different} <= {"index", "timeindex"}
