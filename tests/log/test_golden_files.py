"""Files that Apache Kafka 3.9.1 wrote are read, rewritten byte for byte, and served unchanged."""

import json
import shutil
import struct

import pytest

from kafkapy.log import names
from kafkapy.log.config import LogConfig
from kafkapy.log.directories.checkpoints import HIGH_WATERMARKS, OffsetCheckpoint, format_lines, parse_lines
from kafkapy.log.directories.meta_properties import MetaProperties, format_properties, parse_properties
from kafkapy.log.directories.partition_metadata import format_metadata, parse_metadata
from kafkapy.log.indexes.offset_index import OffsetIndex
from kafkapy.log.indexes.time_index import TimeIndex
from kafkapy.log.indexes.txn_index import TxnIndex
from kafkapy.log.manager import LogManager
from kafkapy.log.producers.producer_snapshots import format_snapshot, parse_snapshot
from kafkapy.log.storage.files import Files
from kafkapy.runtime.clock import ManualClock

from .support import GOLDEN, At, ManualScheduler, contents

DATA = GOLDEN / "kafka-3.9.1-v2" / "data"
# One file of the golden data is damaged: it has the text of a hex dump of 3.txnindex instead of an index. The output of
# Kafka's DumpLogSegments for the undamaged file is in dump/v2-txn-0.txt.gz.
DAMAGED = DATA / "v2-txn-0" / "00000000000000000043.txnindex"
DAMAGED_HELD = [(12, 27, 44, 45), (15, 46, 47, 48), (16, 48, 49, 50)]
NOVEMBER_2026 = 1_795_268_000_000
AT = 1_795_266_744.0  # Sat Nov 21 13:12:24 UTC 2026, when Kafka wrote meta.properties


def golden(pattern):
    found = sorted(DATA.glob(pattern))
    assert found
    return found


def test_snapshots_are_written_as_kafka_wrote_them():
    for path in golden("*/*.snapshot"):
        data = path.read_bytes()
        assert format_snapshot(parse_snapshot(data, str(path))) == data, path


def test_checkpoints_are_written_as_kafka_wrote_them():
    for path in golden("*checkpoint") + golden("*/leader-epoch-checkpoint"):
        data = path.read_bytes()
        if data:
            assert format_lines(parse_lines(data, str(path))) == data, path


def test_partition_metadata_is_written_as_kafka_wrote_it():
    for path in golden("*/partition.metadata"):
        assert format_metadata(parse_metadata(path.read_bytes(), str(path))) == path.read_bytes()


def test_meta_properties_is_written_as_kafka_wrote_it():
    path = DATA / "meta.properties"
    found = parse_properties(path.read_bytes(), str(path))
    assert found == MetaProperties(1, "8NMnlg0uR4-nhWypwK598w")
    assert format_properties(found, AT) == path.read_bytes()


@pytest.mark.parametrize(("suffix", "kind"), [(names.OFFSET_INDEX, OffsetIndex), (names.TIME_INDEX, TimeIndex)])
def test_indexes_are_written_as_kafka_wrote_them(tmp_path, suffix, kind):
    for path in golden(f"*/*{suffix}"):
        copy = tmp_path / "copy"
        shutil.copy(path, copy)
        index = kind(Files(), At(copy), names.offset_of(path.name), 10 << 20)
        index.open(copy.stat().st_size)
        index.reopen_to_grow()
        copy.write_bytes(b"")
        index._written = 0
        index.trim()
        assert copy.read_bytes() == path.read_bytes(), path


def test_transaction_indexes_are_written_as_kafka_wrote_them(tmp_path):
    for path in set(golden("*/*.txnindex")) - {DAMAGED}:
        read = TxnIndex(Files(), At(path), names.offset_of(path.name))
        read.load()
        copy = tmp_path / f"{path.parent.name}-{path.name}"
        written = TxnIndex(Files(), At(copy), names.offset_of(path.name))
        for entry in read.entries:
            written.append(entry)
        assert copy.read_bytes() == path.read_bytes()


def served(tmp_path, *, clean):
    """Return (a copy of Kafka's directory, the log manager that has loaded it)."""
    directory = tmp_path / "data"
    shutil.copytree(DATA, directory)
    if not clean:
        (directory / ".kafka_cleanshutdown").unlink()
        (directory / "recovery-point-offset-checkpoint").unlink()
    config = LogConfig({"segment.bytes": 4096, "index.interval.bytes": 512, "segment.index.bytes": 1024})
    manager = LogManager([directory], config, clock=ManualClock(NOVEMBER_2026), scheduler=ManualScheduler())
    manager.load()
    return directory, manager


def test_a_cleanly_stopped_directory_is_served_and_left_as_it_was(tmp_path):
    directory, manager = served(tmp_path, clean=True)
    marks = OffsetCheckpoint(Files(), str(DATA), HIGH_WATERMARKS).read()
    assert {(log.topic, log.partition): log.log_end_offset for log in manager} == marks
    assert {(log.topic, log.partition): log.high_watermark for log in manager} == marks
    assert manager.get("v2-deleted-records", 0).log_start_offset == 40
    open_txn = manager.get("v2-txn-open", 0)
    assert (open_txn.last_stable_offset, open_txn.log_end_offset) == (2, 5)
    manager.close()
    for path in DATA.iterdir():
        if path.is_dir() and path != DAMAGED.parent:
            found, expected = contents(directory / path.name), contents(path)
            gone = set(expected) - set(found)
            assert all(name.endswith(names.SNAPSHOT) for name in gone)  # left over from earlier stops
            assert {name: data for name, data in expected.items() if name not in gone} == found
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", HIGH_WATERMARKS):
        again = OffsetCheckpoint(Files(), str(directory), name).read()
        assert again == OffsetCheckpoint(Files(), str(DATA), name).read()


def test_every_batch_is_found_by_every_offset_in_it_and_between(tmp_path):
    for clean in (True, False):
        _, manager = served(tmp_path / str(clean), clean=clean)
        for log in manager:
            batches = expected_batches(log.name)
            for offset in range(log.log_start_offset, log.log_end_offset):
                wanted = next((one for one in batches if one["lastOffset"] >= offset), None)
                found = log.read(offset, 1 << 20, max_offset=log.log_end_offset)
                if wanted is None:
                    assert found.region is None, (log.name, offset)
                else:
                    name = f"{found.segment_base:020d}.log"
                    assert (name, found.position) == (wanted["file"], wanted["position"]), (log.name, offset)
        manager.close()


def expected_batches(name):
    path = GOLDEN / "kafka-3.9.1-v2" / "expected" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_times_are_found_as_kafka_found_them(tmp_path):
    """consumer-view.jsonl has the responses of Kafka's broker to offsetsForTimes on these files."""
    _, manager = served(tmp_path, clean=True)
    checked = 0
    for line in (GOLDEN / "kafka-3.9.1-v2" / "consumer-view.jsonl").read_text().splitlines():
        view = json.loads(line)
        log = manager.get(view["topic"], 0)
        if "compacted" in view["topic"]:
            continue  # for an empty segment the file's time counts, which a copy does not keep
        for asked, offset, timestamp in view["offsetsForTimes"]:
            found = log.offset_for_timestamp(asked)
            if found is not None and found.offset >= log.last_stable_offset:
                found = None
            answer = (None, None) if found is None else (found.offset, found.timestamp)
            assert answer == (offset, timestamp), (view["topic"], asked)
            checked += 1
    assert checked > 50


def test_a_damaged_transaction_index_is_rebuilt(tmp_path):
    directory, manager = served(tmp_path, clean=True)
    manager.close()
    data = (directory / "v2-txn-0" / DAMAGED.name).read_bytes()
    assert [fields[1:] for fields in struct.iter_unpack(">hqqqq", data)] == DAMAGED_HELD


def test_aborted_transactions_are_those_of_the_index(tmp_path):
    _, manager = served(tmp_path, clean=True)
    log = manager.get("v2-txn", 0)
    wanted = [entry[:3] for entry in DAMAGED_HELD]
    for path in set(golden("v2-txn-0/*.txnindex")) - {DAMAGED}:
        wanted += [fields[1:4] for fields in struct.iter_unpack(">hqqqq", path.read_bytes())]
    found = set()
    offset = 0
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20, max_offset=log.log_end_offset)
        upper = min((base for base in log.segments.base_offsets if base > offset), default=log.log_end_offset)
        aborted = log.aborted_transactions(offset, result)
        needed = {(pid, first) for pid, first, last in wanted if last >= offset and first < upper}
        assert needed == set(aborted)
        found |= set(aborted)
        offset = upper
    assert found == {(pid, first) for pid, first, _ in wanted}
