"""Pages that were read from disk for consumers are dropped from the page cache when the consumers have passed them."""

import os
import random
import threading
from collections import deque
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext import residency
from kafkapy.network.cold import STEP, ColdReads
from kafkapy.network.connection import Connection
from kafkapy.network.drop_behind import LEAST, PIECE, DropBehind
from kafkapy.network.read_ahead import HOT_BYTES, ReadAhead
from kafkapy.network.replies import Reply
from kafkapy.network.sends import Outbox
from kafkapy.record.file_region import FileHandle, FileRegion
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.threads import NoThread

from .conftest import Client, Echo, OnePool, Serve, until

MIB = 1 << 20


class Ranges(Echo):
    """A handler that answers `N POSITION LENGTH` with "head" and this range of the N-th file."""

    files: list[FileRegion]

    def answer(self, connection: Connection, frame: bytes) -> Reply:
        if not frame[:1].isdigit():
            return super().answer(connection, frame)
        number, position, length = map(int, frame.split())
        return [b"head", FileRegion(self.files[number].handle, position, length)]


def in_memory(file: FileRegion) -> int:
    return residency.resident_pages(file.handle.fd, 0, file.length) * os.sysconf("SC_PAGESIZE")


def evicted(file: FileRegion) -> bool:
    """Ask the kernel to drop the file from the page cache. Return False if it has not, as on a tmpfs."""
    os.fsync(file.handle.fd)
    os.posix_fadvise(file.handle.fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return in_memory(file) == 0


def read_in_order(client: Client, data: bytes) -> None:
    """Fetch the first file of Ranges, 2 MiB at a time, and check that it has these bytes."""
    for position in range(0, len(data), 2 * MIB):
        client.send(b"0 %d %d" % (position, 2 * MIB))
        assert client.exactly(4 + 2 * MIB)[4:] == data[position : position + 2 * MIB]


@pytest.mark.parametrize("zero_copy", [True, False])
def test_an_evicted_file_is_sent_and_not_in_the_page_cache_afterwards(serve: Serve, region_of, zero_copy: bool) -> None:
    file = region_of(random.Random(3).randbytes(HOT_BYTES + 8 * MIB))
    data = file.read()
    was_cold = evicted(file)
    handler = Ranges()
    handler.files = [file]
    running = serve(handler, zero_copy=zero_copy)
    client = running.connect()
    read_in_order(client, data)
    client.close()
    # If the disk is so fast that no reply has to wait, nothing is dropped. And the kernel does not drop pages that are
    # in use at the moment.
    if was_cold and running.count("network_cold_reads"):
        until(lambda: running.count("network_dropped_bytes") >= file.length / 2)
        until(lambda: in_memory(file) <= file.length / 2)


def test_a_file_in_memory_stays_there(serve: Serve, region_of) -> None:
    file = region_of(random.Random(3).randbytes(HOT_BYTES + 8 * MIB))
    data = file.read()
    handler = Ranges()
    handler.files = [file]
    running = serve(handler)
    client = running.connect()
    read_in_order(client, data)
    assert in_memory(file) > file.length * 0.9  # the kernel may take some pages
    assert running.count("network_dropped_bytes") == 0


def test_without_drop_behind_an_evicted_file_is_in_memory_afterwards(serve: Serve, region_of) -> None:
    file = region_of(bytes(HOT_BYTES + 8 * MIB))
    data = file.read()
    evicted(file)
    handler = Ranges()
    handler.files = [file]
    running = serve(handler, drop_behind=False)
    client = running.connect()
    read_in_order(client, data)
    assert in_memory(file) > file.length * 0.9  # the kernel may take some pages
    assert running.count("network_dropped_bytes") == 0


@pytest.mark.parametrize("zero_copy", [True, False])
@pytest.mark.parametrize("memory", [MIB, 64 * MIB])
def test_clients_get_the_right_bytes_of_all_files(serve: Serve, region_of, zero_copy: bool, memory: int) -> None:
    """They read in order and jump, while another thread evicts the files again and again."""
    rng = random.Random(4)
    content = [rng.randbytes(5 * MIB + 12_345), rng.randbytes(100_000), rng.randbytes(3 * MIB)]
    handler = Ranges()
    handler.files = [region_of(each) for each in content]
    running = serve(handler, zero_copy=zero_copy, read_ahead_max_bytes=memory)
    failures: list[BaseException] = []
    is_over = threading.Event()

    def evict() -> None:
        while not is_over.wait(0.005):
            for file in handler.files:
                evicted(file)

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

    evicting = threading.Thread(target=evict)
    evicting.start()
    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    is_over.set()
    evicting.join()
    assert failures == []


def test_eight_consumers_of_one_file_read_the_disk_once(serve: Serve, region_of) -> None:
    file = region_of(random.Random(5).randbytes(24 * MIB))
    data = file.read()
    was_cold = evicted(file)
    handler = Ranges()
    handler.files = [file]
    running = serve(handler, num_network_threads=1)
    clients = [running.connect() for _ in range(8)]
    for position in range(0, file.length, MIB):
        for client in clients:
            client.send(b"0 %d %d" % (position, MIB))
        for client in clients:
            assert client.exactly(4 + MIB)[4:] == data[position : position + MIB]
    if was_cold:
        assert running.count("network_disk_read_bytes") <= file.length


class Dropped(DiskPool):
    """A pool that records in `ranges` which bytes are to be dropped from the page cache, and drops nothing."""

    def __init__(self) -> None:
        super().__init__(1)
        self.ranges: list[tuple[int, int]] = []

    def submit(self, fn, *args, done=None) -> None:
        _, start, end = args
        self.ranges.append((start, end))


@pytest.fixture
def pool() -> Dropped:
    return Dropped()


SEGMENT = "/logs/topic-0/00000000000000000000.log"


def dropping(pool: DiskPool, limit: int = 16 * MIB) -> DropBehind:
    behind = DropBehind(limit, 4 * MIB)
    behind._pool = pool
    return behind


@pytest.fixture
def behind(pool: Dropped) -> DropBehind:
    return dropping(pool)


def test_what_a_reader_has_passed_is_removed_and_tried_once_more_with_the_next_piece(behind, pool) -> None:
    behind.move("reader", SEGMENT, MIB)
    for position in range(MIB, 9 * MIB, MIB):
        behind.note_read(SEGMENT, position, position + MIB)
    assert pool.ranges == []
    for position in (2 * MIB, 3 * MIB, 5 * MIB, 6 * MIB + 1, 8 * MIB):
        behind.move("reader", SEGMENT, position)
    assert pool.ranges == [(MIB, 4 * MIB), (MIB, 6 * MIB), (4 * MIB, 8 * MIB)]
    assert behind.dropped_bytes == 7 * MIB
    behind.leave("reader", SEGMENT)
    assert pool.ranges[3:] == [(6 * MIB, 9 * MIB)]
    assert len(behind) == 0


def test_what_was_sent_counts_as_read_since_the_position_before(behind, pool) -> None:
    behind.move("reader", SEGMENT, 0)
    behind.move("reader", SEGMENT, 3 * MIB, 0)
    behind.move("reader", SEGMENT, 6 * MIB, 3 * MIB)
    assert pool.ranges == [(0, 2 * MIB), (0, 6 * MIB)]


def test_what_a_reader_behind_needs_is_kept_as_far_as_its_share(behind, pool) -> None:
    behind.move("first", SEGMENT, 0)
    behind.move("second", SEGMENT, 0)
    behind.note_read(SEGMENT, 0, 14 * MIB)
    behind.move("first", SEGMENT, 8 * MIB)
    assert pool.ranges == []
    behind.move("second", SEGMENT, 4 * MIB)
    assert pool.ranges == [(0, 4 * MIB)]
    behind.move("first", SEGMENT, 14 * MIB)
    assert pool.ranges[1:] == [(8 * MIB, 14 * MIB)]  # the second reader may still need 4 to 8 MiB
    assert behind.read_until(SEGMENT, 4 * MIB) == 8 * MIB


def test_a_reader_that_leaves_with_nothing_in_front_of_it_removes_nothing_more(behind, pool) -> None:
    behind.move("first", SEGMENT, 0)
    behind.move("second", SEGMENT, 0)
    behind.note_read(SEGMENT, 0, 14 * MIB)
    behind.move("first", SEGMENT, 14 * MIB)
    assert pool.ranges == [(4 * MIB, 14 * MIB)]
    behind.leave("first", SEGMENT)
    assert pool.ranges == [(4 * MIB, 14 * MIB)]  # an empty range means all of the rest of the file


def test_a_reader_that_comes_to_what_another_has_read_finds_it(behind, pool) -> None:
    behind.move("first", SEGMENT, 8 * MIB)
    behind.move("second", SEGMENT, 2 * MIB)
    behind.note_read(SEGMENT, 8 * MIB, 10 * MIB)
    behind.move("first", SEGMENT, 10 * MIB)
    assert pool.ranges == []
    assert behind.read_until(SEGMENT, 9 * MIB) == 10 * MIB
    assert behind.read_until(SEGMENT, 7 * MIB) == 7 * MIB
    behind.leave("second", SEGMENT)
    assert pool.ranges == [(8 * MIB, 10 * MIB)]


def test_readers_far_from_each_other_do_not_keep_what_the_other_has_read(behind, pool) -> None:
    behind.move("first", SEGMENT, 0)
    behind.move("second", SEGMENT, 100 * MIB)
    behind.note_read(SEGMENT, 0, 4 * MIB)
    behind.note_read(SEGMENT, 100 * MIB, 104 * MIB)
    behind.move("first", SEGMENT, 4 * MIB)
    behind.move("second", SEGMENT, 104 * MIB)
    assert pool.ranges == [(0, 4 * MIB), (100 * MIB, 104 * MIB)]


def test_what_a_reader_has_jumped_away_from_is_removed(behind, pool) -> None:
    behind.move("reader", SEGMENT, 0)
    behind.note_read(SEGMENT, 0, 3 * MIB)
    behind.move("reader", SEGMENT, 60 * MIB)
    assert pool.ranges == [(0, 3 * MIB)]


def test_readers_three_mib_apart_in_many_files_find_all_that_the_first_has_read(behind, pool) -> None:
    for number in range(64):
        behind.move("first", f"{number}.log", 3 * MIB)
        behind.move("second", f"{number}.log", 0)
    for position in range(0, 30 * MIB, MIB):
        for number in range(64):
            behind.note_read(f"{number}.log", position, position + 2 * MIB)
            behind.move("first", f"{number}.log", position + 3 * MIB, position)
            behind.move("second", f"{number}.log", position)
        assert all(end <= position for _, end in pool.ranges)


def test_a_read_that_ends_after_its_reader_has_left_is_not_noted(behind) -> None:
    behind.move("reader", SEGMENT, 0)
    behind.leave("reader", SEGMENT)
    behind.leave("reader", SEGMENT)
    behind.note_read(SEGMENT, 0, MIB)
    assert len(behind) == 0
    assert behind.read_until(SEGMENT, 0) == 0


def test_a_pool_without_a_thread_leaves_the_pages_to_the_kernel(behind, pool, monkeypatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise NoThread("drop-behind-0", RuntimeError("out of threads"))

    monkeypatch.setattr(pool, "submit", refuse)
    behind.move("reader", SEGMENT, 0)
    behind.move("reader", SEGMENT, 4 * MIB, 0)
    assert len(behind) == 1


def test_a_file_that_was_deleted_is_no_error(tmp_path: Path, caplog) -> None:
    behind = DropBehind(16 * MIB, 4 * MIB)
    behind.move("reader", str(tmp_path / "deleted"), 0)
    behind.move("reader", str(tmp_path / "deleted"), 4 * MIB, 0)
    behind.stop()
    behind.move("reader", str(tmp_path / "deleted"), 8 * MIB, 4 * MIB)
    assert behind.dropped_bytes == 8 * MIB
    assert caplog.text == ""


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["read", "jump", "leave"]), st.integers(0, 40)), max_size=80)
)
def test_nothing_is_removed_that_a_reader_may_have_read_ahead_and_what_is_kept_is_bounded(steps) -> None:
    """Each reader has 3 MiB in front of it, reads one MiB and moves behind it, jumps, or leaves."""
    pool = Dropped()
    behind = dropping(pool, 8 * MIB)
    positions: dict[int, int] = {}
    for reader, what, place in steps:
        if what == "leave":
            positions.pop(reader, None)
            behind.leave(reader, SEGMENT)
        else:
            position = place * MIB if what == "jump" or reader not in positions else positions[reader]
            behind.move(reader, SEGMENT, position)
            positions[reader] = position
            behind.note_read(SEGMENT, position, position + 3 * MIB)
            if what == "read":
                positions[reader] = position + MIB
                behind.move(reader, SEGMENT, position + MIB)
        for start, end in pool.ranges:
            assert all(end <= position or position + 3 * MIB <= start for position in positions.values())
        pool.ranges.clear()
        kept = [each for file in behind._files.values() for each in file.ranges]
        assert all(before.end < after.start for before, after in pairwise(kept))
        assert sum(each.end - each.start for each in kept) <= 4 * (LEAST + 4 * MIB + 2 * PIECE)
        assert bool(behind._files) == bool(positions)


class Steps:
    """A page cache that has the STEPs in `there`."""

    def __init__(self) -> None:
        self.there: set[int] = set()

    def resident(self, fd: int, position: int, length: int) -> bool:
        return self.there.issuperset(range(position // STEP, -(-(position + length) // STEP)))


class Loads(DiskPool):
    """A pool whose reads, done by `run`, load `ahead` further STEPs, as the kernel does. It records in `dropped` what
    is to be dropped."""

    def __init__(self, pages: Steps) -> None:
        super().__init__(1)
        self.pages = pages
        self.ahead = 0
        self.jobs: deque = deque()
        self.dropped: list[tuple[int, int]] = []  # in STEPs

    def submit(self, fn, *args, done=None) -> None:
        if args:
            _, start, end = args
            self.dropped.append((start // STEP, end // STEP))
        else:
            self.jobs.append((fn.__self__, done))

    def run(self) -> None:
        while self.jobs:
            load, done = self.jobs.popleft()
            self.pages.there.update(range(load.start // STEP, -(-load.end // STEP) + self.ahead))
            done(load.end - load.start, None)


class Consumer:
    """A cold reader that reads a file in replies of one STEP."""

    def __init__(self, cold: ColdReads, loads: Loads, file: FileRegion) -> None:
        self.loads = loads
        self.file = file
        self.box = Outbox()
        self.ahead = ReadAhead(cold, loads.pages)  # type: ignore[arg-type]
        self.box.ahead = self.ahead

    def fetch(self, step: int) -> bool:
        """Get the reply with this STEP; return False if the read-ahead has ended."""
        part = FileRegion(self.file.handle, step * STEP, STEP)
        self.box.add([part])
        self.ahead.note([part], alone=True)
        if not self.loads.pages.resident(0, part.position, part.length):
            self.ahead.demand(part.handle, part.position, part.length, lambda count, error: None)
            self.loads.run()
        self.box.clear()
        goes_on = self.ahead.resume(self.box)
        self.loads.run()
        return goes_on


@pytest.fixture
def pages() -> Steps:
    return Steps()


@pytest.fixture
def loads(pages: Steps) -> Loads:
    return Loads(pages)


@pytest.fixture
def cold(loads: Loads) -> ColdReads:
    behind = dropping(loads, 64 * STEP)
    return ColdReads(OnePool(loads), lambda fn, *args: fn(*args), 2 * STEP, 16 * STEP, behind)


@pytest.fixture
def file(region_of) -> FileRegion:
    return region_of(bytes(64 * STEP))


def test_what_the_kernel_has_read_ahead_is_removed_too(cold, pages, loads, file) -> None:
    loads.ahead = 8
    consumer = Consumer(cold, loads, file)
    for step in range(24):
        assert consumer.fetch(step)
    assert loads.dropped[-1][1] == 22


def test_the_end_of_a_file_that_the_kernel_has_read_ahead_is_removed_too(cold, pages, loads, file) -> None:
    loads.ahead = 8
    consumer = Consumer(cold, loads, file)
    for step in range(64):
        consumer.fetch(step)
    consumer.ahead.drop()
    assert loads.dropped[-1][1] == 64


def test_a_file_that_was_written_to_a_moment_ago_stays_in_memory(cold, pages, loads, file) -> None:
    os.utime(file.handle.path)
    consumer = Consumer(cold, loads, file)
    for step in range(40):
        consumer.fetch(step)
    consumer.ahead.drop()
    assert cold.bytes == 40 * STEP + 2 * STEP
    assert loads.dropped == []


def test_a_reader_whose_file_is_written_to_meanwhile_leaves_the_rest_in_memory(cold, pages, loads, file) -> None:
    consumer = Consumer(cold, loads, file)
    for step in range(60):
        if step == 40:
            os.utime(file.handle.path)
        consumer.fetch(step)
    consumer.ahead.drop()
    assert 36 <= max(end for _, end in loads.dropped) <= 44


def test_a_reader_that_comes_to_what_others_use_leaves_it_in_memory(cold, pages, loads, file) -> None:
    pages.there.update(range(8, 64))
    consumer = Consumer(cold, loads, file)
    for step in range(30):
        consumer.fetch(step)
    consumer.ahead.drop()
    assert max(end for _, end in loads.dropped) <= 8


def test_a_hole_in_what_others_use_stays_in_memory_when_it_was_read(cold, pages, loads, file) -> None:
    pages.there.update(set(range(64)) - {2})
    consumer = Consumer(cold, loads, file)
    for step in range(10):
        consumer.fetch(step)
    consumer.ahead.drop()
    assert cold.bytes == STEP
    assert loads.dropped == []


def test_what_a_reader_has_jumped_over_is_not_removed(cold, pages, loads, file) -> None:
    consumer = Consumer(cold, loads, file)
    for step in (0, 1, 2, 3, 40, 41, 42, 43):
        consumer.fetch(step)
    consumer.ahead.drop()
    assert all(end <= 6 or start >= 38 for start, end in loads.dropped)


def test_a_file_twice_in_a_reply_is_removed_up_to_what_was_sent(cold, pages, loads, file) -> None:
    consumer = Consumer(cold, loads, file)
    first, second = (FileRegion(file.handle, step * STEP, STEP) for step in (10, 50))
    consumer.box.add([first, second])
    consumer.ahead.note([first, second], alone=True)
    cold.behind.note_read(str(file.handle.path), 10 * STEP, 11 * STEP)
    consumer.ahead.resume(consumer.box)
    loads.run()
    assert loads.dropped == []


def test_readers_that_follow_each_other_read_each_step_once(cold, pages, loads, file) -> None:
    consumers = [Consumer(cold, loads, file) for _ in range(8)]
    for step in range(20):
        for number, consumer in enumerate(consumers):
            if step >= number:
                consumer.fetch(step - number)
    assert cold.bytes <= 23 * STEP
    assert cold.shared > 0
    assert loads.dropped[-1][1] <= 13


def test_a_reader_that_pauses_keeps_nothing(cold, pages, loads, file) -> None:
    consumer = Consumer(cold, loads, file)
    for step in range(5):
        consumer.fetch(step)
    cold.trim()
    assert len(cold.behind) == 1
    cold.trim()
    assert len(cold.behind) == 0
    assert loads.dropped[-1][1] >= 6
    pages.there.clear()
    assert consumer.fetch(5)  # it continues
    assert len(cold.behind) == 1


def test_a_reader_of_many_files_is_known_in_the_last_ones_only(cold, pages, region_of) -> None:
    file = region_of(bytes(4 * STEP))
    ahead = ReadAhead(cold, pages)  # type: ignore[arg-type]
    for number in range(300):
        handle = FileHandle(os.dup(file.handle.fd), f"segment-{number}")
        ahead.note([FileRegion(handle, 0, STEP)], alone=True)
    assert len(cold.behind) == 256
    ahead.drop()
    assert len(cold.behind) == 0
