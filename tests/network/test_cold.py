"""Regions that are not in memory are read on the disk pool, while other connections are served."""

import os
import random
import socket
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from kafkapy._ext import residency
from kafkapy.network.cold import NOBODY, STEP, ColdReads
from kafkapy.network.connection import Connection
from kafkapy.network.replies import Pending, Reply
from kafkapy.record.file_region import FileRegion
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.threads import NoThread
from tests.harness.reference_cycles import objects_left_in_cycles

from .conftest import Client, Echo, OnePool, Serve, framed, until


class Pages:
    """A page cache that is empty until `warm` is set, and then has all pages."""

    def __init__(self) -> None:
        self.warm = False
        self.asked = 0

    def ready(self, fd: int, position: int, length: int) -> bool:
        self.asked += 1
        return self.warm

    resident = ready

    def read_now(self, fd: int, buffer: bytearray, start: int, end: int, position: int) -> int:
        self.asked += 1
        return residency.read_now(fd, buffer, start, end, position) if self.warm else -1


class GatedPool(DiskPool):
    """A pool without threads: `run` calls the submitted functions."""

    def __init__(self) -> None:
        super().__init__(1)
        self.jobs: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = []

    def submit(self, fn, *args, done=None) -> None:
        self.jobs.append((fn, args, done))

    def run(self, fail: bool = False, at: int = 0) -> None:
        fn, args, done = self.jobs.pop(at)
        if fail:
            done(None, OSError("Input/output error"))
        else:
            done(fn(*args), None)


class Regions(Echo):
    region: FileRegion

    def answer(self, connection: Connection, frame: bytes) -> Reply:
        return [b"head", self.region] if frame == b"region" else super().answer(connection, frame)


@pytest.fixture
def region(region_of) -> FileRegion:
    return region_of(random.Random(3).randbytes(3_500_000))


@pytest.mark.parametrize(("zero_copy", "length"), [(True, 3_500_000), (False, 3_500_000), (True, 100)])
def test_a_cold_region_does_not_stall_other_connections(
    serve: Serve, region: FileRegion, zero_copy: bool, length: int
) -> None:
    pages, pool, handler = Pages(), GatedPool(), Regions()
    handler.region = FileRegion(region.handle, 0, length)
    running = serve(handler, pages=pages, disk_pool=pool, zero_copy=zero_copy)
    cold, hot = running.connect(), running.connect()
    cold.send(b"region", b"behind")
    until(lambda: len(pool.jobs) == 1)
    asked = pages.asked
    for _ in range(20):
        assert hot.is_open()
    assert pages.asked == asked  # the page cache is not queried again and again
    assert len(pool.jobs) == 1
    pages.warm = True
    pool.run()
    assert cold.exactly(4 + length) == b"head" + handler.region.read()
    assert cold.frame() == b"behind"
    assert running.count("network_cold_reads") == 1


@pytest.mark.parametrize("zero_copy", [True, False])
def test_pages_that_never_seem_to_be_there_are_sent_after_they_were_read(
    serve: Serve, region: FileRegion, zero_copy: bool
) -> None:
    """If the file system cannot tell, or pages are evicted at once for lack of memory, the pool reads every step."""
    pages, handler = Pages(), Regions()
    handler.region = region
    running = serve(handler, pages=pages, zero_copy=zero_copy)
    client = running.connect()
    client.send(b"region")
    assert client.exactly(4 + region.length)[4:] == region.read()
    assert running.count("network_cold_reads") >= -(-region.length // STEP)


def test_a_reply_that_is_completed_while_an_earlier_region_is_read_starts_no_second_read(
    serve: Serve, region: FileRegion
) -> None:
    class RegionAndLater(Regions):
        pending: Pending | None = None

        def answer(self, connection: Connection, frame: bytes) -> Reply:
            if frame != b"later":
                return super().answer(connection, frame)
            self.pending = Pending(connection)
            return self.pending

    pages, pool, handler = Pages(), GatedPool(), RegionAndLater()
    handler.region = region
    running = serve(handler, pages=pages, disk_pool=pool)
    client = running.connect()
    client.send(b"region", b"later")
    until(lambda: len(pool.jobs) == 1)
    assert handler.pending is not None
    asked = pages.asked
    handler.pending.complete([framed(b"at last")])
    assert running.connect().is_open()  # served after the completion
    assert (len(pool.jobs), pages.asked) == (1, asked)
    pages.warm = True
    pool.run()
    assert client.exactly(4 + region.length)[4:] == region.read()
    assert client.frame() == b"at last"


def test_a_disk_that_fails_closes_the_connection_with_the_reason(serve: Serve, region: FileRegion, caplog) -> None:
    pages, pool, handler = Pages(), GatedPool(), Regions()
    handler.region = region
    running = serve(handler, pages=pages, disk_pool=pool)
    client = running.connect()
    client.send(b"region")
    until(lambda: len(pool.jobs) == 1)
    pool.run(fail=True)
    assert client.exactly(4) == b"head"
    assert client.is_closed()
    assert "in the middle of a reply: Input/output error" in caplog.text


def test_a_connection_whose_peer_leaves_while_its_region_is_read_is_closed(serve: Serve, region: FileRegion) -> None:
    pages, pool, handler = Pages(), GatedPool(), Regions()
    handler.region = region
    running = serve(handler, pages=pages, disk_pool=pool)
    client, other = running.connect(), running.connect()
    client.send(b"region", b"x" * 100)
    until(lambda: len(pool.jobs) == 1)
    client.sock.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER 0: a reset
    client.close()
    until(lambda: running.server.connections == 1)
    pages.warm = True
    pool.run()
    assert other.is_open()


@pytest.mark.parametrize("read", [False, True], ids=["before it is read", "while it is read"])
def test_a_reader_that_goes_while_its_reply_waits_for_the_disk_leaves_no_reference_cycle(
    serve: Serve, region: FileRegion, read: bool
) -> None:
    class Forgetful(Regions):
        def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
            replies = super().handle(connection, frames)
            self.connections.clear()
            return replies

    pool, handler = GatedPool(), Forgetful()
    handler.region = region
    running = serve(handler, pages=Pages(), disk_pool=pool, num_network_threads=1)
    other = running.connect()

    def step() -> None:
        client = Client(running.port)
        client.send(b"region")
        until(lambda: len(pool.jobs) == 1)
        (_, _, done), count = pool.jobs[0], NOBODY
        if read:
            count = pool.jobs[0][0]()
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        client.close()
        until(lambda: running.server.connections == 1)
        pool.jobs.clear()
        done(count, None)
        assert other.is_open()  # the messages posted by the pool are handled

    left = objects_left_in_cycles(step, 5)
    assert not left, f"reference cycles of {dict(left.most_common(12))}"


def test_an_evicted_file_is_read_and_sent(serve: Serve, region: FileRegion) -> None:
    """The test uses the real page cache, which may ignore the request to drop the file."""
    fd = region.handle.fd
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    was_cold = not residency.resident(fd, 0, region.length)
    handler = Regions()
    handler.region = region
    running = serve(handler)
    client = running.connect()
    client.send(b"region")
    data = client.exactly(4 + region.length)
    assert data[4:] == region.read()
    if was_cold:
        assert running.count("network_cold_reads") >= 1
    assert residency.ready(fd, 0, region.length)


def test_a_range_that_several_readers_need_is_read_once_and_a_failure_reaches_all(region: FileRegion) -> None:
    pool = GatedPool()
    cold = ColdReads(OnePool(pool), lambda fn, *args: fn(*args))
    calls: list[tuple[int, Any]] = []

    def done(end: int, error: BaseException | None) -> None:
        calls.append((end, error))

    cold.load(region.handle, 0, STEP, done)
    cold.load(region.handle, 500_000, 2 * STEP, done)
    cold.load(region.handle, STEP, 2 * STEP, done)
    assert len(pool.jobs) == 2
    pool.run()
    assert calls == [(STEP, None)] * 2
    pool.run(fail=True)
    assert calls[2][0] == STEP
    assert isinstance(calls[2][1], OSError)
    cold.load(region.handle, region.length - 10, region.length + 5, done)
    pool.run()
    assert calls[3] == (region.length, None)


def test_a_range_is_not_read_after_its_last_reader_has_left(region: FileRegion) -> None:
    pool = GatedPool()
    cold = ColdReads(OnePool(pool), lambda fn, *args: fn(*args))
    calls: list[int] = []

    def done(end: int, error: BaseException | None) -> None:
        calls.append(end)

    load = cold.load(region.handle, 0, STEP, done)
    cold.forget(load, done)
    assert load.read() == NOBODY
    pool.run()
    load = cold.load(region.handle, 0, STEP, done)
    cold.forget(load, done)
    fn, args, finished = pool.jobs.pop()
    found = fn(*args)
    cold.load(region.handle, 0, STEP, done)  # a new reader, after the read was cancelled and before that was reported
    finished(found, None)
    pool.run()
    assert calls == [STEP]


def test_a_reader_whose_callback_fails_does_not_hold_up_the_others(region: FileRegion, caplog) -> None:
    pool = GatedPool()
    cold = ColdReads(OnePool(pool), lambda fn, *args: fn(*args))
    calls: list[int] = []

    def fail(end: int, error: BaseException | None) -> None:
        raise OSError("Input/output error")

    def done(end: int, error: BaseException | None) -> None:
        calls.append(end)

    cold.load(region.handle, 0, STEP, fail)
    cold.load(region.handle, 0, STEP, done)
    pool.run()
    assert calls == [STEP]
    assert f"a callback failed after {region.handle.path} was read from disk" in caplog.text


def test_a_read_that_cannot_begin_again_fails_for_its_new_reader(region: FileRegion, monkeypatch) -> None:
    pool = GatedPool()
    cold = ColdReads(OnePool(pool), lambda fn, *args: fn(*args))
    calls: list[tuple[int, BaseException | None]] = []

    def done(end: int, error: BaseException | None) -> None:
        calls.append((end, error))

    def refuse(fn: Callable[..., Any], *args: Any, done: Any = None) -> None:
        raise NoThread("kafkapy-disk", "out of memory")

    load = cold.load(region.handle, 0, STEP, done)
    cold.forget(load, done)
    _, _, finished = pool.jobs.pop()
    cold.load(region.handle, 0, STEP, done)
    with monkeypatch.context() as patch:
        patch.setattr(pool, "submit", refuse)
        finished(NOBODY, None)
    ((end, error),) = calls
    assert end == 0
    assert isinstance(error, NoThread)
    cold.load(region.handle, 0, STEP, done)
    pool.run()
    assert calls[1:] == [(STEP, None)]


def test_each_reader_has_its_share_of_the_memory_for_reading_ahead() -> None:
    cold = ColdReads(OnePool(GatedPool()), lambda fn, *args: fn(*args), 8 * STEP, 16 * STEP)
    for readers, share in ((0, 8), (1, 8), (2, 8), (4, 4), (16, 1), (17, 0)):
        cold.on_trim = {partial(int) for _ in range(readers)}
        assert cold.window == share * STEP
