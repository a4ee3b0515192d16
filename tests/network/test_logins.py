"""Logins without TLS: what ends them, what is counted, and one line in the log for each."""

from __future__ import annotations

import logging
import ssl
import struct
from collections.abc import Callable

import pytest

from kafkapy.network.connection import Connection
from kafkapy.network.logins import Login
from kafkapy.network.receive import BIG
from kafkapy.network.replies import CLOSE, Reply
from kafkapy.network.settings import Listener
from kafkapy.runtime.clock import ManualClock

from .conftest import Client, Echo, Running, Serve, framed, until
from .test_idle import pass_time
from .tls_client import TlsClient

LISTENERS = (Listener("PLAINTEXT", "127.0.0.1", 0), Listener("LOGIN", "127.0.0.1", 0))
LARGEST = 200_000


class Password(Echo):
    """A handler that accepts "password", and then gives the connection to `after`. Another password closes it."""

    def __init__(self, after: Echo) -> None:
        super().__init__()
        self.after = after

    def answer(self, connection: Connection, frame: bytes) -> Reply:
        assert connection.login is not None
        if len(frame) > 1000 or frame == b"password":
            connection.login.succeed("PASSWORD")
            connection.handler, connection.principal = self.after, "User:somebody"
            return [framed(b"welcome")]
        connection.login.fail("wrong password", "PASSWORD")
        return CLOSE


@pytest.fixture
def serve_logins(serve: Serve) -> Callable[..., Running]:
    def start(**kwargs: object) -> Running:
        handler = Echo()

        def prepare(conn: Connection) -> None:
            conn.processor.logins.begin(conn)
            conn.handler, conn.largest_frame = Password(handler), LARGEST

        return serve(handler, listeners=LISTENERS, prepare={"LOGIN": prepare}, num_network_threads=1, **kwargs)

    return start


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def failures(running: Running) -> dict[tuple[str, ...], float]:
    found = running.counters.read()
    return {labels: value for metric, values in found.items() for labels, value in values
            if metric.name == "network_authentication_failures"}  # type: ignore[misc]  # fmt: skip


def log_in(running: Running) -> Client:
    client = running.connect("LOGIN")
    client.send(b"password")
    assert client.frame() == b"welcome"
    return client


def test_clients_that_log_in_are_served_after_others(serve_logins: Callable[..., Running]) -> None:
    running = serve_logins()
    seen: list[bool] = []
    succeed = Login.succeed

    def note(login: Login, mechanism: str) -> None:
        seen.append(login.conn.patient)
        succeed(login, mechanism)
        seen.append(login.conn.patient)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Login, "succeed", note)
        log_in(running)
    assert seen == [True, False]


def test_a_login_that_succeeds_has_no_time_limit_any_more(
    serve_logins: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    running = serve_logins(clock=clock, authentication_timeout_ms=5000)
    client, late = log_in(running), running.connect("LOGIN")
    late.sock.sendall(b"\0")
    until(lambda: running.count("network_connections_authenticating") == 1)
    pass_time(running, clock, 6)
    assert late.is_closed()
    assert client.is_open()
    assert lines(caplog) == [
        "authentication failed: SASL: the login was not over within 5 s (kafkapy.authentication.timeout.ms)"
    ]
    assert running.count("network_authentications") == 1


@pytest.mark.parametrize(
    ("sent", "line"),
    [
        (framed(b"guess"), "PASSWORD: wrong password"),
        (struct.pack(">i", LARGEST + 1), f"SASL: it sent a frame of {LARGEST + 1} bytes, which is above the limit"),
        (struct.pack(">i", -1), "SASL: it sent a frame of -1 bytes, which is negative"),
        (b"\0\0\0\x50half", "SASL: the connection was closed during the login"),
        (b"", None),
    ],
)
def test_a_login_that_fails_is_one_line(
    serve_logins: Callable[..., Running], caplog: pytest.LogCaptureFixture, sent: bytes, line: str | None
) -> None:
    running = serve_logins()
    client = running.connect("LOGIN")
    client.sock.sendall(sent)
    until(lambda: running.count("network_connections_accepted") == 1)
    client.close()
    until(lambda: running.server.connections == 0)
    if line is None:
        assert not lines(caplog)
        assert running.count("network_connections_without_data") == 1
    else:
        (found,) = lines(caplog)
        assert found.startswith(f"authentication failed: {line}")
        assert failures(running) == {("LOGIN", line.partition(":")[0]): 1}


def test_tls_on_a_listener_with_logins_in_plain_text_is_one_line(
    serve_logins: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    running = serve_logins()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        TlsClient(running.ports["LOGIN"])
    until(lambda: running.server.connections == 0)
    assert lines(caplog) == ["authentication failed: SASL: the peer speaks TLS, but this listener is plain text"]


def test_a_client_that_has_to_log_in_gets_no_large_buffer_of_the_pool(serve_logins: Callable[..., Running]) -> None:
    running = serve_logins()
    user = log_in(running)
    sending = user.send_aside(b"x" * 20_000, b"x" * 150_000)
    user.frames(2)
    sending.join()
    (processor,) = running.server._processors
    large = [buffer for buffer in processor.pool._free if buffer.capacity > LARGEST]
    assert large
    client = running.connect("LOGIN")
    frame = framed(b"x" * 100_000)
    client.sock.sendall(frame[: 2 * BIG])
    until(lambda: any(conn.big is not None for conn in processor._connections.values()))
    assert {id(buffer) for buffer in large} == {id(one) for one in processor.pool._free if one.capacity > LARGEST}
    client.sock.sendall(frame[2 * BIG :])
    assert client.frame() == b"welcome"


def test_when_the_server_stops_unfinished_logins_are_no_failures(
    serve_logins: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    running = serve_logins()
    client = running.connect("LOGIN")
    client.sock.sendall(b"\0")
    until(lambda: running.count("network_connections_authenticating") == 1)
    running.server.stop()
    assert client.is_closed()
    assert not lines(caplog)
    assert not failures(running)
