"""Small record sets that decompress to many bytes use bounded memory."""

import tracemalloc

import pytest

from kafkapy.errors import Errors
from kafkapy.record.batch import build
from kafkapy.record.compression import GZIP
from kafkapy.record.legacy import build_set, iter_entries

from .support import NOW
from .test_old_formats import bench_of

UNPACKED = 4 << 20
SETS = 8


def bomb(magic):
    values = [(NOW, b"k", bytes(UNPACKED // 8))] * 8
    if magic == 2:
        return memoryview(bytearray(build([(*value, ()) for value in values], codec=GZIP)))
    return memoryview(bytearray(build_set(values, magic, GZIP)))


def appended(log, sets):
    """Append the sets. Return (verdicts, allocated bytes that are left, most bytes that were allocated)."""
    tracemalloc.start()
    try:
        verdicts = log.append(sets, 0)
        return verdicts, *tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("sent", "stored"), [(0, 0), (0, 2), (1, 0), (2, 0)])
def test_sets_that_are_appended_together_are_not_unpacked_together(tmp_path, sent, stored):
    log = bench_of(tmp_path, stored).load()
    verdicts, _, peak = appended(log, [bomb(sent) for _ in range(SETS)])
    assert [one.base_offset for one in verdicts] == [8 * at for at in range(SETS)]
    assert peak < 5 * UNPACKED
    log.close()


def test_sets_that_become_large_are_not_built_together(tmp_path):
    log = bench_of(tmp_path, 2, compression_type="uncompressed", max_message_bytes=2 * UNPACKED).load()
    verdicts, _, peak = appended(log, [bomb(2) for _ in range(SETS)])
    assert [one.last_offset for one in verdicts] == [8 * at + 7 for at in range(SETS)]
    assert peak < 6 * UNPACKED
    log.close()


@pytest.mark.parametrize(("sent", "stored"), [(0, 0), (1, 1), (2, 0)])
def test_a_refusal_does_not_keep_the_decompressed_records(tmp_path, sent, stored):
    """A refused set waits for its response together with many other sets."""
    log = bench_of(tmp_path, stored, compression_type="lz4", max_message_bytes=12_000).load()
    verdicts, left, _ = appended(log, [bomb(sent) for _ in range(SETS)])
    assert {one.code for one in verdicts} == {Errors.MESSAGE_TOO_LARGE}
    assert left < UNPACKED // 8
    assert not list(iter_entries(log.segments.active.files.pread(log.segments.active.handle(), 100, 0)))
    log.close()
