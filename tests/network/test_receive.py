"""Receiving frames: cut anywhere, in order, and without memory for claimed sizes."""

import errno
import mmap
import random
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkapy.network import buffers
from kafkapy.network.buffers import BufferPool
from kafkapy.network.connection import Connection
from kafkapy.network.replies import CLOSE, NO_REPLY, Pending, Reply
from kafkapy.network.settings import NetworkSettings
from kafkapy.runtime.clock import ManualClock
from tests.harness.examples import examples

from .conftest import Echo, Running, Serve, framed, rss, until


@pytest.fixture(scope="module")
def echo():
    """One server for all examples."""
    running = Running(Echo(), NetworkSettings())
    yield running
    running.stop()


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.one_of(st.integers(0, 300), st.integers(16_000, 70_000)), min_size=1, max_size=6),
    data=st.data(),
)
def test_the_same_frames_however_they_are_cut(echo: Running, sizes: list[int], data: st.DataObject) -> None:
    payloads = [random.Random(i).randbytes(size) for i, size in enumerate(sizes)]
    stream = framed(*payloads)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=6)) | {0, len(stream)})
    client = echo.connect()
    for start, end in pairwise(cuts):
        client.sock.sendall(stream[start:end])
        # The replies to all complete frames prove that this part was received before the next one is sent.
        complete, position = 0, 0
        while complete < len(sizes) and position + 4 + sizes[complete] <= end:
            position += 4 + sizes[complete]
            complete += 1
        while len(sizes) - len(payloads) < complete:
            assert client.frame() == payloads.pop(0)
    assert payloads == []
    client.close()


def test_a_byte_at_a_time(serve: Serve) -> None:
    client = serve().connect()
    for byte in framed(b"hello", b"", b"world"):
        client.sock.sendall(bytes([byte]))
    assert client.frames(3) == [b"hello", b"", b"world"]


@pytest.mark.parametrize("size", [16_380, 16_384, 65_532, 65_536, 1 << 20, (1 << 20) + 77, 5_000_000])
def test_large_frames_of_every_kind_of_buffer(serve: Serve, size: int) -> None:
    client = serve().connect()
    payloads = [random.Random(i).randbytes(size) for i in range(3)]
    client.send_aside(*payloads, b"small", payloads[0])
    assert client.frames(5) == [*payloads, b"small", payloads[0]]


def test_frames_that_arrive_together_are_handled_together_up_to_a_limit(serve: Serve) -> None:
    running = serve(max_frames_a_turn=10)
    client = running.connect()
    payloads = [b"%d" % i for i in range(95)]
    client.send(*payloads)
    assert client.frames(95) == payloads
    turns = running.handler.turns
    assert [frame for turn in turns for frame in turn] == payloads
    assert max(map(len, turns)) == 10
    assert len(turns) < 20


def test_a_busy_connection_does_not_starve_another(serve: Serve) -> None:
    """Another connection is answered while one always has more frames than a turn may handle."""
    running = serve(max_frames_a_turn=8)
    busy, other = running.connect(), running.connect()
    sender = busy.send_aside(*[b"x" * 100] * 50_000)
    busy.frames(1000)
    for _ in range(50):
        assert other.is_open()
    turns = running.handler.turns
    at = [i for i, turn in enumerate(turns) if turn == [b"still there?"]]
    assert len(at) == 50
    busy.frames(49_000)
    sender.join()


@pytest.mark.parametrize("size", [-1, -(2**31), 1_000_001, 2**31 - 1])
def test_a_bad_size_closes_the_connection_and_the_log_names_peer_and_size(serve: Serve, caplog, size: int) -> None:
    running = serve(socket_request_max_bytes=1_000_000)
    client, other = running.connect(), running.connect()
    client.sock.sendall(struct.pack(">i", size) + b"whatever")
    assert client.is_closed()
    host, port = client.sock.getsockname()
    (record,) = [r for r in caplog.records if "closed a connection" in r.message]
    assert str(size) in record.message
    assert record.kafkapy_fields["peer"] == f"{host}:{port}"
    assert other.is_open()


def test_requests_before_a_bad_size_are_answered(serve: Serve) -> None:
    client = serve().connect()
    client.sock.sendall(framed(b"one", b"two") + struct.pack(">i", -5))
    assert client.frames(2) == [b"one", b"two"]
    assert client.is_closed()


def test_a_request_of_the_limit_is_taken(serve: Serve) -> None:
    client = serve(socket_request_max_bytes=1000).connect()
    client.send(b"x" * 1000)
    assert client.frame() == b"x" * 1000


def test_requests_of_a_peer_that_closes_at_once_are_handled(serve: Serve) -> None:
    """The client sends and closes without reading; its frames are still handled."""

    class Silent(Echo):
        def answer(self, connection: Connection, frame: bytes) -> Reply:
            return NO_REPLY

    running = serve(Silent())
    client = running.connect()
    client.send(*[bytes(400)] * 500, bytes(200_000), b"last")
    client.close()
    until(lambda: sum(map(len, running.handler.turns)) == 502)
    until(lambda: running.server.connections == 0)


def test_half_a_frame_and_the_end_closes_quietly(serve: Serve) -> None:
    running = serve()
    for part in (b"\0", b"\0\0\0\x05ab", struct.pack(">i", 90_000_000) + b"x" * 200_000):
        client = running.connect()
        client.sock.sendall(part)
        client.close()
    until(lambda: running.server.connections == 0)
    assert running.handler.turns == []
    assert running.connect().is_open()


def test_garbage_on_one_connection_does_not_harm_others(serve: Serve) -> None:
    running = serve(socket_request_max_bytes=1_000_000)
    good = running.connect()
    rng = random.Random(5)
    for size in [1, 3, 4, 5, 100, 70_000] * 10:
        client = running.connect()
        with suppress(ConnectionError):  # the server may close before it has received all bytes
            client.sock.sendall(rng.randbytes(size))
        client.close()
    assert good.is_open()
    until(lambda: running.server.connections == 1)


def test_a_thousand_silent_half_frames_hold_little_memory(serve: Serve, many_files: None) -> None:
    """Each connection claims 100 MB and sends 20 KB; the server holds memory for the sent bytes only."""
    running = serve(socket_listen_backlog_size=1024)
    before = rss()
    part = struct.pack(">i", 100_000_000) + bytes(20_000)
    for _ in range(1000):
        running.connect().sock.sendall(part)
    until(lambda: running.count("network_bytes_in") == 1000 * len(part))
    assert rss() - before < 64 << 20
    assert running.connect().is_open()


def test_memory_goes_back_to_the_system_after_a_burst(serve: Serve) -> None:
    clock = ManualClock()
    running = serve(clock=clock, connections_max_idle_ms=10**9)
    clients = [running.connect() for _ in range(8)]
    senders = [client.send_aside(b"x" * 4_000_000, b"y" * 4_000_000) for client in clients]
    for client in clients:
        assert len(client.frame()) == len(client.frame()) == 4_000_000
    for sender in senders:
        sender.join()
    held = running.count("network_buffer_bytes")
    assert held <= 32 << 20

    def is_free_later() -> bool:
        clock.advance(5)  # memory that was unused between two checks is released; one check may be for several advances
        return running.count("network_buffer_bytes") == 0

    until(is_free_later)
    assert all(client.is_open() for client in clients)


class Held:
    """A handler that keeps frames that begin with "keep", as an append that waits in another thread does, and then
    returns the replies of `after`. It echoes all other frames."""

    def __init__(self, after: Callable[[Connection], Sequence[Reply]]) -> None:
        self.after = after
        self.views: list[memoryview] = []

    def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
        if frames[0][:4] != b"keep":
            return [[framed(bytes(frame))] for frame in frames]
        self.views.append(frames[0])
        return self.after(connection)


def kept(connection: Connection) -> Sequence[Reply]:
    pending = Pending(connection)
    pending.keeps_buffer = True
    return [pending]


def completed_with_close(connection: Connection) -> Sequence[Reply]:
    (pending,) = kept(connection)
    pending.complete(CLOSE)
    return [pending]


def no_file(connection: Connection) -> Sequence[Reply]:
    raise OSError(errno.EMFILE, "Too many open files")


def nothing_to_note(connection: Connection) -> Sequence[Reply]:
    class ReadAhead:
        def note(self, parts: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        def drop(self) -> None:
            pass

    connection.outbox.ahead = ReadAhead()
    return [[b"a reply"], *kept(connection)]


class NoMemory:
    """A replacement for `mmap.mmap` in kafkapy.network.buffers, which fails for lack of memory while `short` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.short = False
        plain = mmap.mmap

        def make(*args: Any, **kwargs: Any) -> mmap.mmap:
            if self.short:
                raise OSError(errno.ENOMEM, "Cannot allocate memory")
            return plain(*args, **kwargs)

        monkeypatch.setattr(buffers.mmap, "mmap", make)


def overwritten(running: Running, sizes: Sequence[int]) -> None:
    """Receive frames of these sizes on other connections, into any buffer that is free."""
    for size in sizes:
        other = running.connect()
        sender = other.send_aside(b"x" * size)
        assert len(other.frame()) == size
        sender.join()
        other.close()


@pytest.mark.parametrize("size", [1000, 100_000])
@pytest.mark.parametrize(
    "after",
    [lambda _: [CLOSE], lambda _: 1 // 0, lambda _: [], no_file, nothing_to_note, completed_with_close],
    ids=["closes", "raises", "answers nothing", "raises OSError", "cannot be answered", "closes later"],
)
def test_frames_of_a_closed_connection_stay_unchanged_while_another_thread_reads_them(
    serve: Serve, size: int, after: Callable[[Connection], Sequence[Reply]]
) -> None:
    """A handler that fails may have handed the frame to another thread, which writes it to a log later."""
    running = serve(Held(after), num_network_threads=1)
    client = running.connect()
    frame = b"keep" + random.Random(1).randbytes(size)
    client.send(frame)
    until(lambda: bool(running.handler.views))
    until(lambda: running.server.connections == 0)
    overwritten(running, [size + 4, 500, 30_000, 100_000, 131_000])
    assert bytes(running.handler.views[0]) == frame


@pytest.mark.parametrize("behind", [b"", struct.pack(">i", 60_000)], ids=["nothing", "a large frame"])
def test_a_kept_buffer_stays_as_it_is_where_there_is_no_memory_for_another(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, behind: bytes
) -> None:
    memory = NoMemory(monkeypatch)

    def after(connection: Connection) -> Sequence[Reply]:
        memory.short = True
        return kept(connection)

    running = serve(Held(after), num_network_threads=1)
    client, other = running.connect(), running.connect()
    frame = b"keep" + random.Random(2).randbytes(1000)
    client.sock.sendall(framed(frame) + behind)
    until(lambda: memory.short)
    other.send(b"x" * 5000)  # there is no buffer to receive it in
    assert other.is_closed()
    assert "no memory" in caplog.text
    memory.short = False
    overwritten(running, [5000, 5000])
    assert bytes(running.handler.views[0]) == frame


def test_a_handler_that_fails_without_memory_for_another_buffer_closes_its_connection(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = NoMemory(monkeypatch)

    def after(connection: Connection) -> Sequence[Reply]:
        memory.short = True
        raise ZeroDivisionError("made to fail")

    running = serve(Held(after), num_network_threads=1)
    client = running.connect()
    frame = b"keep" + random.Random(3).randbytes(1000)
    client.send(frame)
    assert client.is_closed()
    memory.short = False
    overwritten(running, [5000, 5000])
    assert bytes(running.handler.views[0]) == frame


def test_a_buffer_that_cannot_be_allocated_is_not_counted_as_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = NoMemory(monkeypatch)
    memory.short = True
    pool = BufferPool(1 << 20)
    with pytest.raises(OSError, match="Cannot allocate"):
        pool.take(1000)
    assert pool.lent == 0


def test_the_shared_buffer_is_not_a_large_one_of_the_pool(serve: Serve) -> None:
    """It would stay the shared buffer, so one large frame of a peer would hold its memory until the broker stops."""
    running = serve(Held(lambda _: 1 // 0), num_network_threads=1)
    (processor,) = running.server._processors
    client = running.connect()
    client.send(b"x" * 3_000_000)
    assert len(client.frame()) == 3_000_000
    free = processor.pool.free_bytes
    assert free >= 3_000_000
    for _ in range(3):
        client = running.connect()
        client.send(b"keep this")
        assert client.is_closed()
    assert processor.pool.free_bytes == free


def test_few_lines_are_logged_about_a_peer_that_keeps_sending_rubbish(serve: Serve, caplog) -> None:
    clock = ManualClock()
    running = serve(clock=clock)
    for second in range(2):
        for _ in range(20):
            client = running.connect()
            client.sock.sendall(struct.pack(">i", -1))
            assert client.is_closed()
        assert len([record for record in caplog.records if "closed a connection" in record.message]) == 3 * (second + 1)
        clock.advance(1)
    assert "(17 such lines were left out)" in caplog.text
