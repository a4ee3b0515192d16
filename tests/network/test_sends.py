"""Sending replies: the same bytes by sendfile and by copying, and little memory for clients that do not read."""

import os
import random
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkapy.network.connection import Connection
from kafkapy.network.replies import Reply
from kafkapy.network.sends import BLOCKED, DONE, LATER, Outbox, PageCache, Sender
from kafkapy.record.file_region import CutOff, FileHandle, FileRegion
from tests.harness.examples import examples

from .conftest import Echo, Serve, framed, rss, until

DATA = random.Random(1).randbytes(3_000_000)


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> FileHandle:
    path = tmp_path_factory.mktemp("sends") / "data"
    path.write_bytes(DATA)
    return FileHandle(os.open(path, os.O_RDONLY), path)


class Parts(Echo):
    """A handler that answers every frame with the same parts."""

    def __init__(self, parts: list) -> None:
        super().__init__()
        self.parts = parts

    def answer(self, connection: Connection, frame: bytes) -> Reply:
        return list(self.parts)


def content(parts: list) -> bytes:
    return b"".join(part.read() if isinstance(part, FileRegion) else bytes(part) for part in parts)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.lists(
        st.one_of(
            st.integers(0, 200).map(lambda size: ("bytes", size)),
            st.sampled_from([("bytes", 100_000), ("region", 0), ("region", 1), ("region", 8191), ("region", 8192)]),
            st.integers(1, 700_000).map(lambda size: ("region", size)),
        ),
        min_size=1,
        max_size=12,
    ),
    zero_copy=st.booleans(),
    room=st.sampled_from([4096, 65536, 1 << 20]),
)
def test_any_mixture_arrives_as_it_is(handle: FileHandle, shape: list, zero_copy: bool, room: int) -> None:
    """With sockets of any size, read in any pieces, sending stops and resumes in the middle of any part."""
    rng = random.Random(len(shape))
    parts: list = []
    for kind, size in shape:
        start = rng.randrange(0, len(DATA) - size)
        parts.append(DATA[start : start + size] if kind == "bytes" else FileRegion(handle, start, size))
    expected = content(parts)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for sock in (ours, theirs):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        sender, box = Sender(zero_copy, 8192, PageCache()), Outbox()
        sent: list[int] = []
        for part in parts:
            box.add([part])
            box.mark(lambda: sent.append(box.index))
        received = bytearray()
        while (state := sender.flush(ours.fileno(), box)) != DONE:
            assert state in (BLOCKED, LATER)
            received += theirs.recv(rng.choice([1000, 50_000, 1 << 20]))
        while len(received) < len(expected):
            received += theirs.recv(1 << 20)
        assert received == expected
        assert sender.bytes_out == len(expected)
        assert len(sent) == len(parts)
        assert box.parts == []


@pytest.mark.parametrize("zero_copy", [True, False])
def test_a_region_in_a_reply_over_tcp(serve: Serve, handle: FileHandle, zero_copy: bool) -> None:
    parts = [(2_500_004 + 6).to_bytes(4, "big"), FileRegion(handle, 17, 2_500_000), b"abc", FileRegion(handle, 0, 7)]
    running = serve(Parts(parts), zero_copy=zero_copy)
    client = running.connect()
    client.send(b"1", b"2", b"3")
    for _ in range(3):
        assert client.frame() == content(parts)[4:]
    until(lambda: running.count("network_bytes_out") == 3 * len(content(parts)))


@pytest.mark.parametrize("zero_copy", [True, False])
@pytest.mark.parametrize("length", [100, 1_000_000])
def test_a_file_that_ends_too_early_closes_the_connection(
    serve: Serve, region_of: Callable[..., FileRegion], caplog, zero_copy: bool, length: int
) -> None:
    """sendfile would return 0 for ever: the frame cannot be completed, so the client must see the end."""
    region = region_of(b"x" * 50, length=length)
    running = serve(Parts([b"head", region]), zero_copy=zero_copy)
    client = running.connect()
    client.send(b"go")
    with pytest.raises((EOFError, ConnectionResetError)):
        client.exactly(4 + length)
    assert "in the middle of a reply" in caplog.text
    assert str(region.handle.path) in caplog.text


def test_a_sent_region_releases_its_file(handle: FileHandle) -> None:
    path = handle.path
    own = FileHandle(os.open(path, os.O_RDONLY), path)
    fd = own.fd
    box = Outbox()
    box.add([b"a", FileRegion(own, 0, 10), b"b" * 10])
    del own

    def is_open() -> bool:
        try:
            return os.path.samestat(os.fstat(fd), os.stat(path))  # another thread's file may have got this descriptor
        except OSError:
            return False

    assert is_open()
    box.advance(11)
    assert not is_open()


@pytest.mark.parametrize(("zero_copy", "clients"), [(True, 1000), (False, 200)])
def test_stalled_readers_hold_little_memory(
    serve: Serve, handle: FileHandle, many_files: None, zero_copy: bool, clients: int
) -> None:
    """Every client requests 10 MB and reads nothing; then some disconnect and one reads everything."""
    parts = [b"head", *[FileRegion(handle, 0, 2_500_000)] * 4]
    running = serve(Parts(parts), zero_copy=zero_copy, socket_listen_backlog_size=1024)
    warm = running.connect()
    warm.send(b"go")
    warm.exactly(10_000_004)
    before = rss()
    stalled = [running.connect(receive_buffer=4096) for _ in range(clients)]
    for client in stalled:
        client.send(b"go", b"again")
    until(lambda: running.count("network_frames_in") >= clients)
    until(lambda: running.server.connections == clients + 1)
    assert rss() - before < 64 << 20
    for client in stalled[1:]:
        client.close()
    for _ in range(2):
        assert stalled[0].exactly(10_000_004) == content(parts)
    until(lambda: running.server.connections == 2)


def test_a_connection_with_an_unsent_reply_is_not_read(serve: Serve, handle: FileHandle) -> None:
    running = serve(Parts([b"head", FileRegion(handle, 0, 2_900_000)] * 2), max_frames_a_turn=2)
    client = running.connect(receive_buffer=4096)
    client.sock.setblocking(False)
    client.sock.send(framed(*[b"x" * 1000] * 10_000))  # as much as the sockets take
    until(lambda: running.count("network_frames_in") == 2)
    other = running.connect()
    other.send(b"y")
    other.exactly(2 * 2_900_004)
    assert running.count("network_frames_in") == 3
    assert running.count("network_bytes_in") < 300_000


def test_a_slow_reader_does_not_hold_up_others(serve: Serve, handle: FileHandle) -> None:
    class Mixed(Echo):
        def answer(self, connection: Connection, frame: bytes) -> Reply:
            return [FileRegion(handle, 0, 2_000_000)] if frame == b"region" else super().answer(connection, frame)

    running = serve(Mixed())
    slow, quick = running.connect(receive_buffer=4096), running.connect()
    slow.send(b"region")
    for _ in range(100):
        assert quick.is_open()
    assert slow.exactly(2_000_000) == DATA[:2_000_000]


def test_replies_to_many_frames_leave_in_one_call(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkapy._ext import syscalls

    calls: list[int] = []
    real = syscalls.sendmsg

    def counted(fd: int, parts: Sequence, *args) -> int:
        calls.append(len(parts))
        return real(fd, parts, *args)

    monkeypatch.setattr(syscalls, "sendmsg", counted)
    gate = threading.Event()

    class Gated(Echo):
        def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
            gate.wait()
            return super().handle(connection, frames)

    client = serve(Gated()).connect()
    client.sock.sendall(framed(*[b"x%d" % i for i in range(50)]))
    gate.set()
    assert client.frames(50) == [b"x%d" % i for i in range(50)]
    assert sum(calls) <= 3


@pytest.mark.parametrize("length", [100, 1 << 20])
@pytest.mark.parametrize("zero_copy", [True, False])
def test_a_region_of_truncated_records_is_not_sent(
    serve: Serve, handle: FileHandle, caplog: pytest.LogCaptureFixture, length: int, zero_copy: bool
) -> None:
    truncated = FileHandle(os.dup(handle.fd), handle.path)
    truncated.cut_off = CutOff()
    handler = Parts([b"head", FileRegion(truncated, 0, length)])
    client = serve(handler, zero_copy=zero_copy).connect()
    client.send(b"one")
    assert client.exactly(4 + length)[4:] == DATA[:length]
    truncated.cut_off.position = length - 1
    client.send(b"two")
    received = b""
    with suppress(ConnectionResetError):
        while part := client.sock.recv(1 << 16):
            received += part
    assert received in (b"", b"head")
    assert "the log was truncated at byte" in caplog.text
