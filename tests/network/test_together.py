"""The handler gathers requests of several connections, and answers them at the end of the turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from kafkapy.network.connection import Connection
from kafkapy.network.replies import CLOSE, GATHERED, Pending, Reply, Word
from kafkapy.runtime.clock import ManualClock

from .conftest import LONG, Client, Echo, Running, Serve, framed, until


class Together(Echo):
    """A handler that gathers frames where allowed; `ends` has the connections and frames of each gather."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[list[list[bytes]]] = []
        self.pending: list[Pending] = []

    def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply] | Word:  # type: ignore[override]
        if not connection.processor.together or bytes(frames[0]).startswith(b"alone"):
            return super().handle(connection, frames)
        connection.processor.gathered.append((connection, [bytes(frame) for frame in frames]))
        return GATHERED

    def end_turn(self, gathered: Sequence[tuple[Connection, list[bytes]]]) -> list[tuple[Connection, Sequence[Reply]]]:
        self.ends.append([frames for _, frames in gathered])
        if any(b"break" in frames for _, frames in gathered):
            raise ValueError("broken")
        return [(connection, [self.reply(connection, frame) for frame in frames]) for connection, frames in gathered]

    def reply(self, connection: Connection, frame: bytes) -> Reply:
        if frame == b"close":
            return CLOSE
        if frame == b"later":
            self.pending.append(Pending(connection))
            return self.pending[-1]
        if frame == b"mute":
            connection.processor.mute(connection, connection.processor.now + 30)
        return [framed(b"together " + frame)]


def answers(client: Client) -> bool:
    client.send(b"alone, still there?")
    return client.frame() == b"alone, still there?"


@contextmanager
def held(running: Running, clients: Sequence[Client]) -> Iterator[None]:
    """Hold the processor until the block ends, so that it finds everything sent in the block in one turn."""
    for client in clients:
        assert answers(client)
    processor = next(iter(running.handler.connections.values())).processor
    begun, may_continue = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        may_continue.wait(LONG)

    processor.post(hold)
    assert begun.wait(LONG)
    try:
        yield
    finally:
        may_continue.set()


def connected(serve: Serve, count: int, handler: Any = None, **settings: Any) -> tuple[Running, list[Client]]:
    running = serve(handler or Together(), num_network_threads=1, **settings)
    return running, [running.connect() for _ in range(count)]


def test_each_connection_gets_its_own_replies(serve: Serve) -> None:
    running, clients = connected(serve, 5)
    for turn in range(3):
        with held(running, clients):
            for number, client in enumerate(clients):
                client.send(*(b"%d %d %d" % (turn, number, one) for one in range(number + 1)))
        for number, client in enumerate(clients):
            assert client.frames(number + 1) == [
                b"together %d %d %d" % (turn, number, one) for one in range(number + 1)
            ]
    assert [len(end) for end in running.handler.ends] == [5, 5, 5]


def test_a_connection_that_is_alone_in_its_turn_is_answered_at_once(serve: Serve) -> None:
    running, (client,) = connected(serve, 1)
    client.send(b"a", b"b")
    assert client.frames(2) == [b"a", b"b"]
    assert not running.handler.ends


def test_others_of_the_same_turn_are_answered_on_their_own(serve: Serve) -> None:
    running, clients = connected(serve, 3)
    with held(running, clients):
        clients[0].send(b"x")
        clients[1].send(b"alone")
        clients[2].send(b"z")
    assert [client.frame() for client in clients] == [b"together x", b"alone", b"together z"]


def test_a_partly_received_frame_is_kept_for_the_next_turn(serve: Serve) -> None:
    running, clients = connected(serve, 2)
    whole = framed(b"second")
    with held(running, clients):
        clients[0].sock.sendall(framed(b"first") + whole[:5])
        clients[1].send(b"other")
    assert [client.frame() for client in clients] == [b"together first", b"together other"]
    clients[0].sock.sendall(whole[5:])
    assert clients[0].frame() in (b"second", b"together second")


def test_at_most_64_connections_are_gathered(serve: Serve) -> None:
    running, clients = connected(serve, 150)
    with held(running, clients):
        for number, client in enumerate(clients):
            client.send(b"%d" % number)
    assert [client.frame() for client in clients] == [b"together %d" % number for number in range(150)]
    assert max(map(len, running.handler.ends)) <= 64
    assert sum(map(len, running.handler.ends)) == 150


def test_a_waiting_reply_does_not_delay_other_connections(serve: Serve) -> None:
    running, clients = connected(serve, 3)
    with held(running, clients):
        for client, word in zip(clients, (b"a", b"later", b"b"), strict=True):
            client.send(word)
    assert [clients[0].frame(), clients[2].frame()] == [b"together a", b"together b"]
    clients[1].send(b"alone behind")
    assert answers(clients[0])
    (pending,) = running.handler.pending
    pending.complete([framed(b"at last")])
    assert clients[1].frames(2) == [b"at last", b"alone behind"]


def test_closing_one_gathered_connection_leaves_the_others(serve: Serve) -> None:
    running, clients = connected(serve, 3)
    with held(running, clients):
        for client, word in zip(clients, (b"a", b"close", b"b"), strict=True):
            client.send(word)
    assert clients[1].is_closed()
    assert [clients[0].frame(), clients[2].frame()] == [b"together a", b"together b"]
    assert answers(clients[0])


def test_a_peer_that_has_gone_leaves_the_others(serve: Serve) -> None:
    running, clients = connected(serve, 3)
    with held(running, clients):
        for client in clients:
            client.send(b"a")
        clients[1].close()
    assert [clients[0].frame(), clients[2].frame()] == [b"together a"] * 2
    until(lambda: sum(map(len, running.server._processors)) == 2)


def test_a_gather_that_fails_closes_those_in_it_and_no_others(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    running, clients = connected(serve, 3)
    with held(running, clients):
        clients[0].send(b"a")
        clients[1].send(b"break")
        clients[2].send(b"alone")
    assert clients[2].frame() == b"alone"
    assert clients[0].is_closed()
    assert clients[1].is_closed()
    assert answers(clients[2])
    assert "closed 2 connections after an error" in caplog.text


@pytest.mark.parametrize("word", [b"later", b"mute"])
def test_a_large_request_behind_a_gathered_one_reserves_no_memory_before_it_is_read(serve: Serve, word: bytes) -> None:
    clock = ManualClock()
    running, clients = connected(serve, 2, clock=clock, queued_max_request_bytes=1 << 20)
    payload = b"alone" + bytes(600_000)
    large = framed(payload)
    with held(running, clients):
        clients[0].sock.sendall(framed(word) + large[:20_000])
        clients[1].send(b"other")
    assert clients[1].frame() == b"together other"
    clients[0].sock.sendall(large[20_000:30_000])
    assert answers(clients[1])
    assert running.count("network_memory_used_bytes") == 0
    for pending in running.handler.pending:
        pending.complete([framed(b"together later")])
    clock.advance(60)  # the mute is over
    assert clients[0].frame() == b"together " + word
    until(lambda: running.count("network_memory_used_bytes") == len(large))
    clients[0].sock.sendall(large[30_000:])
    assert clients[0].frame() == payload
    assert running.count("network_memory_used_bytes") == 0
