"""Limits of connections: max.connections, the limit of a listener and the limit per address."""

import errno
import socket
from collections.abc import Callable

import pytest

from kafkapy.network.limits import ConnectionLimits
from kafkapy.network.settings import Listener, NetworkSettings
from kafkapy.runtime.config_def import ConfigError
from kafkapy.runtime.threads import NoThread

from .conftest import Client, Serve, until

TWO = (Listener("CLIENTS", "127.0.0.1", 0), Listener("BROKERS", "127.0.0.1", 0))


def test_an_address_above_its_share_is_closed_and_the_log_says_why(serve: Serve, caplog) -> None:
    caplog.set_level("INFO")
    running = serve(max_connections_per_ip=2)
    first, second = running.connect(), running.connect()
    assert first.is_open()
    assert second.is_open()
    assert running.connect().is_closed()
    assert "its address has max.connections.per.ip connections" in caplog.text
    assert running.count("network_connections_rejected") == 1
    first.close()
    until(lambda: running.server.connections == 1)
    assert running.connect().is_open()


def test_an_address_may_have_its_own_limit_by_name(serve: Serve) -> None:
    running = serve(max_connections_per_ip=0, max_connections_per_ip_overrides={"localhost": 1})
    assert running.connect().is_open()
    assert running.connect().is_closed()


def test_a_host_that_does_not_resolve_is_an_error_that_names_it() -> None:
    settings = NetworkSettings(max_connections_per_ip_overrides={"no.such.host.invalid": 1})
    problem = r"^max\.connections\.per\.ip\.overrides=no\.such\.host\.invalid:1: the host does not resolve \("
    with pytest.raises(ConfigError, match=problem):
        ConnectionLimits(settings, [])


def test_a_name_that_no_host_can_have_is_logged_and_left_out(caplog) -> None:
    limits = ConnectionLimits(NetworkSettings(), [])
    limits.update(overrides={"a..b": 1, "127.0.0.1": 2})
    assert "max.connections.per.ip.overrides=a..b:1: the host does not resolve" in caplog.text
    assert limits.limit_of("127.0.0.1") == 2


def test_a_host_that_does_not_resolve_later_is_looked_up_again(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    limits = ConnectionLimits(NetworkSettings(), [])
    addresses = {"known.invalid": "192.0.2.1"}

    def look_up(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if host not in addresses:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", (addresses[host], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    for _ in range(2):  # settings are passed again when another one changes
        limits.update(overrides={"known.invalid": 1, "late.invalid": 2})
    waiting: list[Callable[[], object]] = []
    for _ in range(2):
        limits.resolve_missing(waiting.append)
    assert len(waiting) == 1  # no second lookup before the first one has ended
    waiting.pop()()
    assert caplog.text.count("late.invalid:2: the host does not resolve") == 1
    addresses["late.invalid"] = "192.0.2.2"
    limits.resolve_missing(waiting.append)
    waiting.pop()()
    assert [limits.limit_of(f"192.0.2.{number}") for number in (1, 2)] == [1, 2]
    limits.resolve_missing(waiting.append)
    assert not waiting


def test_a_lookup_that_could_not_be_started_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = ConnectionLimits(NetworkSettings(), [])

    def look_up(*_: object, **__: object) -> list[tuple[object, ...]]:
        raise socket.gaierror(-2, "Name or service not known")

    def refuse(call: Callable[[], object]) -> None:
        raise NoThread("kafkapy-disk", "out of memory")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    limits.update(overrides={"late.invalid": 2})
    with pytest.raises(NoThread):
        limits.resolve_missing(refuse)
    waiting: list[Callable[[], object]] = []
    limits.resolve_missing(waiting.append)
    assert len(waiting) == 1


def test_at_max_connections_new_ones_wait_until_one_closes(serve: Serve) -> None:
    running = serve(max_connections=2)
    first, second = running.connect(), running.connect()
    assert first.is_open()
    assert second.is_open()
    third = running.connect()  # the kernel completes the handshake, but the server does not accept it
    third.send(b"hello")
    until(lambda: running.count("network_acceptor_pauses") >= 1)
    assert first.is_open()
    assert running.server.connections == 2
    second.close()
    assert third.frame() == b"hello"


def test_a_listener_has_its_own_limit(serve: Serve) -> None:
    running = serve(listeners=TWO, max_connections_per_listener={"CLIENTS": 1})
    first = running.connect("CLIENTS")
    assert first.is_open()
    waiting = running.connect("CLIENTS")
    waiting.send(b"hello")
    assert running.connect("BROKERS").is_open()
    assert running.count("network_connections") == 2
    first.close()
    assert waiting.frame() == b"hello"


@pytest.mark.parametrize("threads", [1, 2])
def test_the_brokers_listener_takes_the_place_of_the_idlest_client(serve: Serve, threads: int) -> None:
    running = serve(listeners=TWO, max_connections=3, inter_broker_listener="BROKERS", num_network_threads=threads)
    clients = []
    for _ in range(3):
        clients.append(running.connect("CLIENTS"))
        assert clients[-1].is_open()
    assert clients[0].is_open()
    broker = running.connect("BROKERS")
    assert broker.is_open()
    if threads == 1:
        assert clients[1].is_closed()  # 0 was active after it
        assert clients[0].is_open()
    until(lambda: running.server.connections <= 3)
    assert broker.is_open()


def test_lowering_max_connections_closes_the_idlest(serve: Serve) -> None:
    running = serve()
    clients = []
    for _ in range(4):
        clients.append(running.connect())
        assert clients[-1].is_open()
    running.server.limits.update(max_connections=2)
    assert clients[0].is_closed()
    assert clients[1].is_closed()
    assert clients[2].is_open()
    assert clients[3].is_open()


def test_raising_a_limit_accepts_waiting_connections(serve: Serve) -> None:
    running = serve(max_connections=1)
    assert running.connect().is_open()
    waiting = running.connect()
    waiting.send(b"hello")
    running.server.limits.update(max_connections=2, max_connections_per_ip=2, overrides={}, per_listener={})
    assert waiting.frame() == b"hello"
    assert running.connect() is not waiting


def test_the_acceptor_continues_after_a_lack_of_descriptors(serve: Serve, monkeypatch, caplog) -> None:
    failures = [OSError(errno.EMFILE, "Too many open files"), ConnectionAbortedError()]
    real = socket.socket.accept

    def accept(sock: socket.socket):
        if failures:
            raise failures.pop(0)
        return real(sock)

    running = serve()
    monkeypatch.setattr(socket.socket, "accept", accept)
    assert running.connect().is_open()
    assert failures == []
    assert "cannot accept connections for now" in caplog.text


def test_many_connections_come_and_go(serve: Serve) -> None:
    # The limit per address would be reached if a closed connection were still counted.
    running = serve(max_connections=5, max_connections_per_ip=10, num_network_threads=2)
    for _ in range(100):
        clients = [Client(running.port) for _ in range(5)]
        assert all(client.is_open() for client in clients)
        for client in clients:
            client.close()
    until(lambda: running.server.connections == 0)
