"""Connections with a receiver and a sender of their own, and connections that are muted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkapy._ext.syscalls import recv_into, recv_into_long
from kafkapy.network.buffers import BufferPool
from kafkapy.network.connection import ANONYMOUS, Connection
from kafkapy.network.receive import Receiver
from kafkapy.network.replies import Reply
from kafkapy.network.sends import Outbox, PageCache, Sender
from kafkapy.network.settings import Listener
from kafkapy.record.file_region import FileRegion
from kafkapy.runtime.clock import ManualClock

from .conftest import Client, Echo, Serve, framed, until
from .test_idle import pass_time

MASK = bytes(byte ^ 0x5A for byte in range(256))


class Masked(bytearray):
    """Bytes as they go over the wire."""


class MaskingReceiver(Receiver):
    def __init__(self, pool: BufferPool) -> None:
        super().__init__(pool, 64, 10 << 20)
        self._recv_into = self._unmasked(recv_into)
        self._recv_into_long = self._unmasked(recv_into_long)

    def _unmasked(self, plain: Callable[..., int]) -> Callable[..., int]:
        def receive(fd: int, view: memoryview, start: int, end: int) -> int:
            received = plain(fd, view, start, end)
            if received > 0:
                view[start : start + received] = bytes(view[start : start + received]).translate(MASK)
            return received

        return receive


class MaskingSender(Sender):
    def __init__(self) -> None:
        super().__init__(True, 0, PageCache())

    def flush(self, fd: int, box: Outbox) -> int:
        for at in range(box.index, len(box.parts)):
            part = box.parts[at]
            if not isinstance(part, Masked):
                data = part.read() if isinstance(part, FileRegion) else bytes(part)  # type: ignore[arg-type]
                box.parts[at] = Masked(data.translate(MASK))
        box.others = 0
        if not box.offset:  # one part, so that the parent does not join several
            box.parts[box.index :] = [Masked(b"".join(box.parts[box.index :]))]  # type: ignore[arg-type]
        return super().flush(fd, box)


class MaskingClient(Client):
    def send(self, *payloads: bytes) -> None:
        self.sock.sendall(framed(*payloads).translate(MASK))

    def exactly(self, size: int) -> bytes:
        return super().exactly(size).translate(MASK)


LISTENERS = (Listener("PLAINTEXT", "127.0.0.1", 0), Listener("MASKED", "127.0.0.1", 0))


@pytest.mark.parametrize("size", [10, 5000, 3_000_000])
def test_a_connection_has_its_own_receiver_and_sender(
    serve: Serve, region_of: Callable[..., FileRegion], size: int
) -> None:
    region = region_of(b"r" * size)

    class Replies(Echo):
        def answer(self, connection: Connection, frame: bytes) -> Reply:
            return [framed(frame), size.to_bytes(4, "big"), region]

    transports = {"MASKED": lambda pool: (MaskingReceiver(pool), MaskingSender())}
    running = serve(Replies(), listeners=LISTENERS, transports=transports, num_network_threads=1)
    plain, masked = running.connect("PLAINTEXT"), MaskingClient(running.ports["MASKED"])
    running.clients.append(masked)
    for number in range(3):
        asked = [b"%d" % number * size, b"another"]
        for client in (plain, masked):
            sending = client.send_aside(*asked)
            assert client.frames(4) == [asked[0], b"r" * size, asked[1], b"r" * size]
            sending.join()
    assert {connection.principal for connection in running.handler.connections.values()} == {ANONYMOUS}
    until(lambda: len(running.handler.connections) == 2)


def test_a_connection_has_its_own_handler(serve: Serve) -> None:
    class Login(Echo):
        """Takes one frame, and leaves the connection to the handler that it had."""

        def __init__(self, after: Echo) -> None:
            super().__init__()
            self.after = after

        def answer(self, connection: Connection, frame: bytes) -> Reply:
            connection.principal = "User:" + frame.decode()
            connection.handler = self.after
            return [framed(b"welcome")]

    class First(Echo):
        def answer(self, connection: Connection, frame: bytes) -> Reply:
            if frame == b"login":
                connection.handler = Login(self)
            return [framed(connection.principal.encode())]

    running = serve(First())
    client = running.connect()
    answers = []
    for frame in (b"hello", b"login", b"me", b"hello"):
        client.send(frame)
        answers.append(client.frame())
    assert answers == [ANONYMOUS.encode(), ANONYMOUS.encode(), b"welcome", b"User:me"]


def test_a_muted_connection_is_not_read_until_its_time(serve: Serve) -> None:
    clock = ManualClock()

    class Mutes(Echo):
        def answer(self, connection: Connection, frame: bytes) -> Reply:
            if frame.startswith(b"mute"):
                connection.processor.mute(connection, clock.monotonic() + float(frame[4:]))
            return super().answer(connection, frame)

    running = serve(Mutes(), clock=clock, num_network_threads=1)
    muted, other = running.connect(), running.connect()
    muted.send(b"mute 5")
    assert muted.frame() == b"mute 5"  # the reply is sent all the same
    muted.send(b"held back")
    assert other.is_open()
    pass_time(running, clock, 4.9)
    assert other.is_open()
    assert [b"held back"] not in running.handler.turns
    pass_time(running, clock, 0.2)
    assert muted.frame() == b"held back"
    muted.send(b"mute 5", b"mute 3", b"mute 9")
    assert len(muted.frames(3)) == 3
    muted.send(b"held back, too")
    pass_time(running, clock, 8.9)
    assert other.is_open()
    assert [b"held back, too"] not in running.handler.turns
    pass_time(running, clock, 0.2)
    assert muted.frame() == b"held back, too"


def test_a_muted_connection_that_is_closed_leaves_nothing(serve: Serve) -> None:
    clock = ManualClock()

    class Mutes(Echo):
        def answer(self, connection: Connection, frame: bytes) -> Reply:
            connection.processor.mute(connection, clock.monotonic() + 5)
            return super().answer(connection, frame)

    running = serve(Mutes(), clock=clock, num_network_threads=1)
    client = running.connect()
    client.send(b"a")
    assert client.frame() == b"a"
    client.close()
    pass_time(running, clock, 6)
    until(lambda: running.server.connections == 0)
