"""Addresses to listen on, and errors that name them."""

import socket

import pytest

from kafkapy.network.listeners import ListenError, open_listener
from kafkapy.network.settings import Listener, NetworkSettings
from kafkapy.network.socket_server import SocketServer
from kafkapy.runtime.counters import Registry
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.read_pools import ReadPools
from tests.harness.brokers import free_port

from .conftest import Echo, Serve

SETTINGS = NetworkSettings()


def test_port_0_gives_a_real_port_a_listener(serve: Serve) -> None:
    running = serve(listeners=(Listener("A", "127.0.0.1", 0), Listener("B", "localhost", 0)))
    assert running.ports["A"] > 0
    assert running.ports["A"] != running.ports["B"]
    assert running.connect("A").is_open()
    (connection,) = running.handler.connections.values()
    assert connection.listener == "A"


def test_ipv6(serve: Serve) -> None:
    running = serve(listeners=(Listener("SIX", "::1", 0),))
    client = running.connect(host="::1")
    assert client.is_open()
    (connection,) = running.handler.connections.values()
    assert connection.peer == client.sock.getsockname()[:2]
    assert connection.name.startswith(f"[::1]:{running.port}-[::1]:")
    with pytest.raises(ConnectionRefusedError):
        running.connect(host="127.0.0.1")


def test_an_empty_host_is_every_interface_of_both_protocols(serve: Serve) -> None:
    running = serve(listeners=(Listener("ALL", "", 0),), max_connections_per_ip=1)
    client = running.connect(host="127.0.0.1")
    assert client.is_open()
    (connection,) = running.handler.connections.values()
    assert connection.peer[0] == "127.0.0.1"  # not ::ffff:127.0.0.1, which limits would not find
    assert running.connect(host="::1").is_open()
    assert running.connect(host="127.0.0.1").is_closed()


def test_the_ipv6_wildcard_is_every_interface_of_both_protocols(serve: Serve) -> None:
    running = serve(listeners=(Listener("ALL", "::", 0),))
    assert running.connect(host="127.0.0.1").is_open()
    assert running.connect(host="::1").is_open()


@pytest.mark.parametrize("names", [("FOUR", "SIX"), ("SIX", "FOUR")])
def test_the_wildcards_of_both_protocols_can_share_a_port(serve: Serve, names: tuple[str, str]) -> None:
    hosts = {"FOUR": "0.0.0.0", "SIX": "::"}
    port = free_port()
    running = serve(listeners=[Listener(name, hosts[name], port) for name in names])
    assert running.connect("FOUR", host="127.0.0.1").is_open()
    assert running.connect("SIX", host="::1").is_open()
    assert sorted(one.listener for one in running.handler.connections.values()) == ["FOUR", "SIX"]


def test_a_port_in_use_is_named_and_nothing_stays_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        pool = DiskPool(1)
        server = SocketServer(
            [Listener("FREE", "127.0.0.1", 0), Listener("TAKEN", "127.0.0.1", port)],
            Echo(),
            SETTINGS,
            Registry(),
            pool,
            ReadPools(1),
        )
        with pytest.raises(ListenError, match=rf"cannot listen on TAKEN://127\.0\.0\.1:{port}: the port is in use"):
            server.bind()
        assert server._sockets == []
        server.stop()


@pytest.mark.parametrize(
    ("host", "reason"),
    [("192.0.2.1", "no such address"), ("no.such.host.invalid", "does not resolve")],
)
def test_an_address_that_cannot_be_bound_is_named_in_the_error(host: str, reason: str) -> None:
    with pytest.raises(ListenError, match=reason) as error:
        open_listener(Listener("X", host, 9092), SETTINGS)
    assert f"X://{host}:9092" in str(error.value)


def test_socket_options(serve: Serve) -> None:
    running = serve(socket_send_buffer_bytes=50_000, socket_receive_buffer_bytes=60_000)
    assert running.connect().is_open()
    (connection,) = running.handler.connections.values()
    sock = connection.sock
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 100_000  # Linux doubles the requested size
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 120_000
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_a_listener_prints_as_it_is_configured() -> None:
    assert str(Listener("P", "::1", 9092)) == "P://[::1]:9092"
    assert str(Listener("P", "", 9092)) == "P://:9092"
