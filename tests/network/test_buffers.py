"""The pool lends warm buffers first, takes memory for received bytes only, and drops buffers that are not used."""

import errno
import mmap

import pytest

from kafkapy.network.buffers import FIRST_GRANT, Buffer, BufferPool, rounded


def test_sizes_are_powers_of_two() -> None:
    assert [rounded(size) for size in (0, 1, 65_536, 65_537, 1 << 20, (1 << 20) + 1)] == [
        65_536,
        65_536,
        65_536,
        131_072,
        1 << 20,
        2 << 20,
    ]


def test_the_most_recent_buffer_that_fits_best_is_taken() -> None:
    pool = BufferPool(64 << 20)
    small, first, second, large = (Buffer(size << 20) for size in (1, 2, 2, 8))
    for buffer in (small, first, second, large):
        pool.lent += 1
        pool.give(buffer)
    assert pool.take(1_500_000) is second
    assert pool.take(1_500_000) is first
    assert pool.take(1_500_000) is large
    assert pool.take(100) is small
    assert (pool.free_bytes, len(pool), pool.lent) == (0, 0, 4)


def test_a_claim_alone_gets_no_more_than_the_first_grant() -> None:
    pool = BufferPool(64 << 20)
    assert pool.take(100_000_000, there=5000).capacity == FIRST_GRANT
    assert pool.take(100_000_000, there=3_000_000).capacity == 8 << 20
    assert pool.take(70_000).capacity == 131_072


def test_growing_keeps_the_bytes_even_while_a_view_of_them_exists() -> None:
    buffer = Buffer(65_536)
    buffer.view[:5] = b"hello"
    buffer.grow(131_072)
    assert bytes(buffer.view[:5]) == b"hello"
    look = buffer.view[:5]
    buffer.grow(1 << 20)
    buffer.view[0] = ord("j")
    assert (bytes(look), bytes(buffer.view[:5]), buffer.capacity, len(buffer.view)) == (
        b"hello",
        b"jello",
        1 << 20,
        1 << 20,
    )


def test_buffers_above_the_limit_are_not_kept() -> None:
    pool = BufferPool(3 << 20)
    for size in (2, 2, 1):
        pool.lent += 1
        pool.give(Buffer(size << 20))
    assert pool.free_bytes == 3 << 20


@pytest.mark.parametrize("used", [0, 1, 3])
def test_trim_drops_the_buffers_that_were_not_needed_since_the_last_trim(used: int) -> None:
    pool = BufferPool(64 << 20)
    for buffer in [pool.take(1 << 20) for _ in range(4)]:
        pool.give(buffer)
    pool.trim()
    assert len(pool) == 4
    for buffer in [pool.take(1 << 20) for _ in range(used)]:
        pool.give(buffer)
    pool.trim()
    assert len(pool) == used
    assert pool.free_bytes == used << 20


def test_a_trim_unmaps_few_buffers_because_that_holds_up_all_connections() -> None:
    pool = BufferPool(64 << 20)
    for buffer in [pool.take(1 << 20) for _ in range(20)]:
        pool.give(buffer)
    left = []
    for _ in range(5):
        pool.trim()
        left.append((len(pool), pool.free_bytes >> 20))
    assert left == [(20, 20), (12, 12), (4, 4), (0, 0), (0, 0)]


def test_a_buffer_is_not_larger_than_the_caller_allows() -> None:
    pool = BufferPool(64 << 20)
    pool.lent += 1
    pool.give(Buffer(32 << 20))
    assert pool.take(65_536, largest=65_536).capacity == 65_536
    assert pool.take(65_536).capacity == 32 << 20


def test_a_buffer_that_cannot_grow_is_as_good_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(mmap.mmap):
        def resize(self, size: int) -> None:
            raise OSError(errno.ENOMEM, "no memory")

    monkeypatch.setattr(mmap, "mmap", Refusing)
    buffer = Buffer(65_536)
    with pytest.raises(OSError, match="no memory"):
        buffer.grow(131_072)
    buffer.view[:5] = b"still"
    assert (buffer.capacity, len(buffer.view)) == (65_536, 65_536)
