"""Stopping: replies in progress are sent, everything is closed, and nothing hangs."""

import socket
import threading

import pytest

from kafkapy.network.connection import Connection
from kafkapy.network.replies import Pending, Reply

from .conftest import Echo, Running, Serve, framed, until


class Later(Echo):
    def __init__(self) -> None:
        super().__init__()
        self.pending: list[Pending] = []

    def answer(self, connection: Connection, frame: bytes) -> Reply:
        if frame == b"wait":
            self.pending.append(Pending(connection))
            return self.pending[-1]
        if frame == b"large":
            return [framed(bytes(10_000_000))]
        return super().answer(connection, frame)


def stopping(running: Running) -> threading.Thread:
    thread = threading.Thread(target=running.server.stop)
    thread.start()
    return thread


def test_replies_in_progress_are_sent_before_the_stop(serve: Serve) -> None:
    running = serve(Later())
    waiting, reading, idle = running.connect(), running.connect(receive_buffer=4096), running.connect()
    assert idle.is_open()
    waiting.send(b"wait")
    reading.send(b"large")
    until(lambda: len(running.handler.turns) == 3)
    thread = stopping(running)
    assert idle.is_closed()
    waiting.send(b"too late")
    running.handler.pending[0].complete([framed(b"done")])
    assert waiting.frame() == b"done"
    assert waiting.is_closed()
    assert len(reading.frame()) == 10_000_000
    assert reading.is_closed()
    thread.join()
    assert [b"too late"] not in running.handler.turns
    assert running.server.connections == 0


def test_stop_waits_for_a_pending_reply_no_longer_than_drain_s(serve: Serve) -> None:
    running = serve(Later(), drain_s=0.05)
    client = running.connect()
    client.send(b"wait")
    until(lambda: len(running.handler.pending) == 1)
    running.server.stop()
    assert client.is_closed()
    assert running.handler.pending[0].cancelled
    running.handler.pending[0].complete([framed(b"nobody")])


def test_stop_accepting_refuses_new_connections_and_keeps_the_old(serve: Serve) -> None:
    running = serve()
    client = running.connect()
    assert client.is_open()
    running.server.stop_accepting()
    running.server.stop_accepting()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", running.port))
    assert client.is_open()


def test_stop_ends_all_threads_and_may_be_repeated(serve: Serve) -> None:
    before = set(threading.enumerate())
    running = serve(num_network_threads=3)
    clients = [running.connect() for _ in range(10)]
    assert all(client.is_open() for client in clients)
    running.server.stop()
    running.server.stop()
    assert set(threading.enumerate()) - before == set()
    assert all(client.is_closed() for client in clients)


def test_the_port_is_free_at_once_after_a_stop(serve: Serve) -> None:
    from kafkapy.network.settings import Listener

    first = serve()
    client = first.connect()
    assert client.is_open()
    first.server.stop()
    second = serve(listeners=(Listener("AGAIN", "127.0.0.1", first.port),))
    assert second.connect().is_open()


def test_stop_while_clients_keep_connecting_and_sending(serve: Serve) -> None:
    running = serve(num_network_threads=2)
    end = threading.Event()

    def bother() -> None:
        while not end.is_set():
            try:
                client = running.connect()
                client.send(b"x")
                client.frame()
                client.close()
            except (OSError, EOFError):
                pass

    threads = [threading.Thread(target=bother) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: running.count("network_frames_in") > 100)
    running.server.stop()
    end.set()
    for thread in threads:
        thread.join()
    assert running.server.connections == 0
