"""Kernel TLS: which connections give their keys to the kernel, and that these are the right keys.

The tests of test_tls.py are done with kernel TLS, too, where the kernel has it. Those below need no such kernel: a
stand-in takes the keys, so what the server then sends is plain text, and the test encrypts it.
"""

from __future__ import annotations

import io
import logging
import socket
import ssl
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kafkapy.network.kernel_tls import SUITES, KernelTls, KeyLog, crypto_info
from kafkapy.network.settings import Listener
from kafkapy.network.tls import TlsListener
from kafkapy.network.tls_connections import TlsConnections
from kafkapy.network.transports import Transport
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.server import secured_listeners

from .conftest import Running, Serve, framed, until
from .test_tls import OpenSsl, anonymous, lines
from .tls_client import RecordClient, client_context, server_context

ALL = frozenset(SUITES)
AES_256 = "TLS_AES_256_GCM_SHA384"


class StandIn:
    """A kernel that takes the keys, but does not encrypt."""

    def __init__(self, takes: bool = True) -> None:
        self.takes = takes
        self.keys: list[bytes] = []
        self.alerts: list[bytes] = []

    def take_key(self, sock: socket.socket, info: bytes) -> bool:
        self.keys.append(info)
        return self.takes

    def send_alert(self, sock: socket.socket, alert: bytes) -> None:
        self.alerts.append(alert)


class Server:
    """A running server whose TLS listener has a stand-in for the kernel."""

    def __init__(self, serve: Serve, kernel: KernelTls, context: ssl.SSLContext | None, send_buffer: int) -> None:
        self.pool = DiskPool(1, "handshake")
        self.kernel = kernel
        server = context or server_context()
        listener: list[TlsListener] = []
        self.transports: list[Any] = []

        def prepare(conn: Any) -> Transport:
            conn.processor.logins.begin(conn)
            self.transports.append(listener[0].prepare(conn))
            return self.transports[-1]

        self.running: Running = serve(
            listeners=[Listener("SSL", "127.0.0.1", 0)],
            prepare={"SSL": prepare},
            num_network_threads=1,
            socket_send_buffer_bytes=send_buffer,
        )
        connections = TlsConnections(self.running.counters)
        listener.append(TlsListener(lambda: server, self.pool, anonymous, connections, kernel))

    def connect(self, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> RecordClient:
        client = RecordClient(self.running.port, client_context(version=version))
        self.running.clients.append(client)
        client.shake_hands()
        return client

    def connections(self) -> dict[tuple[str, ...], float]:
        values = self.running.counters.read()
        return {labels[1:]: value for metric, found in values.items() for labels, value in found
                if metric.name == "network_tls_connections"}  # type: ignore[misc]  # fmt: skip

    def stop(self) -> None:
        self.running.stop()
        self.pool.stop()
        self.kernel.stop()


@pytest.fixture
def start(serve: Serve) -> Iterator[Any]:
    servers: list[Server] = []

    def begin(
        calls: StandIn,
        suites: frozenset[str] = ALL,
        context: ssl.SSLContext | None = None,
        send_buffer: int = 100_000,
    ) -> Server:
        servers.append(Server(serve, KernelTls(suites, calls), context, send_buffer))
        return servers[-1]

    yield begin
    for server in servers:
        server.stop()


def encrypted(info: bytes, data: bytes) -> bytes:
    """Return the record of application data that the kernel would make of `data` (AES-256-GCM)."""
    rest, key, salt, sequence = info[4:12], info[12:44], info[44:48], info[48:56]
    nonce = bytes(a ^ b for a, b in zip(salt + rest, bytes(4) + sequence, strict=True))
    header = struct.pack(">BHH", 23, 0x0303, len(data) + 1 + 16)
    return header + AESGCM(key).encrypt(nonce, data + b"\x17", header)


def test_the_keys_are_those_of_rfc_8448() -> None:
    secret = bytes.fromhex("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643")
    info = crypto_info(SUITES["TLS_AES_128_GCM_SHA256"], secret, 5)
    key, nonce = bytes.fromhex("9f02283b6c9c07efc26bb9f2ac92e356"), bytes.fromhex("cf782b88dd83549aadf1e984")
    assert info == struct.pack("=HH", 0x0304, 51) + nonce[4:] + key + nonce[:4] + bytes(7) + b"\5"


@pytest.mark.parametrize("tickets", [0, 1, 2])
def test_the_kernel_continues_where_openssl_has_ended(start: Any, tickets: int) -> None:
    context = server_context()
    context.num_tickets = tickets
    calls = StandIn()
    client = start(calls, context=context).connect()
    client.send(b"hello")
    received = bytearray()
    while not received.endswith(framed(b"hello")):
        received += client.sock.recv(1 << 16)
    (info,) = calls.keys
    assert struct.unpack("=HH", info[:4]) == (0x0304, SUITES[AES_256].number)
    assert info[-8:] == struct.pack(">Q", tickets)
    client.incoming.write(bytes(received[: -len(framed(b"hello"))]) + encrypted(info, framed(b"hello")))
    assert client.tls.read(100) == framed(b"hello")


@pytest.mark.parametrize(
    ("calls", "suites", "version", "send_buffer", "asked"),
    [
        (StandIn(), ALL, ssl.TLSVersion.TLSv1_2, 100_000, 0),
        (StandIn(), ALL - {AES_256}, ssl.TLSVersion.TLSv1_3, 100_000, 0),
        (StandIn(), ALL, ssl.TLSVersion.TLSv1_3, 16_384, 0),
        (StandIn(takes=False), ALL, ssl.TLSVersion.TLSv1_3, 100_000, 1),
    ],
    ids=["TLS 1.2", "a suite that the kernel does not know", "a small send buffer", "the kernel does not take the key"],
)
def test_a_connection_that_is_not_handed_over_goes_on_with_openssl(
    start: Any, calls: StandIn, suites: frozenset[str], version: ssl.TLSVersion, send_buffer: int, asked: int
) -> None:
    server = start(calls, suites, send_buffer=send_buffer)
    client = server.connect(version)
    for _ in range(3):
        client.send(b"hello", b"again" * 10_000)
        assert client.frames(2) == [b"hello", b"again" * 10_000]
    assert len(calls.keys) == asked
    (labels,) = server.connections()
    assert labels[2] == "openssl"
    client.close()
    until(lambda: not server.running.server.connections)
    assert calls.alerts == []


def test_connections_are_counted_by_cipher_suite_protocol_and_encryption(start: Any) -> None:
    server = start(StandIn())
    clients = [server.connect(), server.connect(), server.connect(ssl.TLSVersion.TLSv1_2)]
    expected = {
        (AES_256, "TLSv1.3", "kernel"): 2,
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLSv1.2", "openssl"): 1,
    }
    until(lambda: server.connections() == expected)
    for client in clients:
        client.close()
    until(lambda: server.connections() == dict.fromkeys(expected, 0))


def test_the_kernel_sends_the_end_of_the_stream(start: Any) -> None:
    calls = StandIn()
    server = start(calls)
    client = server.connect()
    client.sock.shutdown(socket.SHUT_WR)
    until(lambda: not server.running.server.connections)
    assert calls.alerts == [b"\1\0"]


def test_a_peer_that_asks_for_a_new_key_twice_is_closed_with_one_line(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    calls = StandIn()
    server = start(calls)
    client = OpenSsl(server.running.port, "-tls1_3")
    try:
        until(lambda: len(calls.keys) == 1)
        client.send("K\n")
        until(lambda: server.transports[0]._empty == 1)
        client.send("K\n")
        until(lambda: not server.running.server.connections)
    finally:
        client.stop()
    assert lines(caplog) == [
        "closed a TLS connection: it asks for a new key, which a connection with kernel TLS cannot have"
    ]


def test_a_wrong_record_closes_the_connection_with_one_line(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    calls = StandIn()
    client = start(calls).connect()
    stream = bytearray(client.records(b"hello"))
    stream[-1] ^= 1
    client.sock.sendall(stream)
    while client.sock.recv(1 << 16):  # session tickets, but no alert
        pass
    assert lines(caplog) == ["closed a TLS connection: it sent a record whose authentication code is wrong"]
    assert calls.alerts == []


def test_secrets_of_handshakes_are_told_once_and_never_mixed_up() -> None:
    keys = KeyLog()
    try:
        context = server_context()
        keys.attach(context)
        keys.attach(context)
        with open(context.keylog_filename, "a") as log:
            for number in range(3):
                log.write(f"SERVER_TRAFFIC_SECRET_0 {number:064x} {number + 16:096x}\n")
                log.write(f"CLIENT_TRAFFIC_SECRET_0 {number:064x} {1:096x}\nCLIENT_RANDOM {number:064x}")
                log.write(" aa\n\nnonsense\n")
        assert keys.take((1).to_bytes(32, "big")) == (17).to_bytes(48, "big")
        assert keys.take((1).to_bytes(32, "big")) is None
        assert keys.take((0).to_bytes(32, "big")) == (16).to_bytes(48, "big")
        assert keys.take((7).to_bytes(32, "big")) is None
    finally:
        keys.close()
        keys.close()  # a broker may be stopped twice


def test_a_thread_that_ends_before_it_is_woken_leaves_the_pipe_open_until_it_is() -> None:
    class Late:
        """A pipe that wakes the thread, and waits for its end, before the write that wakes it. A secret that arrives
        during the stop does the same."""

        def __init__(self, pipe: io.FileIO) -> None:
            self._pipe = pipe

        def write(self, data: bytes) -> None:
            self._pipe.write(b"\n")
            keys._thread.join()
            assert not self._pipe.closed
            self._pipe.write(data)

        def close(self) -> None:
            self._pipe.close()

    keys = KeyLog()
    pipe = keys._writer
    keys._writer = Late(pipe)  # type: ignore[assignment]
    keys.close()
    assert pipe.closed


def test_without_a_kernel_that_can_the_broker_says_so_and_openssl_encrypts(caplog: pytest.LogCaptureFixture) -> None:
    assert secured_listeners.kernel_tls(lambda: frozenset()) is None
    assert "kafkapy.ktls.enable is true, but this kernel cannot encrypt" in caplog.text


def test_with_a_kernel_that_can_the_broker_says_which_suites(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    kernel = secured_listeners.kernel_tls(lambda: frozenset({AES_256}))
    assert kernel is not None
    assert kernel.suites == {AES_256}
    kernel.stop()
    assert "the kernel encrypts" in caplog.text


def test_secrets_that_nobody_asks_for_never_fill_the_pipe() -> None:
    """OpenSSL logs one for each key update of a client, and would wait for room in the pipe."""
    keys = KeyLog()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    keys.attach(context)
    try:
        with open(context.keylog_filename, "a") as log:
            for number in range(10_000):
                log.write(f"CLIENT_TRAFFIC_SECRET_{number} {1:064x} {2:096x}\n")
            log.write(f"SERVER_TRAFFIC_SECRET_0 {5:064x} {6:096x}\n")
        assert keys.take((5).to_bytes(32, "big")) == (6).to_bytes(48, "big")
    finally:
        keys.close()


def test_two_handshakes_with_the_same_random_bytes_get_no_secret() -> None:
    keys = KeyLog()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    keys.attach(context)
    try:
        with open(context.keylog_filename, "a") as log:
            for secret in (6, 7):
                log.write(f"SERVER_TRAFFIC_SECRET_0 {5:064x} {secret:096x}\n")
        assert keys.take((5).to_bytes(32, "big")) is None
    finally:
        keys.close()
