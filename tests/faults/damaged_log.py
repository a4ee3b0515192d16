"""A small log with several segments, and the records that must be served after some of its bytes were damaged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kafkapy.errors import KafkaError
from kafkapy.log import names
from kafkapy.log.config import LogConfig
from kafkapy.log.partition_log import PartitionLog
from kafkapy.record.batch import build, records_of
from kafkapy.record.legacy import build_set, check, iter_entries
from tests.harness.power_cut import UnsyncedFiles
from tests.log.support import NOW, Bench

VERSIONS = {0: "0.9.0", 1: "0.10.2", 2: "2.8"}
CODECS = (0, 1, 0, 2, 3, 0)
OFFSET = range(8)  # bytes of a batch that no checksum covers
LEADER_EPOCH = range(12, 16)  # the same, of format 2 only


class Place(NamedTuple):
    """A batch, or an entry of a message set, and its place in its segment."""

    segment: int  # base offset
    position: int
    size: int
    records: list[tuple[int, bytes]]


@dataclass
class Original:
    """The undamaged log, with its batches in order. `directory` is the log directory."""

    directory: Path
    magic: int
    config: LogConfig
    places: list[Place]

    @property
    def records(self) -> list[tuple[int, bytes]]:
        return [record for place in self.places for record in place.records]

    @property
    def segments(self) -> list[Path]:
        return sorted((self.directory / "t-0").glob("*.log"))

    def before(self, segment: int, position: int) -> list[tuple[int, bytes]]:
        """Return the records of all batches that end at or before `position` of the segment."""
        return [
            record
            for place in self.places
            if (place.segment, place.position + place.size) <= (segment, position)
            for record in place.records
        ]

    def touched(self, segment: int, damaged: bytes) -> tuple[Place, bool] | None:
        """Return (first damaged batch, True if a checksum detects the damage), or None if nothing has changed."""
        data = (self.directory / "t-0" / names.file_name(segment, names.LOG)).read_bytes()
        changed = [at for at, (old, new) in enumerate(zip(data, damaged, strict=True)) if old != new]
        if not changed:
            return None
        place = next(p for p in self.places if p.segment == segment and changed[0] < p.position + p.size)
        uncovered = {*OFFSET, *(LEADER_EPOCH if self.magic == 2 else ())}
        inside = [at - place.position for at in changed if at < place.position + place.size]
        return place, any(at not in uncovered for at in inside)


def make(directory: Path, magic: int, *, clean: bool, batches: int = 40, segment_bytes: int = 1400) -> Original:
    """Fill a log in message format `magic` with compressed and other batches. Stop it, cleanly or as in a crash."""
    settings = {"segment.bytes": segment_bytes, "index.interval.bytes": 200, "segment.index.bytes": 1200}
    config = LogConfig({**settings, "message.format.version": VERSIONS[magic]}, protocol_version="2.8-IV1")
    log = _open(directory, config, clean=True)
    for number in range(batches):
        values = [b"%d-%d %s" % (number, each, b"x" * (37 * number % 90)) for each in range(1 + number % 3)]
        (verdict,) = log.append([_batch(magic, number, values)], 0)
        assert not isinstance(verdict, KafkaError), verdict
    if clean:
        log.close()
    else:
        log.abandon()
    original = Original(directory, magic, config, [])
    for path in original.segments:
        original.places += _places(path)
    assert len(original.segments) > 2
    return original


def _batch(magic: int, number: int, values: list[bytes]) -> memoryview:
    codec = CODECS[number % len(CODECS)]
    if magic < 2:
        return memoryview(bytearray(build_set([(NOW + number, None, value) for value in values], magic, codec)))
    sequence = sum(1 + each % 3 for each in range(0, number, 2))
    producer = {} if number % 2 else {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
    records = [(NOW + number, None, value, []) for value in values]
    return memoryview(bytearray(build(records, codec=codec, **producer)))


def _places(path: Path) -> Iterator[Place]:
    data = path.read_bytes()
    segment = names.offset_of(path.name)
    assert segment is not None
    for header in iter_entries(data):
        records = [(one.offset, one.value or b"") for one in records_of(data, header)]
        yield Place(segment, header.position, header.size, records)


def _open(directory: Path, config: LogConfig, *, clean: bool, recovery_point: int = 0) -> PartitionLog:
    bench = Bench(directory, files=UnsyncedFiles())
    bench.config = config
    return bench.load(clean=clean, recovery_point=recovery_point)


def copy_of(original: Original, target: Path, damage: dict[str, bytes]) -> Path:
    """Copy the log directory to `target` and replace the partition's files named in `damage`."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(original.directory, target)
    for name, data in damage.items():
        (target / "t-0" / name).write_bytes(data)
    return target


def open_copy(original: Original, target: Path, damage: dict[str, bytes], *, clean: bool) -> PartitionLog:
    return _open(copy_of(original, target, damage), original.config, clean=clean)


def served(log: PartitionLog) -> list[tuple[int, bytes]]:
    """Return all records that a consumer gets, region by region. Check each batch's checksum."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        region = log.read(offset, 1 << 20, min_one=True, max_offset=log.log_end_offset).region
        if region is None:
            break
        data = region.read()
        for header in iter_entries(data):
            for record in records_of(data, check(data, header)):
                if record.offset >= offset:
                    found.append((record.offset, record.value or b""))
            offset = max(offset, header.last_offset + 1)
    return found
