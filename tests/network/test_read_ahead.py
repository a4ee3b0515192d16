"""Reading ahead: the next pages of a reader are in memory when it needs them, and never more than the window."""

import random
from collections import deque
from collections.abc import Iterator

import pytest

from kafkapy.network.cold import STEP, ColdReads
from kafkapy.network.drop_behind import DropBehind
from kafkapy.network.read_ahead import CALM_BYTES, ReadAhead
from kafkapy.network.replies import Reply
from kafkapy.network.sends import Outbox
from kafkapy.record.file_region import FileRegion
from kafkapy.runtime.disk_pool import DiskPool

from .conftest import Echo, OnePool, Serve, until

SIZE = 12 * STEP + 1000


class Memory:
    """A page cache that has the (descriptor, STEP) pairs in `steps`."""

    def __init__(self) -> None:
        self.steps: set[tuple[int, int]] = set()

    def add(self, fd: int, start: int, end: int) -> None:
        self.steps.update((fd, step) for step in range(start // STEP, -(-end // STEP)))

    def resident(self, fd: int, position: int, length: int) -> bool:
        return all((fd, step) in self.steps for step in range(position // STEP, -(-(position + length) // STEP)))

    ready = resident

    def read_now(self, fd: int, buffer: bytearray, start: int, end: int, position: int) -> int:
        raise AssertionError("nothing here is small")


class Disk(DiskPool):
    """A pool that does one read for each call of `run`."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(1)
        self.memory = memory
        self.jobs: deque = deque()
        self.read: list[tuple[int, int]] = []  # in STEPs

    def submit(self, fn, *args, done=None) -> None:
        self.jobs.append((fn.__self__, done))

    def run(self, error: OSError | None = None) -> bool:
        if not self.jobs:
            return False
        load, done = self.jobs.popleft()
        if not load.waiting:
            done(-1, None)
        elif error is not None:
            done(None, error)
        else:
            end = min(load.end, SIZE)
            self.read.append((load.start // STEP, -(-end // STEP)))
            self.memory.add(load.handle.fd, load.start, end)
            done(max(0, end - load.start), None)
        return True

    def run_all(self) -> list[tuple[int, int]]:
        began = len(self.read)
        while self.run():
            pass
        return self.read[began:]


class Reader:
    """A connection that sends only in `send` and `finish`."""

    def __init__(self, cold: ColdReads, memory: Memory) -> None:
        self.box = Outbox()
        self.ahead = ReadAhead(cold, memory)
        self.box.ahead = self.ahead

    def reply(self, *regions: FileRegion) -> None:
        for region in regions:
            self.box.add([b"head", region])
        self.ahead.note(regions, alone=True)

    def send(self, size: int) -> None:
        self.box.advance(size)

    def finish(self) -> bool:
        self.box.clear()
        return self.ahead.resume(self.box)


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def disk(memory: Memory) -> Disk:
    return Disk(memory)


@pytest.fixture(params=["drop behind", "keep"])
def cold(disk: Disk, request) -> Iterator[ColdReads]:
    behind = DropBehind(16 * STEP, 6 * STEP) if request.param == "drop behind" else None
    yield ColdReads(OnePool(disk), lambda fn, *args: fn(*args), 4 * STEP, 16 * STEP, behind)
    if behind is not None:
        behind.stop()


@pytest.fixture
def file(region_of) -> FileRegion:
    return region_of(bytes(SIZE))


def part(file: FileRegion, first: int, count: int = 1) -> FileRegion:
    """Return a region of `count` STEPs of the file."""
    return FileRegion(file.handle, first * STEP, min(count * STEP, SIZE - first * STEP))


def test_of_a_reply_only_the_window_is_read_and_more_as_it_is_sent(disk, cold, memory, file) -> None:
    reader = Reader(cold, memory)
    reader.reply(part(file, 0, 8))
    assert reader.ahead.resume(reader.box)
    assert disk.run_all() == [(0, 1), (1, 2), (2, 3), (3, 4)]
    reader.send(4 + STEP)
    reader.ahead.resume(reader.box)
    assert disk.run_all() == [(4, 5)]
    assert cold.ahead == 5


def test_reading_ahead_of_a_reply_begins_when_the_reader_continues_in_order(disk, cold, memory, file) -> None:
    reader = Reader(cold, memory)
    reader.reply(part(file, 0))
    assert reader.finish()
    assert disk.run_all() == []
    reader.reply(part(file, 1))
    reader.ahead.resume(reader.box)
    assert disk.run_all() == [(1, 2), (2, 3), (3, 4), (4, 5)]
    assert reader.finish()
    assert disk.run_all() == [(5, 6)]
    reader.reply(part(file, 9))  # it has jumped
    assert reader.finish()
    assert disk.run_all() == []


def test_the_end_of_the_file_is_the_end(disk, cold, memory, file) -> None:
    reader = Reader(cold, memory)
    reader.reply(part(file, 10))
    reader.reply(part(file, 11))
    assert reader.finish()
    assert disk.run_all() == [(12, 13)]
    reader.reply(part(file, 12))
    assert reader.finish()
    reader.reply(part(file, 12))
    assert not reader.finish()  # all pages were in memory twice: it is no longer a cold reader
    assert disk.run_all() == []


def test_pages_in_memory_are_skipped_unless_the_kernel_may_have_read_them_ahead(disk, cold, memory, file) -> None:
    memory.add(file.handle.fd, STEP, 3 * STEP)
    reader = Reader(cold, memory)
    reader.reply(part(file, 0, 4))
    reader.ahead.resume(reader.box)
    skipped = [(1, 2), (2, 3)] if cold.behind is None else []
    assert disk.run_all() == [step for step in [(0, 1), (1, 2), (2, 3), (3, 4)] if step not in skipped]


def test_a_reader_that_finds_all_pages_in_memory_soon_stops_reading_ahead(disk, cold, memory, file) -> None:
    memory.add(file.handle.fd, 0, SIZE)
    reader = Reader(cold, memory)
    sent = 0
    for first in range(100):
        reader.reply(part(file, first % 12))
        sent += STEP
        if not reader.finish():
            break
    assert sent <= CALM_BYTES + STEP
    reader.ahead.drop()
    assert not cold.on_trim
    assert disk.run_all() == []


def test_many_files_of_a_reply_share_the_window(disk, cold, memory, region_of) -> None:
    files = [region_of(bytes(4 * STEP)) for _ in range(8)]
    reader = Reader(cold, memory)
    reader.reply(*[FileRegion(file.handle, 0, STEP) for file in files])
    reader.ahead.resume(reader.box)
    wanted = []
    while disk.jobs:
        wanted.append(disk.jobs[0][0].handle)
        disk.run()
    assert wanted == [file.handle for file in files[:4]]


def test_a_reader_that_is_gone_leaves_no_reads(disk, cold, memory, file) -> None:
    one, two = Reader(cold, memory), Reader(cold, memory)
    one.reply(part(file, 0, 4))
    two.reply(part(file, 0, 1))
    calls: list[int] = []
    one.ahead.resume(one.box)
    two.ahead.demand(file.handle, 0, STEP, lambda count, error: calls.append(count))
    one.ahead.drop()
    assert disk.run_all() == [(0, 1)]  # the second read waits for the first
    assert calls == [STEP]
    one = Reader(cold, memory)
    one.reply(part(file, 4, 4))
    one.ahead.resume(one.box)
    one.ahead.drop()
    two.ahead.drop()
    assert disk.run_all() == []
    assert not cold.on_trim


def test_pages_that_were_read_ahead_and_evicted_are_read_again(disk, cold, memory, file) -> None:
    reader = Reader(cold, memory)
    reader.reply(part(file, 0, 4))
    reader.ahead.resume(reader.box)
    disk.run_all()
    memory.steps.clear()
    calls: list[int] = []
    reader.ahead.demand(file.handle, STEP, 3 * STEP, lambda count, error: calls.append(count))
    reader.send(4 + STEP)
    reader.ahead.resume(reader.box)
    assert disk.run_all() == [(1, 2)]  # one read at a time
    assert calls == [STEP]
    reader.ahead.resume(reader.box)
    assert disk.run_all() == [(2, 3), (3, 4)]


def test_a_disk_error_ends_reading_ahead_and_reaches_the_demanded_read(disk, cold, memory, file) -> None:
    reader = Reader(cold, memory)
    reader.reply(part(file, 0))
    reader.reply(part(file, 1))
    reader.ahead.resume(reader.box)
    assert disk.run(OSError("Input/output error"))
    assert not disk.jobs
    calls: list[tuple[int, object]] = []
    failure = OSError("Input/output error")
    reader.ahead.demand(file.handle, STEP, STEP, lambda count, error: calls.append((count, error)))
    disk.run(failure)
    assert calls == [(0, failure)]


def test_without_a_window_only_what_a_reply_waits_for_is_read(disk, memory, file) -> None:
    cold = ColdReads(OnePool(disk), lambda fn, *args: fn(*args), 0, 16 * STEP)
    reader = Reader(cold, memory)
    reader.reply(part(file, 0, 8))
    reader.ahead.resume(reader.box)
    assert not disk.jobs


class InOrder(Echo):
    """A handler that answers `N` with the N-th MiB of the file."""

    region: FileRegion

    def answer(self, connection, frame: bytes) -> Reply:
        first = int(frame) * STEP
        return [FileRegion(self.region.handle, first, STEP)]


def test_a_reader_in_order_waits_for_the_disk_once_or_twice(serve: Serve, region_of) -> None:
    """The client requests each reply when the server has read the part that follows it."""
    data = random.Random(5).randbytes(8 * STEP)
    memory = Memory()
    disk = Disk(memory)
    handler = InOrder()
    handler.region = region_of(data)
    running = serve(handler, pages=memory, disk_pool=disk, read_ahead_bytes=2 * STEP)
    client = running.connect()
    got = b""
    for number in range(8):
        client.send(b"%d" % number)
        if number < 2:
            until(lambda: bool(disk.jobs))
        while len(got) < (number + 1) * STEP:
            while disk.run():
                pass
            got += client.sock.recv(1 << 20)
        if number:
            there = min(number + 3, 8)
            until(lambda there=there: disk.run() or len(memory.steps) >= there)
    assert got == data
    assert running.count("network_cold_reads") == 2
    assert len(disk.read) == 8
