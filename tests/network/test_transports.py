"""Connections with a transport, such as TLS, with a handler of their own, and muted connections."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from kafkapy.network.connection import ANONYMOUS, Connection
from kafkapy.network.pieces import Pieces
from kafkapy.network.replies import CLOSE, Pending, Reply, Timed
from kafkapy.network.settings import Listener
from kafkapy.record.file_region import FileRegion
from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.disk_pool import DiskPool
from tests.harness.reference_cycles import objects_left_in_cycles

from .conftest import Echo, Running, Serve, framed, until
from .records import DATA, END, UPDATE, UPDATED, RecordClient, Records, record, records
from .test_cold import Pages
from .test_idle import pass_time
from .test_pieces import Cut

LISTENERS = (Listener("PLAINTEXT", "127.0.0.1", 0), Listener("RECORDS", "127.0.0.1", 0))
LONG_WELCOME = 1_000_000  # more than the sockets hold

ServeRecords = Callable[..., Running]


@pytest.fixture
def serve_records(serve: Serve) -> Iterator[ServeRecords]:
    """Start a server with a plain listener and one with the transport; the transports it creates are in `made`."""
    pool = DiskPool(1)

    def start(handler: Any = None, **kwargs: Any) -> Running:
        transports: list[Records] = []

        def make(conn: Connection) -> Records:
            transports.append(Records(conn, pool))
            return transports[-1]

        running = serve(handler, listeners=LISTENERS, prepare={"RECORDS": make}, num_network_threads=1, **kwargs)
        running.transports = transports  # type: ignore[attr-defined]
        running.plain = running.connect("PLAINTEXT")  # type: ignore[attr-defined]
        reached(running)
        return running

    yield start
    pool.stop()


def connect(running: Running, **kwargs: Any) -> RecordClient:
    client = RecordClient(running.ports["RECORDS"], **kwargs)
    running.clients.append(client)
    return client


def reached(running: Running) -> None:
    """Return when the network thread has seen all bytes that were sent before this call on existing connections."""
    assert running.plain.is_open()  # type: ignore[attr-defined]


class Everything(Echo):
    """A handler that answers with every kind of part."""

    def __init__(self, region: FileRegion) -> None:
        super().__init__()
        self.region = region
        self.sent: list[bytes] = []

    def answer(self, connection: Connection, frame: bytes) -> Reply:
        if frame == b"still there?":
            return super().answer(connection, frame)
        data = self.region.read()
        size = len(data)
        head = (3 * size + 12).to_bytes(4, "big")
        piecewise = Pieces(size, Cut(data, [100_000, 7, 300_000]))
        short = FileRegion(self.region.handle, self.region.position, min(10, size))
        parts = [framed(frame), head, self.region, b"", piecewise, data, b"s" * (12 - short.length), short]
        return Timed(parts, lambda: self.sent.append(frame))


@pytest.mark.parametrize("cold", [False, True], ids=["in memory", "cold"])
@pytest.mark.parametrize(("size", "room"), [(10, 4096), (5000, 4096), (50_000, 4096), (1_000_000, 200_000)])
def test_every_part_of_a_reply_goes_through_the_transport(
    serve_records: ServeRecords, region_of: Callable[..., FileRegion], size: int, room: int, cold: bool
) -> None:
    """All bytes that the client receives are records of the transport."""
    data = random.Random(size).randbytes(size)
    handler = Everything(region_of(b"x" * 7 + data, position=7))
    kwargs: dict[str, Any] = {"pages": Pages()} if cold else {}
    running = serve_records(handler, socket_send_buffer_bytes=room, **kwargs)
    expected = data * 3 + b"s" * (12 - min(10, size)) + data[:10]
    for client in (running.connect("PLAINTEXT"), connect(running)):
        handler.sent.clear()
        for number in range(2):
            asked = [b"%d" % number * size, b"another"]
            sending = client.send_aside(*asked)
            assert client.frames(4) == [asked[0], expected, asked[1], expected]
            sending.join()
        until(lambda: len(handler.sent) == 4)
    principals = {connection.principal for connection in handler.connections.values()}
    assert principals == {ANONYMOUS, "User:records"}
    if cold:
        assert running.count("network_cold_reads") > 0


def test_bytes_of_transports_are_in_the_totals_also_when_they_are_closed(serve_records: ServeRecords) -> None:
    running = serve_records()
    plain = len(framed(b"still there?"))  # see serve_records
    clients = [connect(running) for _ in range(3)]
    for client in clients:
        client.send(b"x" * 996, b"y" * 99_996)
        assert len(client.frames(2)) == 2
    for total in ("network_bytes_in", "network_bytes_out"):
        until(lambda total=total: running.count(total) == 3 * 101_000 + plain)  # type: ignore[misc]
    for client in clients:
        client.close()
    until(lambda: running.server.connections == 1)
    assert running.count("network_bytes_in") == running.count("network_bytes_out") == 3 * 101_000 + plain


def test_a_callback_waits_until_the_socket_has_taken_the_encoded_bytes(serve_records: ServeRecords) -> None:
    sent: list[bytes] = []

    class Times(Echo):
        def answer(self, connection: Connection, frame: bytes) -> Reply:
            return Timed([framed(frame * 200_000 if frame == b"large" else frame)], lambda: sent.append(frame))

    running = serve_records(Times(), socket_send_buffer_bytes=4096)
    client = connect(running, receive_buffer=65536)
    client.send(b"small", b"large")
    until(lambda: b"small" in sent)
    reached(running)
    assert b"large" not in sent
    assert client.frames(2) == [b"small", b"large" * 200_000]
    until(lambda: b"large" in sent)


def test_a_handshake_continues_when_the_full_socket_has_room(serve_records: ServeRecords) -> None:
    """The client has sent everything, including its first request, before it reads."""
    running = serve_records(socket_send_buffer_bytes=4096)
    client = connect(running, shaken=False, welcome=LONG_WELCOME, receive_buffer=65536)
    client.hello()
    until(lambda: [made.wants_write for made in running.transports] == [True])  # type: ignore[attr-defined]
    (transport,) = running.transports  # type: ignore[attr-defined]
    client.prove()
    client.send(b"first", b"second")
    reached(running)
    assert not transport.open
    client.await_welcome()
    assert client.frames(2) == [b"first", b"second"]


def test_a_response_of_the_transport_itself_continues_when_the_full_socket_has_room(
    serve_records: ServeRecords,
) -> None:
    running = serve_records(socket_send_buffer_bytes=4096)
    client = connect(running, receive_buffer=65536)
    # All of this is in one receive, so that the only later event is that the socket has room.
    client.sock.sendall(record(UPDATE, b"%d" % LONG_WELCOME) + records(framed(b"first")))
    reached(running)
    client.sock.sendall(record(UPDATE, b"5") + records(framed(b"second")))
    reached(running)
    assert client.record() == (UPDATED, b"u" * LONG_WELCOME)
    assert client.record() == (UPDATED, b"u" * 5)
    assert client.frames(2) == [b"first", b"second"]


def test_a_handshake_that_fails_closes_its_connection_alone(serve_records: ServeRecords) -> None:
    running = serve_records()
    good, bad = connect(running), connect(running, shaken=False)
    bad.hello()
    bad.await_welcome()
    bad.prove(b"User:nobody")
    assert bad.is_closed()
    assert good.is_open()


def test_records_cut_at_every_byte(serve_records: ServeRecords) -> None:
    running = serve_records()
    requests = [b"first", b"x" * 1500, b"last"]
    for cut in range(1, 60):
        client = connect(running, shaken=False)
        stream = record(0xA1, b"10") + record(0xA3, b"User:records") + records(framed(*requests))
        client.sock.sendall(stream[:cut])
        until(lambda cut=cut: len(running.transports) == cut)  # type: ignore[misc,attr-defined]
        reached(running)
        client.sock.sendall(stream[cut:])
        client.await_welcome()
        assert client.frames(3) == requests
        client.close()


def test_records_a_byte_at_a_time(serve_records: ServeRecords) -> None:
    client = connect(serve_records())
    for byte in records(framed(b"hello", b"")) + record(DATA, b"\0\0") + record(DATA, b"\0\1!"):
        client.sock.sendall(bytes([byte]))
    assert client.frames(3) == [b"hello", b"", b"!"]


def test_the_transport_sends_the_end_of_the_stream_when_the_server_closes(serve_records: ServeRecords) -> None:
    class Closes(Echo):
        def answer(self, connection: Connection, frame: bytes) -> Reply:
            return CLOSE if frame == b"close" else super().answer(connection, frame)

    clock = ManualClock()
    running = serve_records(Closes(), clock=clock, connections_max_idle_ms=10_000)
    client, idle, last = connect(running), connect(running), connect(running)
    assert idle.is_open()  # its handshake is over
    client.send(b"x" * 100_000, b"close")
    assert client.frame() == b"x" * 100_000
    assert client.is_closed()
    pass_time(running, clock, 6)
    assert last.is_open()
    pass_time(running, clock, 5)
    assert idle.is_closed()
    running.server.stop()
    assert last.is_closed()
    assert [transport.closes for transport in running.transports] == [1, 1, 1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("ends", ["the stream", "the socket", "both"])
def test_the_client_s_end_of_the_stream_closes_after_its_requests_were_answered(
    serve_records: ServeRecords, ends: str
) -> None:
    running = serve_records()
    client = connect(running)
    client.sock.sendall(records(framed(b"a", b"b")) + (record(END, b"") if ends != "the socket" else b""))
    if ends != "the stream":
        client.sock.shutdown(socket.SHUT_WR)
    assert client.frames(2) == [b"a", b"b"]
    assert client.is_closed()
    until(lambda: running.server.connections == 1)


class Later(Echo):
    """A handler that answers `later` when the test completes it."""

    pending: Pending | None = None

    def answer(self, connection: Connection, frame: bytes) -> Reply:
        if frame != b"later":
            return super().answer(connection, frame)
        self.pending = Pending(connection)
        return self.pending


@pytest.mark.parametrize("behind", [b"", b"request"])
def test_the_end_of_the_stream_is_no_request_behind_a_pending_one(serve_records: ServeRecords, behind: bytes) -> None:
    running = serve_records(Later())
    client = connect(running)
    client.send(b"later")
    until(lambda: running.handler.pending is not None)
    client.sock.sendall((records(framed(behind)) if behind else b"") + record(END, b""))
    client.sock.shutdown(socket.SHUT_WR)
    if not behind:
        until(lambda: running.server.connections == 1)
        assert running.handler.pending.cancelled
        return
    (transport,) = running.transports  # type: ignore[attr-defined]
    until(lambda: transport.conn.gone)
    reached(running)
    assert not running.handler.pending.cancelled
    running.handler.pending.complete([framed(b"at last")])
    assert client.frames(2) == [b"at last", b"request"]
    assert client.is_closed()


@pytest.mark.parametrize("method", ["recv_into", "send", "write", "close"])
@pytest.mark.parametrize("error", [ConnectionError, ValueError])
def test_a_transport_that_fails_closes_its_connection_alone(
    serve_records: ServeRecords, monkeypatch: pytest.MonkeyPatch, method: str, error: type[Exception]
) -> None:
    def fail(*args: object) -> int:
        raise error("made to fail")

    running = serve_records()
    good, bad = connect(running), connect(running)
    assert good.is_open()
    assert bad.is_open()
    transport = running.transports[1]  # type: ignore[attr-defined]
    if method == "recv_into":  # the connection has the method itself
        transport.conn.recv_into = fail
    else:
        monkeypatch.setattr(transport, method, fail)
    bad.send(b"x" * 100)
    with suppress(OSError):  # the connection may be closed already
        bad.sock.shutdown(socket.SHUT_WR)
    until(lambda: running.server.connections == 2)
    assert good.is_open()


def test_a_transport_that_cannot_be_created_closes_only_its_connection(serve: Serve) -> None:
    def make(conn: Connection) -> Records:
        raise ValueError("made to fail")

    running = serve(listeners=LISTENERS, prepare={"RECORDS": make}, num_network_threads=1)
    good, bad = running.connect("PLAINTEXT"), running.connect("RECORDS")
    assert bad.is_closed()
    assert good.is_open()
    until(lambda: running.server.connections == 1)


def test_a_closed_connection_with_a_transport_leaves_no_reference_cycle(serve_records: ServeRecords) -> None:
    running = serve_records()

    def connect_and_close() -> None:
        client = connect(running)
        assert client.is_open()
        client.close()
        running.clients.clear()
        running.handler.connections.clear()
        until(lambda: running.server.connections == 1)
        running.transports.clear()  # type: ignore[attr-defined]

    assert not objects_left_in_cycles(connect_and_close, 5)


def test_a_client_that_has_to_authenticate_has_another_handler_and_a_smaller_largest_frame(serve: Serve) -> None:
    class Login(Echo):
        """A handler that takes one frame, and then gives the connection to the server's handler."""

        def answer(self, connection: Connection, frame: bytes) -> Reply:
            connection.principal = "User:" + frame.decode()
            connection.handler, connection.largest_frame = running.handler, 1_000_000
            return [framed(b"welcome")]

    def prepare(connection: Connection) -> None:
        connection.handler, connection.largest_frame = Login(), 100

    running = serve(listeners=LISTENERS, prepare={"RECORDS": prepare})
    client, other = running.connect("RECORDS"), running.connect("RECORDS")
    client.send(b"me")
    assert client.frame() == b"welcome"
    client.send(b"x" * 200_000)
    assert client.frame() == b"x" * 200_000
    assert [connection.principal for connection in running.handler.connections.values()] == ["User:me"]
    other.send(b"x" * 101)
    assert other.is_closed()


def test_a_connection_has_its_own_handler(serve: Serve) -> None:
    class Login(Echo):
        """A handler that takes one frame, and then gives the connection back to the handler it had before."""

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
