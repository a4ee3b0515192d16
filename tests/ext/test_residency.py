"""Residency against the page cache itself: files are evicted whole, and the probes must agree about them."""

import os
from pathlib import Path

import pytest

from kafkapy._ext import residency

PAGE = os.sysconf("SC_PAGESIZE")
SIZE = 64 * PAGE


@pytest.fixture
def file(tmp_path):
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, os.urandom(SIZE), 0)
    os.fsync(fd)
    yield fd
    os.close(fd)


def evict(fd: int) -> bool:
    """Drop the file from the page cache. Return False if the file system keeps its pages (tmpfs)."""
    for _ in range(50):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if residency.resident_pages(fd, 0, SIZE) == 0:
            return True
        os.fsync(fd)
    return False


def test_what_was_just_written_is_ready(file) -> None:
    assert residency.resident_pages(file, 0, SIZE) == 64
    assert residency.resident_pages(file, 1, PAGE) == 2
    assert residency.resident(file, 0, SIZE)
    assert residency.ready(file, 0, SIZE)
    assert residency.ready(file, SIZE - 1, 1)


def test_an_evicted_file_is_absent_until_it_is_read(file) -> None:
    kept = not evict(file)
    assert residency.resident(file, 0, SIZE) is kept
    assert residency.resident(file, 5 * PAGE, 10) is kept
    assert os.pread(file, SIZE, 0)
    assert residency.resident(file, 0, SIZE)
    assert residency.ready(file, 0, SIZE)


def test_ready_sees_one_missing_page(file) -> None:
    kept = not evict(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # otherwise the kernel would read the neighbouring pages, too
    os.pread(file, PAGE, 0)
    os.pread(file, PAGE, SIZE - PAGE)
    assert residency.ready(file, 0, SIZE) is kept
    assert residency.ready(file, 0, PAGE)
    assert residency.ready(file, SIZE - 10, 10)


def test_read_now_reads_what_is_there_and_never_waits(file) -> None:
    data = os.pread(file, SIZE, 0)
    buffer = bytearray(SIZE + 20)
    assert residency.read_now(file, buffer, 10, SIZE + 10, 0) == SIZE
    assert buffer[10:-10] == data
    assert buffer[:10] == buffer[-10:] == bytes(10)
    assert residency.read_now(file, buffer, 0, 10, SIZE) == 0
    if evict(file):
        assert residency.read_now(file, buffer, 0, 100, 0) == -1


def test_load_brings_a_range_into_memory(file) -> None:
    evict(file)
    assert residency.load(file, 5 * PAGE, 20 * PAGE) == 20 * PAGE
    assert residency.ready(file, 5 * PAGE, 20 * PAGE)
    assert residency.load(file, SIZE - 10, 1000) == 10
    assert residency.load(file, SIZE, 10) == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        residency.load(-1, 0, 10)


def test_load_reads_a_file_that_sendfile_refuses() -> None:
    with Path("/proc/self/environ").open("rb") as file:
        size = len(file.read())
        with pytest.raises(OSError, match="Invalid argument"), open(os.devnull, "wb") as null:
            os.sendfile(null.fileno(), file.fileno(), 0, size)
        assert residency.load(file.fileno(), 0, size + 10) == size


def test_ranges_that_are_none_are_refused(file) -> None:
    for position, length in ((-1, 5), (0, 0), (0, -1), (5, 2**63 - 1)):
        for question in (residency.resident, residency.ready, residency.resident_pages, residency.load):
            with pytest.raises(ValueError, match="not a range"):
                question(file, position, length)
    with pytest.raises(ValueError, match="cannot read into"):
        residency.read_now(file, bytearray(5), 0, 6, 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        residency.ready(-1, 0, 1)
