"""What is not in the page cache is read past it, into blocks, and sent from them."""

import errno
import os
import random
import threading
from typing import Any

import pytest

from kafkapy._ext import residency
from kafkapy.network.blocks import Blocks
from kafkapy.network.buffers import BufferPool
from kafkapy.network.cold import STEP, ColdReads
from kafkapy.network.connection import Connection
from kafkapy.network.read_ahead import HOT_BYTES, ReadAhead
from kafkapy.network.replies import Reply
from kafkapy.network.sends import Outbox
from kafkapy.record.file_region import CutOff, FileRegion

from .conftest import Echo, OnePool, Serve, until
from .test_cold import GatedPool, Pages

MIB = 1 << 20


class Ranges(Echo):
    """Answers `N POSITION LENGTH` with this range of the N-th file, after a head of its own."""

    files: list[FileRegion]

    def answer(self, connection: Connection, frame: bytes) -> Reply:
        if not frame[:1].isdigit():
            return super().answer(connection, frame)
        number, position, length = map(int, frame.split())
        return [b"head", FileRegion(self.files[number].handle, position, length)]


@pytest.fixture
def uncached(monkeypatch) -> None:
    """Let every kernel and file system support uncached reads."""

    def read(fd: int, buffer: memoryview, start: int, end: int, position: int) -> int:
        return os.preadv(fd, [buffer[start:end]], position)

    monkeypatch.setattr(residency, "read_uncached", read)


def supports_uncached_reads(region: FileRegion) -> bool:
    try:
        residency.read_uncached(region.handle.fd, bytearray(1), 0, 1, 0)
    except OSError:
        return False
    return True


def test_an_evicted_file_is_sent_and_not_in_the_page_cache_afterwards(serve: Serve, region_of) -> None:
    """The last bytes of the file may be: the kernel has read them ahead, and they look like bytes that others use."""
    size = HOT_BYTES + 8 * MIB
    file = region_of(random.Random(3).randbytes(size))
    data, fd = file.read(), file.handle.fd
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    was_cold = residency.resident_pages(fd, 0, size) == 0  # the kernel may ignore the request
    handler = Ranges()
    handler.files = [file]
    running = serve(handler)
    client = running.connect()
    for position in range(0, size, 2 * MIB):
        client.send(b"0 %d %d" % (position, 2 * MIB))
        assert client.exactly(4 + 2 * MIB)[4:] == data[position : position + 2 * MIB]
    if was_cold:
        supported = supports_uncached_reads(file)
        uncached, cached = running.count("network_uncached_read_bytes"), running.count("network_cached_read_bytes")
        assert (uncached >= 8 * MIB, cached > 0) == (supported, not supported)
        there = residency.resident_pages(fd, 0, size) * os.sysconf("SC_PAGESIZE")
        assert (there <= HOT_BYTES) is supported


@pytest.mark.parametrize("zero_copy", [True, False])
@pytest.mark.parametrize("memory", [4 * MIB, 64 * MIB])
def test_clients_get_the_right_bytes_of_all_files(serve: Serve, region_of, uncached, zero_copy: bool, memory) -> None:
    """With little memory, some reads go into the page cache, and blocks are freed before they are sent."""
    rng = random.Random(4)
    content = [rng.randbytes(5 * MIB + 12_345), rng.randbytes(100_000), rng.randbytes(3 * MIB)]
    handler = Ranges()
    handler.files = [region_of(each) for each in content]
    running = serve(handler, pages=Pages(), zero_copy=zero_copy, read_ahead_max_bytes=memory, num_network_threads=1)
    failures: list[BaseException] = []

    def use(seed: int) -> None:
        try:
            choose = random.Random(seed)
            client = running.connect()
            position = 0
            for _ in range(25):
                number = choose.choice((0, 0, 0, 1, 2))
                if choose.random() < 0.3 or position >= len(content[number]):
                    position = choose.randrange(len(content[number]))
                length = min(choose.choice((1, 5_000, 9_000, 300_000, 2 * MIB)), len(content[number]) - position)
                client.send(b"%d %d %d" % (number, position, length))
                assert client.exactly(4 + length)[4:] == content[number][position : position + length]
                position += length
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert running.count("network_uncached_read_bytes") > 0


def test_eight_consumers_of_one_file_read_the_disk_once(serve: Serve, region_of, uncached, monkeypatch) -> None:
    monkeypatch.setattr("kafkapy.network.processor._TRIM_S", 3600)  # however slow a consumer is
    file = region_of(random.Random(5).randbytes(12 * MIB))
    data = file.read()
    handler = Ranges()
    handler.files = [file]
    running = serve(handler, pages=Pages(), num_network_threads=1)
    right = []

    def read() -> None:
        client = running.connect()
        for position in range(0, file.length, MIB):
            client.send(b"0 %d %d" % (position, MIB))
            right.append(client.exactly(4 + MIB)[4:] == data[position : position + MIB])

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 8 * 12
    assert running.count("network_uncached_read_bytes") == file.length
    assert running.count("network_uncached_reads") == 12
    assert running.count("network_shared_reads") >= 7 * 12
    assert running.count("network_read_buffer_bytes") == file.length
    assert running.count("network_read_buffers_exhausted") == 0


def test_a_file_system_without_uncached_reads_is_asked_once(serve: Serve, region_of, monkeypatch) -> None:
    asked = []

    def read(*args: Any) -> int:
        asked.append(args)
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(residency, "read_uncached", read)
    file = region_of(random.Random(3).randbytes(3_500_000))
    handler = Ranges()
    handler.files = [file]
    running = serve(handler, pages=Pages(), num_network_threads=1, read_ahead_bytes=0)
    client = running.connect()
    client.send(b"0 0 3500000")
    assert client.exactly(4 + file.length)[4:] == file.read()
    assert len(asked) == 1
    assert running.count("network_uncached_read_bytes") == 0
    assert running.count("network_cached_read_bytes") >= file.length


def test_the_error_of_an_uncached_read_closes_the_connection_with_the_reason(
    serve: Serve, region_of, monkeypatch, caplog
) -> None:
    def read(*args: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(residency, "read_uncached", read)
    handler = Ranges()
    handler.files = [region_of(bytes(MIB))]
    running = serve(handler, pages=Pages())
    client = running.connect()
    client.send(b"0 0 1000000")
    assert client.exactly(4) == b"head"
    assert client.is_closed()
    assert "in the middle of a reply: [Errno 5] Input/output error" in caplog.text


def test_a_region_that_is_truncated_after_it_was_read_is_not_sent(serve: Serve, region_of, uncached) -> None:
    pool, handler = GatedPool(), Ranges()
    file = region_of(bytes(2 * MIB))
    file.handle.cut_off = CutOff()
    handler.files = [file]
    running = serve(handler, pages=Pages(), disk_pool=pool, read_ahead_bytes=0)
    client = running.connect()
    client.send(b"0 0 1000000")
    until(lambda: len(pool.jobs) == 1)
    fn, args, done = pool.jobs.pop()
    count = fn(*args)
    file.handle.cut_off.truncated(500_000)
    done(count, None)
    assert client.exactly(4) == b"head"
    assert client.is_closed()


@pytest.fixture
def disk() -> GatedPool:
    return GatedPool()


@pytest.fixture
def memory() -> Blocks:
    return Blocks(BufferPool(0), 16 * STEP)


@pytest.fixture
def cold(disk: GatedPool, memory: Blocks) -> ColdReads:
    return ColdReads(OnePool(disk), lambda fn, *args: fn(*args), 2 * STEP, 16 * STEP, memory)


class Reader:
    """A connection that waits for the first byte of a region."""

    def __init__(self, cold: ColdReads, region: FileRegion) -> None:
        self.box = Outbox()
        self.ahead = ReadAhead(cold, Pages())
        self.box.add([region])
        self.ahead.note([region])
        self.region = region
        self.there: list[int] = []

    def demand(self) -> None:
        self.ahead.demand(
            self.region.handle, self.region.position, self.region.length, lambda n, error: self.there.append(n)
        )

    def bytes(self, position: int = 0) -> bytes | None:
        view = self.ahead.bytes_at(self.region.handle, position, STEP)
        return None if view is None else bytes(view)


def part(file: FileRegion, first: int, count: int = 1) -> FileRegion:
    return FileRegion(file.handle, first * STEP, count * STEP)


@pytest.fixture
def file(region_of) -> FileRegion:
    return region_of(random.Random(9).randbytes(12 * STEP))


def run_all(disk: GatedPool) -> int:
    count = 0
    while disk.jobs:
        disk.run()
        count += 1
    return count


def test_readers_of_the_same_bytes_share_one_read_also_if_one_comes_later(cold, disk, file, uncached) -> None:
    readers = [Reader(cold, part(file, 0)) for _ in range(8)]
    for reader in readers[:7]:
        reader.demand()
    assert len(disk.jobs) == 1
    disk.run()
    readers[7].demand()
    assert disk.jobs == []
    for reader in readers:
        assert reader.there == [STEP]
        assert reader.bytes() == file.read()[:STEP]


def test_what_one_reader_has_read_ahead_is_not_read_again_for_another(cold, disk, file, uncached) -> None:
    first, second = Reader(cold, part(file, 0, 4)), Reader(cold, part(file, 0, 4))
    for reader, expected in ((first, 2), (second, 0)):
        reader.demand()
        run_all(disk)
        reader.ahead.resume(reader.box)
        assert run_all(disk) + (reader is second) == 1 or expected
    assert cold.uncached_bytes == 2 * STEP


def test_blocks_that_were_sent_are_released_and_those_of_a_closed_connection_too(
    cold, disk, memory, file, uncached
) -> None:
    reader = Reader(cold, part(file, 0, 4))
    reader.demand()
    run_all(disk)
    reader.ahead.resume(reader.box)
    run_all(disk)
    blocks = list(memory._blocks)
    assert [block.readers for block in blocks] == [1, 1]
    assert reader.bytes(STEP) == file.read()[STEP : 2 * STEP]
    assert [block.readers for block in blocks] == [0, 1]
    reader.ahead.drop()
    assert [block.readers for block in blocks] == [0, 0]


def test_memory_is_bounded_and_unused_blocks_make_room(cold, disk, memory, region_of, uncached) -> None:
    files = [region_of(bytes(STEP)) for _ in range(20)]
    readers = [Reader(cold, part(each, 0)) for each in files]
    for reader in readers:
        reader.demand()
    run_all(disk)
    assert len(memory) == 16
    assert (cold.uncached_bytes, cold.cached_bytes) == (16 * STEP, 4 * STEP)  # the rest by the page cache
    readers[0].ahead.drop()
    later = Reader(cold, part(region_of(bytes(STEP)), 0))
    later.demand()
    run_all(disk)
    assert len(memory) == 16
    assert later.bytes() == bytes(STEP)
    assert memory.find(files[0].handle, 0) is None


def test_small_reads_take_small_buffers(cold, disk, memory, region_of, uncached) -> None:
    files = [region_of(bytes([number]) * 50_000) for number in range(200)]
    readers = [Reader(cold, each) for each in files]
    for reader in readers:
        reader.demand()
    run_all(disk)
    assert cold.cached_bytes == 0
    assert memory.bytes == 200 * 65_536
    assert [reader.bytes() for reader in readers] == [each.read() for each in files]


def test_a_hole_in_what_the_page_cache_has_is_filled(cold, disk, memory, region_of, uncached) -> None:
    file = region_of(bytes(HOT_BYTES + 4 * STEP))
    hole = 2 * STEP + 12_345
    reader = Reader(cold, part(file, 2))
    reader.ahead._pages.resident = lambda fd, position, length: not position <= hole < position + length
    reader.demand()
    run_all(disk)
    assert (cold.cached_bytes, cold.uncached_bytes) == (STEP, 0)
    assert reader.bytes(2 * STEP) is None


def test_unused_blocks_are_freed_after_a_while(cold, disk, memory, file, uncached) -> None:
    used, unused = Reader(cold, part(file, 0)), Reader(cold, part(file, 3))
    for reader in (used, unused):
        reader.demand()
        run_all(disk)
    unused.ahead.drop()
    memory.trim()
    assert len(memory) == 2
    memory.trim()
    assert len(memory) == 1
    assert used.bytes() is not None


def test_few_unused_blocks_are_freed_at_a_time(cold, disk, memory, region_of, uncached) -> None:
    reader = Reader(cold, region_of(bytes(12 * STEP)))
    for position in range(0, 12 * STEP, STEP):
        reader.ahead.demand(reader.region.handle, position, STEP, lambda n, error: None)
        run_all(disk)
    reader.ahead.drop()
    held = []
    for _ in range(4):
        memory.trim()
        held.append((len(memory), memory.bytes // STEP))
    assert held == [(12, 12), (4, 4), (0, 0), (0, 0)]


def test_the_buffer_of_an_unused_block_is_used_again(cold, disk, memory, region_of, uncached) -> None:
    readers = [Reader(cold, part(region_of(bytes(STEP)), 0)) for _ in range(17)]
    for reader in readers[:16]:
        reader.demand()
        run_all(disk)
    buffers = {id(block.buffer) for block in memory._blocks}
    readers[3].ahead.drop()
    readers[16].demand()
    run_all(disk)
    assert {id(block.buffer) for block in memory._blocks} == buffers
    assert memory.bytes == 16 * STEP


@pytest.mark.parametrize("fails", [False, True])
def test_a_read_that_no_reader_waits_for_any_more_takes_no_memory(cold, disk, memory, file, uncached, fails) -> None:
    reader = Reader(cold, part(file, 0))
    reader.demand()
    if fails:
        disk.run(fail=True)
        assert reader.there == [0]
    else:
        reader.ahead.drop()
        disk.run()
        assert reader.there == []
    assert len(memory) == 0
    assert memory.bytes == 0


def test_bytes_that_are_not_final_are_never_sent_from_a_block(serve: Serve, region_of, uncached) -> None:
    """A segment that was made long in advance: behind its records are zeros, until records are appended."""
    records = random.Random(7).randbytes(6 * MIB)
    file = region_of(records[: 3 * MIB] + bytes(3 * MIB))
    file.handle.final = 3 * MIB
    handler = Ranges()
    handler.files = [file]
    running = serve(handler, pages=Pages(), num_network_threads=1)
    client = running.connect()
    for position in range(0, 6 * MIB, MIB // 2):
        if position == file.handle.final:
            with open(file.handle.path, "r+b") as segment:
                segment.seek(position)
                segment.write(records[position : position + MIB])
            file.handle.final += MIB
        client.send(b"0 %d %d" % (position, MIB // 2))
        assert client.exactly(4 + MIB // 2)[4:] == records[position : position + MIB // 2]
    assert running.count("network_uncached_read_bytes") >= 3 * MIB


def test_a_reader_of_many_small_blocks_of_others_goes_on(cold, disk, memory, file, uncached) -> None:
    small = STEP // 8
    others = [Reader(cold, FileRegion(file.handle, position, small)) for position in range(0, 2 * STEP, small)]
    for other in others:
        other.demand()
        run_all(disk)
    reader = Reader(cold, part(file, 0, 2))
    got = b""
    while len(got) < 2 * STEP:
        view = reader.ahead.bytes_at(file.handle, len(got), STEP)
        if not view:
            asked = len(reader.there)
            reader.ahead.demand(file.handle, len(got), small, lambda n, error: reader.there.append(n))
            run_all(disk)
            assert len(reader.there) == asked + 1
            reader.ahead.resume(reader.box)
            view = reader.ahead.bytes_at(file.handle, len(got), STEP)
        assert view, "the block that was demanded is not kept"
        reader.box.advance(len(view))
        got += bytes(view)
        reader.ahead.resume(reader.box)
    assert got == file.read()[: 2 * STEP]


def test_a_reader_that_pauses_gives_its_memory_back(cold, disk, memory, file, uncached) -> None:
    reader = Reader(cold, part(file, 0, 4))
    reader.demand()
    run_all(disk)
    for _ in range(4):
        cold.trim()
    assert len(memory) == 0
    assert memory.bytes == 0
    reader.demand()  # it continues
    run_all(disk)
    assert reader.bytes() == file.read()[:STEP]
