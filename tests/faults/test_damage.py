"""Damaged segment files: the log recovers to its longest valid prefix, logs where that ends, and serves only that.

As in Kafka, segments are not scanned after a clean stop: a damaged batch is served unchanged, and the consumer's check
of the CRC finds the damage, as does `kafkapy log verify`. The broker only must not fail.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.partition_log import AppendResult, PartitionLog
from kafkapy.log.storage.files import Files
from kafkapy.record.batch import records_of
from kafkapy.record.legacy import check, iter_entries
from kafkapy.tools.log.verify.paths import check_path
from kafkapy.tools.log.verify.report import Report
from tests.faults.damaged_log import Original, copy_of, make, open_copy, served
from tests.faults.rounds import rounds
from tests.log.support import batch

pytestmark = pytest.mark.not_quick

BLOCK = 512
SEEDS = range(rounds(2))


def flipped_bit(block: bytes, others: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(block))
    return block[:at] + bytes([block[at] ^ 1 << rng.randrange(8)]) + block[at + 1 :]


def nonsense(block: bytes, others: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(len(block))


def zeros(block: bytes, others: bytes, rng: random.Random) -> bytes:
    return bytes(len(block))


def misplaced(block: bytes, others: bytes, rng: random.Random) -> bytes:
    """Return an undamaged block from another place of the same segment."""
    at = rng.randrange(0, max(len(others) - len(block), 1), BLOCK)
    return others[at : at + len(block)].ljust(len(block), b"\0")


Damage = Callable[[bytes, bytes, random.Random], bytes]
DAMAGES: list[Damage] = [flipped_bit, nonsense, zeros, misplaced]


def damaged(original: Original, damage: Damage, rng: random.Random) -> Iterator[tuple[Path, bytes]]:
    """Yield (segment, its content with one damaged block) for each block of each segment."""
    for path in original.segments:
        data = path.read_bytes()
        for start in range(0, len(data), BLOCK):
            block = data[start : start + BLOCK]
            yield path, data[:start] + damage(block, data, rng) + data[start + BLOCK :]


def prefix_of_content(found: list[tuple[int, bytes]], original: Original) -> bool:
    """Return True if the values are in the log in this order, and the offsets increase."""
    values = iter([value for _, value in original.records])
    offsets = [offset for offset, _ in found]
    return all(value in values for _, value in found) and offsets == sorted(set(offsets))


@pytest.fixture(params=[2, 1, 0], ids=lambda magic: f"format {magic}")
def magic(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_after_a_crash_the_log_ends_before_the_damaged_block(
    scratch: Path, magic: int, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    original = make(scratch / "original", magic, clean=False)
    tried = 0
    for seed in SEEDS:
        for path, content in damaged(original, damage, random.Random(seed)):
            segment = int(path.stem)
            touched = original.touched(segment, content)
            if touched is None:
                continue
            place, noticed = touched
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                log = open_copy(original, scratch / "copy", {path.name: content}, clean=False)
            found = served(log)
            valid = original.before(segment, place.position)
            if noticed:
                assert found == valid
                assert f"{path.name}: " in caplog.text
                assert f"at byte {place.position}" in caplog.text
                assert log.log_end_offset == (found[-1][0] + 1 if found else segment)
            else:  # no checksum covers the offset of a batch, nor its leader epoch
                assert found[: len(valid)] == valid
                assert prefix_of_content(found, original)
            end = append_one(log)
            assert fetched(log, end) == [(end, b"on")]
            log.abandon()
            tried += 1
    assert tried >= len(original.segments)


def append_one(log: PartitionLog) -> int:
    """Append a record to the log. Return its offset."""
    end = log.log_end_offset
    verdicts = log.append([batch("on")], max(log.leader_epochs.latest_epoch, 0))
    assert isinstance(verdicts, list)
    assert isinstance(verdicts[0], AppendResult), verdicts[0]
    assert verdicts[0].base_offset == end
    return end


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_after_a_clean_stop_damage_is_served_as_it_is_and_verify_finds_it(
    scratch: Path, magic: int, damage: Damage
) -> None:
    original = make(scratch / "original", magic, clean=True)
    for seed in SEEDS:
        for path, content in damaged(original, damage, random.Random(seed)):
            touched = original.touched(int(path.stem), content)
            if touched is None:
                continue
            log = open_copy(original, scratch / "copy", {path.name: content}, clean=True)
            known = {value for _, value in original.records}
            for offset in range(log.log_start_offset, log.log_end_offset):
                # Offsets are not compared: no checksum covers them.
                assert known >= {value for _, value in fetched(log, offset)}
            end = append_one(log)
            assert fetched(log, end) == [(end, b"on")]
            log.abandon()
            if touched[1]:
                copy_of(original, scratch / "copy", {path.name: content})
                assert any(path.name in line for line in verified(scratch / "copy" / "t-0"))


def verified(partition: Path) -> list[str]:
    """Return the problems that `kafkapy log verify` finds."""
    problems: list[str] = []
    check_path(partition, Report(lambda one: problems.append(one.line), lambda count: None))
    return problems


def fetched(log: PartitionLog, offset: int) -> list[tuple[int, bytes]]:
    """Return the records of a fetch up to the first wrong checksum."""
    try:
        region = log.read(offset, 1 << 20, min_one=True, max_offset=log.log_end_offset).region
    except KafkaError as error:
        if error.code != Errors.CORRUPT_MESSAGE:
            raise
        return []
    data = region.read() if region is not None else b""
    found: list[tuple[int, bytes]] = []
    try:
        for header in iter_entries(data):
            found += [(one.offset, one.value or b"") for one in records_of(data, check(data, header))]
    except ValueError:
        pass
    return found


def test_a_segment_cut_at_any_byte_ends_behind_its_last_whole_batch(scratch: Path, magic: int) -> None:
    """The segment is cut at every byte, also inside of batch headers."""
    original = make(scratch / "original", magic, clean=False, batches=9, segment_bytes=400)
    for path in original.segments:
        data = path.read_bytes()
        for size in range(len(data)):
            log = open_copy(original, scratch / "copy", {path.name: data[:size]}, clean=False)
            found = served(log)
            valid = original.before(int(path.stem), size)
            assert found[: len(valid)] == valid, size
            # If the cut leaves only whole batches, nothing shows that some are missing, so later segments stay.
            whole = any(place.position == size for place in original.places if place.segment == int(path.stem))
            assert found == valid or (whole and set(found) <= set(original.records)), size
            log.abandon()


def test_bytes_of_a_header_behind_the_end_are_cut_off(scratch: Path, magic: int) -> None:
    """Only the first bytes of the last batch were written: any number of bytes, up to all but one."""
    original = make(scratch / "original", magic, clean=False, batches=9, segment_bytes=400)
    last = original.segments[-1]
    data = last.read_bytes()
    torn = data[original.places[-1].position :]
    whole = original.before(int(last.stem), len(data))
    for size in range(1, len(torn)):
        log = open_copy(original, scratch / "copy", {last.name: data + torn[:size]}, clean=False)
        assert served(log) == whole
        assert log.size == sum(path.stat().st_size for path in original.segments)
        log.abandon()


def test_the_checks_fail_for_a_recovery_that_does_not_check_the_crc(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = Files.scan
    monkeypatch.setattr(Files, "scan", lambda self, *arguments: real(self, *arguments[:5], False))
    with pytest.raises((AssertionError, ValueError)):
        test_after_a_crash_the_log_ends_before_the_damaged_block(scratch, 2, flipped_bit, caplog)
