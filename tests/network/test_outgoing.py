"""Connections to other servers: opened by the network, frames in are responses, and replies are the next requests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from kafkapy.network.connection import Connection
from kafkapy.network.replies import CLOSE, NO_REPLY, Pending, Reply, Timed
from kafkapy.network.settings import Listener
from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.disk_pool import DiskPool

from .conftest import LONG, Client, Echo, Running, Serve, framed, until
from .records import Records
from .test_idle import pass_time


class Peer(Client):
    """The other server's end of one connection: requests in, responses out, with blocking calls."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(LONG)


class Link:
    """The handler of one outgoing connection. It records the callbacks, and answers each response with `next`."""

    def __init__(self, next: Callable[[Connection, bytes], Reply] = lambda conn, frame: NO_REPLY) -> None:
        self.next = next
        self.notified = threading.Event()
        self.connection: Connection | None = None
        self.error: Exception | None = None
        self.calls = 0
        self.responses: list[bytes] = []
        self.closed = threading.Event()

    def opened(self, connection: Connection | None, error: Exception | None) -> None:
        self.calls += 1
        self.connection, self.error = connection, error
        if connection is not None:
            connection.on_close = self.closed.set
        self.notified.set()

    def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
        replies: list[Reply] = []
        for frame in frames:
            self.responses.append(bytes(frame))
            replies.append(self.next(connection, bytes(frame)))
            if replies[-1] is CLOSE or isinstance(replies[-1], Pending):
                break  # nothing may come after these
        return replies

    def end_turn(self, gathered: Any) -> Any:
        raise AssertionError("nothing is gathered")

    def send(self, *requests: bytes) -> None:
        assert self.connection is not None
        processor = self.connection.processor
        for request in requests:
            processor.post(processor.send, self.connection, [framed(request)])


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.settimeout(LONG)
        yield sock


def opened(running: Running, link: Link, address: tuple[str, int], **kwargs: Any) -> Link:
    running.server.open(address, link, link.opened, kwargs.pop("timeout_s", LONG), **kwargs)
    assert link.notified.wait(LONG)
    return link


def connected(running: Running, listening: socket.socket, link: Link | None = None) -> tuple[Link, Peer]:
    link = opened(running, link or Link(), listening.getsockname())
    assert link.error is None
    peer = Peer(listening.accept()[0])
    running.clients.append(peer)
    return link, peer


def test_requests_go_out_in_order_with_several_in_flight_and_responses_come_in_order(
    serve: Serve, listening: socket.socket
) -> None:
    link, peer = connected(serve(), listening)
    sizes = [10, 0, 200_000, 3, 70_000]
    requests = [b"%d" % number * size for number, size in enumerate(sizes)]
    link.send(*requests)
    assert peer.frames(5) == requests
    peer.send_aside(*reversed(requests)).join()
    until(lambda: link.responses == requests[::-1])


def test_the_handlers_reply_to_a_response_is_sent_as_the_next_request(serve: Serve, listening: socket.socket) -> None:
    def next(connection: Connection, response: bytes) -> Reply:
        return [framed(b"after " + response)] if len(response) < 30 else NO_REPLY

    link, peer = connected(serve(), listening, Link(next))
    link.send(b"first", b"second")
    while len(link.responses) < 7:
        request = peer.frame()
        peer.send(request)
        until(lambda request=request: request in link.responses)  # type: ignore[misc]
    assert link.responses[:4] == [b"first", b"second", b"after first", b"after second"]


def test_a_response_may_be_handled_later_and_later_responses_wait(serve: Serve, listening: socket.socket) -> None:
    pending: list[Pending] = []

    def next(connection: Connection, response: bytes) -> Reply:
        if response != b"slow":
            return NO_REPLY
        pending.append(Pending(connection))
        return pending[-1]

    link, peer = connected(serve(), listening, Link(next))
    peer.send(b"slow", b"behind")
    until(lambda: len(pending) == 1)
    link.send(b"meanwhile")
    assert peer.frame() == b"meanwhile"
    pending[0].complete([framed(b"next")])
    assert peer.frame() == b"next"
    until(lambda: link.responses[-1] == b"behind")


@pytest.mark.parametrize("sizes", [(32_000_000, 5), (5, 7, 32_000_000), (20_000, 5)])
def test_the_next_response_is_received_while_the_last_one_is_in_use(
    serve: Serve, listening: socket.socket, sizes: tuple[int, ...]
) -> None:
    pending: list[Pending] = []
    first = b"f" * 100_000
    seen: list[memoryview] = []

    class Slow(Link):
        def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
            if not pending:
                seen.append(frames[0])
                pending.append(Pending(connection))
                pending[0].keeps_buffer = True
                return pending[:1]
            return super().handle(connection, frames)

    link, peer = connected(serve(), listening, Slow())
    responses = [bytes([number]) * size for number, size in enumerate(sizes)]
    peer.send(first)
    until(lambda: len(pending) == 1)
    peer.send(responses[0])  # a large one blocks until it is received
    assert bytes(seen[0]) == first
    assert not link.responses
    sending = peer.send_aside(*responses[1:])
    pending[0].complete(NO_REPLY)
    until(lambda: link.responses == responses)
    sending.join()


def test_the_callback_of_a_sent_request_is_called(serve: Serve, listening: socket.socket) -> None:
    link, peer = connected(serve(), listening)
    assert link.connection is not None
    sent = threading.Event()
    processor = link.connection.processor
    processor.post(processor.send, link.connection, Timed([framed(b"timed")], sent.set))
    assert peer.frame() == b"timed"
    assert sent.wait(LONG)


def test_a_refused_connection_is_reported_with_the_reason(serve: Serve, listening: socket.socket) -> None:
    address = listening.getsockname()
    listening.close()
    link = opened(serve(), Link(), address)
    assert isinstance(link.error, ConnectionRefusedError)
    assert link.connection is None


def test_a_connect_without_an_answer_is_given_up_after_its_time(serve: Serve) -> None:
    clock = ManualClock()
    running = serve(clock=clock, num_network_threads=1)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as waiting:
        for _ in range(3):  # the accept queue holds one or two connections: the kernel drops the SYNs of others
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        link = Link()
        running.server.open(full.getsockname(), link, link.opened, 5)
        assert running.connect().is_open()
        pass_time(running, clock, 4.9)
        assert not link.notified.is_set()
        pass_time(running, clock, 0.2)
        assert link.notified.wait(LONG)
        assert isinstance(link.error, TimeoutError)
        assert "5 s" in str(link.error)
        assert full.getsockname()[0] in str(link.error)
        waiting.close()
        pass_time(running, clock, 10)
        assert link.calls == 1


def test_a_connection_in_time_is_not_given_up_later(serve: Serve, listening: socket.socket) -> None:
    clock = ManualClock()
    running = serve(clock=clock, num_network_threads=1)
    link = opened(running, Link(), listening.getsockname(), timeout_s=5)
    peer = Peer(listening.accept()[0])
    pass_time(running, clock, 6)
    peer.send(b"still there")
    until(lambda: link.responses == [b"still there"])
    assert link.calls == 1
    peer.close()


@pytest.mark.parametrize("part", [b"", b"\0", b"\0\0\0\x05ab", (90_000).to_bytes(4, "big") + b"x" * 50_000])
def test_on_close_is_called_when_the_peer_closes_in_the_middle_of_a_frame(
    serve: Serve, listening: socket.socket, part: bytes
) -> None:
    running = serve()
    link, peer = connected(running, listening)
    peer.send(b"whole")
    peer.sock.sendall(part)
    peer.close()
    assert link.closed.wait(LONG)
    assert link.responses == [b"whole"]
    until(lambda: sum(map(len, running.server._processors)) == 0)
    link.send(b"nobody gets this")
    assert running.connect().is_open()


@pytest.mark.parametrize("closes", [False, True])
def test_a_response_that_came_with_the_connection_is_received(
    serve: Serve, listening: socket.socket, closes: bool
) -> None:
    """A single epoll event reports that the connection is established and has bytes."""
    running, link, may_continue = serve(num_network_threads=1), Link(), threading.Event()
    (processor,) = running.server._processors
    running.server.open(listening.getsockname(), link, link.opened, LONG)
    processor.post(may_continue.wait, LONG)
    peer = Peer(listening.accept()[0])
    peer.send(b"hello")
    if closes:
        peer.close()
    may_continue.set()
    until(lambda: link.responses == [b"hello"])
    if closes:
        assert link.closed.wait(LONG)
    peer.close()


def test_a_handler_that_returns_close_closes(serve: Serve, listening: socket.socket) -> None:
    link, peer = connected(serve(), listening, Link(lambda connection, response: CLOSE))
    peer.send(b"anything")
    assert peer.is_closed()
    assert link.closed.wait(LONG)


def test_two_peers_that_send_before_they_receive_do_not_wait_for_each_other(
    serve: Serve, listening: socket.socket
) -> None:
    """The peer reads no request until its responses are sent, as a kafkapy broker does."""
    link, peer = connected(serve(socket_send_buffer_bytes=4096), listening)
    link.send(b"q" * 20_000_000)
    peer.send(*[b"r" * 1_000_000] * 20)  # blocks until they are received
    until(lambda: len(link.responses) == 20)
    assert peer.frame() == b"q" * 20_000_000


def test_limits_and_idleness_are_for_clients_only(serve: Serve, listening: socket.socket) -> None:
    clock = ManualClock()
    running = serve(
        clock=clock, num_network_threads=1, max_connections=1, max_connections_per_ip=1, connections_max_idle_ms=10_000
    )
    link, peer = connected(running, listening)
    other, other_peer = connected(running, listening)
    client = running.connect()
    assert client.is_open()
    assert running.server.connections == running.count("network_connections") == 1
    running.server.limits.update(max_connections=0)
    assert client.is_closed()
    pass_time(running, clock, 100)
    for one, at in ((link, peer), (other, other_peer)):
        at.send(b"still there")
        until(lambda one=one: one.responses == [b"still there"])  # type: ignore[misc]
    peer.close()
    assert link.closed.wait(LONG)
    assert running.server.connections == 0
    assert running.count("network_connections_closed_idle") == 0


def test_stop_cancels_connections_being_opened_and_closes_open_ones(serve: Serve, listening: socket.socket) -> None:
    running = serve(num_network_threads=1)
    link, peer = connected(running, listening)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as waiting:
        for _ in range(3):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        unanswered, late, may_continue = Link(), Link(), threading.Event()
        (processor,) = running.server._processors
        processor.post(may_continue.wait, LONG)  # so that the thread does not end before the last of these
        running.server.open(full.getsockname(), unanswered, unanswered.opened, LONG)
        processor.post(processor._begin_drain, float("inf"))
        running.server.open(listening.getsockname(), late, late.opened, LONG)
        may_continue.set()
        for never in (unanswered, late):
            assert never.notified.wait(LONG)
            assert "stopping" in str(never.error)
    assert link.closed.wait(LONG)
    assert peer.is_closed()


def test_a_host_name_is_not_looked_up(serve: Serve) -> None:
    """A DNS lookup may take seconds, and would block the network thread."""
    link = opened(serve(), Link(), ("localhost", 1))
    assert isinstance(link.error, socket.gaierror)


def test_a_failing_callback_does_not_harm_other_connections(
    serve: Serve, listening: socket.socket, caplog: Any
) -> None:
    running = serve(num_network_threads=1)
    running.server.open(listening.getsockname(), Link(), lambda connection, error: 1 // 0, LONG)
    link, peer = connected(running, listening)
    peer.send(b"hello")  # the first to be accepted is the connection of the caller that failed: any of the two is fine
    assert running.connect().is_open()
    assert "ZeroDivisionError" in caplog.text
    assert link.error is None


def test_a_connection_through_a_transport_shakes_hands_before_its_first_request(serve: Serve) -> None:
    """The request waits from the beginning, but the transport has to receive before it can send."""
    pool = DiskPool(1)
    running = serve(
        Echo(),
        listeners=(Listener("PLAINTEXT", "127.0.0.1", 0), Listener("RECORDS", "127.0.0.1", 0)),
        prepare={"RECORDS": lambda connection: Records(connection, pool)},
        num_network_threads=1,
        socket_send_buffer_bytes=4096,
    )
    link = Link()

    def opened(connection: Connection | None, error: Exception | None) -> None:
        link.opened(connection, error)
        assert connection is not None
        for request in (b"first", b"x" * 100_000):
            connection.processor.send(connection, [framed(request)])

    running.server.open(
        ("127.0.0.1", running.ports["RECORDS"]),
        link,
        opened,
        LONG,
        lambda connection: Records(connection, pool, welcome=300_000),
    )
    until(lambda: link.responses == [b"first", b"x" * 100_000])
    assert {connection.principal for connection in running.handler.connections.values()} == {"User:records"}
    pool.stop()


def test_an_outgoing_connection_reports_that_its_transport_cannot_be_created(
    serve: Serve, listening: socket.socket
) -> None:
    def prepare(connection: Connection) -> None:
        raise ValueError("made to fail")

    running = serve()
    link = opened(running, Link(), listening.getsockname(), prepare=prepare)
    assert isinstance(link.error, ValueError)
    assert Peer(listening.accept()[0]).is_closed()
    assert running.connect().is_open()
