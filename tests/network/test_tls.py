"""TLS on the connections of clients: every kind of reply, the handshake, and peers that do not keep to TLS."""

from __future__ import annotations

import fcntl
import logging
import random
import socket
import ssl
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from kafkapy.network.connection import ANONYMOUS, Connection
from kafkapy.network.kernel_tls import KernelTls, suites_of_this_kernel
from kafkapy.network.replies import CLOSE, Reply
from kafkapy.network.settings import Listener
from kafkapy.network.tls import (
    MOST_EMPTY_RECORDS,
    MOST_RECORDS_A_TURN,
    RECORD,
    TlsDialer,
    TlsListener,
    TlsTransport,
)
from kafkapy.record.file_region import FileRegion
from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.disk_pool import DiskPool
from tests.harness.certificates import Authority
from tests.harness.reference_cycles import objects_left_in_cycles

from .conftest import LONG, Echo, Running, Serve, framed, until
from .test_cold import Pages
from .test_idle import pass_time
from .test_outgoing import Link, Peer, listening, opened
from .test_transports import Everything, Later
from .tls_client import RecordClient, TlsClient, client_context, pki, server_context

LISTENERS = (Listener("PLAINTEXT", "127.0.0.1", 0), Listener("SSL", "127.0.0.1", 0))
__all__ = ["listening"]  # a fixture of another file
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]

ServeTls = Callable[..., Running]
# OpenSSL or the kernel encrypts replies. If this kernel has kernel TLS, all tests are done with it, too.
ENCRYPTION = ["openssl", "kernel"] if suites_of_this_kernel() else ["openssl"]


def anonymous(certificate: bytes | None) -> str:
    return ANONYMOUS


@pytest.fixture(params=ENCRYPTION)
def serve_tls(serve: Serve, request: pytest.FixtureRequest) -> Iterator[ServeTls]:
    """Return a function that starts a server with a plain listener and one with TLS. The transports of the TLS listener
    are in the server's `transports`."""
    pool = DiskPool(1, "handshake")
    kernels: list[KernelTls] = []

    def start(
        handler: Any = None, context: ssl.SSLContext | None = None, principal_of: Any = anonymous, **kwargs: Any
    ) -> Running:
        transports: list[TlsTransport] = []
        contexts = [context or server_context()]
        kernel = None
        if request.param == "kernel":
            kernels.append(kernel := KernelTls(suites_of_this_kernel()))
        listener = TlsListener(lambda: contexts[-1], pool, principal_of, kernel=kernel)

        def prepare(conn: Connection) -> TlsTransport:
            conn.processor.logins.begin(conn)
            transports.append(listener.prepare(conn))
            return transports[-1]

        running = serve(handler, listeners=LISTENERS, prepare={"SSL": prepare}, num_network_threads=1, **kwargs)
        running.transports = transports  # type: ignore[attr-defined]
        running.contexts = contexts  # type: ignore[attr-defined]
        return running

    yield start
    pool.stop()
    for kernel in kernels:
        kernel.stop()


@pytest.fixture
def only_openssl(serve_tls: ServeTls, request: pytest.FixtureRequest) -> None:
    """Skip the test with kernel TLS, which cannot change the key of what is sent."""
    if "kernel" in request.node.name:
        pytest.skip("kernel TLS: a peer that asks for a new key is closed")


def connect(running: Running, context: ssl.SSLContext | None = None, **kwargs: Any) -> TlsClient:
    client = TlsClient(running.ports["SSL"], context, **kwargs)
    running.clients.append(client)
    return client


def record_client(running: Running, context: ssl.SSLContext | None = None) -> RecordClient:
    client = RecordClient(running.ports["SSL"], context)
    running.clients.append(client)
    return client


def counted(running: Running, name: str) -> dict[tuple[str, ...], float]:
    return {labels: value for metric, found in running.counters.read().items() for labels, value in found
            if metric.name == name}  # type: ignore[misc]  # fmt: skip


def failures(running: Running) -> float:
    return counted(running, "network_authentication_failures").get(("SSL", "TLS"), 0)


# Data


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cold", [False, True], ids=["in memory", "cold"])
@pytest.mark.parametrize(
    ("size", "room"), [(10, 4096), (5000, 4096), (50_000, 4096), (50_000, 200_000), (1_000_000, 200_000)]
)
def test_every_part_of_a_reply_is_encrypted(
    serve_tls: ServeTls,
    region_of: Callable[..., FileRegion],
    size: int,
    room: int,
    cold: bool,
    version: ssl.TLSVersion,
) -> None:
    data = random.Random(size).randbytes(size)
    handler = Everything(region_of(b"x" * 7 + data, position=7))
    kwargs: dict[str, Any] = {"pages": Pages()} if cold else {}
    running = serve_tls(handler, socket_send_buffer_bytes=room, **kwargs)
    client = record_client(running, client_context(version=version))
    client.shake_hands()
    assert client.tls.version() == {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}[version]
    expected = data * 3 + b"s" * (12 - min(10, size)) + data[:10]
    for number in range(2):
        asked = [b"%d" % number * size, b"another"]
        sending = client.send_aside(*asked)
        assert client.frames(4) == [asked[0], expected, asked[1], expected]
        sending.join()
    until(lambda: len(handler.sent) == 4)
    assert running.count("network_bytes_out") == sum(4 + len(one) for one in asked) * 2 + 4 * (4 + len(expected))
    if cold:
        assert running.count("network_cold_reads") > 0


@pytest.mark.parametrize("size", [0, 1, RECORD - 5, RECORD - 4, RECORD - 3, 70_000, 300_000, 1_500_000])
def test_frames_of_every_size(serve_tls: ServeTls, size: int) -> None:
    client = record_client(serve_tls())
    client.shake_hands()
    frames = [random.Random(size).randbytes(size), b"small", b"x" * size, b""]
    sending = client.send_aside(*frames)
    assert client.frames(4) == frames
    sending.join()


def test_many_small_frames_in_one_record_and_many_records_in_one_receive(serve_tls: ServeTls) -> None:
    running = serve_tls()
    client = record_client(running)
    client.shake_hands()
    frames = [b"%d" % number for number in range(1000)]
    client.sock.sendall(client.records(*frames))
    assert client.frames(1000) == frames
    client.sock.sendall(b"".join(client.records(frame) for frame in frames))
    assert client.frames(1000) == frames


def test_records_cut_at_every_byte(serve_tls: ServeTls) -> None:
    running = serve_tls()
    plain, client = running.connect("PLAINTEXT"), record_client(running)
    client.shake_hands()
    for cut in range(1, 90):
        stream = client.records(b"first") + client.records(b"second", b"third")
        client.sock.sendall(stream[:cut])
        assert plain.is_open()  # so the network thread has seen the first part
        client.sock.sendall(stream[cut:])
        assert client.frames(3) == [b"first", b"second", b"third"]


def test_a_byte_at_a_time(serve_tls: ServeTls) -> None:
    running = serve_tls()
    client = record_client(running)
    client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in client.hello():
        client.sock.sendall(bytes([byte]))
    for byte in client.finish() + client.records(b"hello", b"") + client.records(b"!"):
        client.sock.sendall(bytes([byte]))
    assert client.frames(3) == [b"hello", b"", b"!"]


@pytest.mark.parametrize("size", [5000, 30_000], ids=["small frame", "large frame"])
def test_a_peer_with_records_of_one_byte_does_not_hold_up_others(serve_tls: ServeTls, size: int) -> None:
    running = serve_tls()
    client = record_client(running)
    client.shake_hands()
    client.send(b"first")
    assert client.frame() == b"first"
    (transport,) = running.transports  # type: ignore[attr-defined]
    conn = transport._conn
    received: list[int] = []

    def counted(fd: int, view: memoryview, start: int, end: int) -> int:
        received.append(transport.recv_into(fd, view, start, end))
        return received[-1]

    conn.recv_into = conn.recv_into_long = counted
    payload = random.Random(0).randbytes(size)
    records = []
    for byte in framed(payload):
        client.tls.write(bytes([byte]))
        records.append(client.outgoing.read())
    go_on = hold(conn)
    sending = threading.Thread(target=client.sock.sendall, args=(b"".join(records),))
    sending.start()
    until(lambda: unread(conn.sock) > 2 * MOST_RECORDS_A_TURN * len(records[0]))
    go_on.set()
    assert client.frame() == payload
    sending.join()
    assert MOST_RECORDS_A_TURN <= max(received) < 2 * MOST_RECORDS_A_TURN


def test_requests_in_the_same_receive_as_the_end_of_the_handshake(serve_tls: ServeTls) -> None:
    running = serve_tls()
    client = record_client(running)
    client.sock.sendall(client.hello())
    end = client.finish()
    client.sock.sendall(end + client.records(b"first", b"x" * 100_000) + client.records(b"last"))
    assert client.frames(3) == [b"first", b"x" * 100_000, b"last"]


def test_a_client_that_does_not_read_delays_no_other_client(serve_tls: ServeTls) -> None:
    class Large(Echo):
        def answer(self, connection: Connection, frame: bytes) -> Reply:
            return super().answer(connection, frame * 2_000_000 if frame == b"large" else frame)

    running = serve_tls(Large(), socket_send_buffer_bytes=4096)
    slow, other = connect(running, receive_buffer=4096), connect(running)
    slow.send(b"large", b"after it")
    until(lambda: any(one.wants_write or one._conn.outbox.parts for one in running.transports))  # type: ignore[attr-defined]
    assert other.is_open()
    assert slow.frames(2) == [b"large" * 2_000_000, b"after it"]


# The end of the stream


@pytest.mark.parametrize("version", VERSIONS)
def test_the_server_ends_the_stream_when_it_closes(serve_tls: ServeTls, version: ssl.TLSVersion) -> None:
    """Python's ssl raises an error if a stream ends without close_notify."""

    class Closes(Echo):
        def answer(self, connection: Connection, frame: bytes) -> Reply:
            return CLOSE if frame == b"close" else super().answer(connection, frame)

    clock = ManualClock()
    running = serve_tls(Closes(), clock=clock, connections_max_idle_ms=10_000)
    context = client_context(version=version)
    client, idle, last = connect(running, context), connect(running, context), connect(running, context)
    for one in (client, idle, last):
        one.sock.suppress_ragged_eofs = False  # type: ignore[attr-defined]
        assert one.is_open()
    client.send(b"x" * 100_000, b"close")
    assert client.frame() == b"x" * 100_000
    assert client.is_closed()
    pass_time(running, clock, 6)
    assert last.is_open()
    pass_time(running, clock, 5)
    assert idle.is_closed()
    running.server.stop()
    assert last.is_closed()


@pytest.mark.parametrize("ends", ["the stream", "the socket", "both"])
def test_the_client_s_end_of_the_stream_closes_after_its_requests_were_answered(serve_tls: ServeTls, ends: str) -> None:
    running = serve_tls()
    client = record_client(running)
    client.shake_hands()
    stream = client.records(b"a", b"b")
    if ends != "the socket":
        stream += end_of_stream(client)
    client.sock.sendall(stream)
    if ends != "the stream":
        client.sock.shutdown(socket.SHUT_WR)
    assert client.frames(2) == [b"a", b"b"]
    until(lambda: running.server.connections == 0)


def end_of_stream(client: RecordClient) -> bytes:
    with suppress(ssl.SSLWantReadError):
        client.tls.unwrap()
    return client.outgoing.read()


@pytest.mark.parametrize("behind", [b"", b"request"])
def test_the_end_of_the_stream_is_no_request_behind_a_pending_one(serve_tls: ServeTls, behind: bytes) -> None:
    running = serve_tls(Later())
    client = record_client(running)
    client.shake_hands()
    client.sock.sendall(client.records(b"later"))
    until(lambda: running.handler.pending is not None)
    stream = client.records(behind) if behind else b""
    client.sock.sendall(stream + end_of_stream(client))
    client.sock.shutdown(socket.SHUT_WR)
    if not behind:
        until(lambda: running.server.connections == 0)
        assert running.handler.pending.cancelled
        return
    (transport,) = running.transports  # type: ignore[attr-defined]
    until(lambda: transport._conn.gone)
    assert running.connect("PLAINTEXT").is_open()
    assert not running.handler.pending.cancelled
    running.handler.pending.complete([b"\0\0\0\7at last"])
    assert client.frames(2) == [b"at last", b"request"]
    until(lambda: running.server.connections == 1)  # the plain one


# The handshake


@pytest.mark.parametrize("version", VERSIONS)
def test_the_principal_comes_from_the_client_s_certificate(serve_tls: ServeTls, version: ssl.TLSVersion) -> None:
    seen: list[bytes | None] = []

    def principal_of(certificate: bytes | None) -> str:
        seen.append(certificate)
        return "User:alice" if certificate else ANONYMOUS

    running = serve_tls(context=server_context(client_auth=ssl.CERT_OPTIONAL), principal_of=principal_of)
    alice = connect(running, client_context(pki().client, version=version))
    assert alice.is_open()
    nobody = connect(running, client_context(version=version))
    assert nobody.is_open()
    assert [one.principal for one in running.handler.connections.values()] == ["User:alice", ANONYMOUS]
    assert seen == [pki().client.der, None]
    assert counted(running, "network_authentications") == {("SSL", "TLS"): 2}
    assert running.count("network_connections_authenticating") == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("issued", "reason"),
    [
        (None, "it has sent no certificate (ssl.client.auth=required)"),
        (lambda: pki().stranger, "its certificate is not accepted: unable to get local issuer certificate"),
        (lambda: pki().authority.expired(), "its certificate is not accepted: certificate has expired"),
    ],
    ids=["no certificate", "foreign", "expired"],
)
def test_a_client_whose_certificate_is_not_accepted_is_closed_with_one_line(
    serve_tls: ServeTls,
    caplog: pytest.LogCaptureFixture,
    issued: Callable[[], Any] | None,
    reason: str,
    version: ssl.TLSVersion,
) -> None:
    running = serve_tls(context=server_context(client_auth=ssl.CERT_REQUIRED))
    context = client_context(issued() if issued else None, version=version)
    with pytest.raises(OSError, match=r"(?i)alert|reset"):  # with TLS 1.3 only the first read tells the client
        connect(running, context).is_open()
    until(lambda: running.server.connections == 0)
    assert failures(running) == 1
    assert lines(caplog) == [f"authentication failed: {reason}"]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_principal_that_cannot_be_built_closes_the_connection(
    serve_tls: ServeTls, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(certificate: bytes | None) -> str:
        raise ValueError("no rule of ssl.principal.mapping.rules matches CN=alice")

    running = serve_tls(principal_of=refuse)
    client = connect(running)
    with pytest.raises((OSError, EOFError)):
        client.is_open()
    until(lambda: running.server.connections == 0)
    assert lines(caplog) == ["authentication failed: no rule of ssl.principal.mapping.rules matches CN=alice"]
    assert not running.handler.connections


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_that_does_not_trust_the_server_is_named_in_the_log(
    serve_tls: ServeTls, caplog: pytest.LogCaptureFixture, version: ssl.TLSVersion
) -> None:
    running = serve_tls(context=server_context(pki().stranger))
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(running, client_context(version=version))
    until(lambda: running.server.connections == 0)
    assert lines(caplog) == ["authentication failed: it refuses the connection: alert unknown ca"]
    assert failures(running) == 1


def test_the_reason_is_logged_also_if_the_client_has_gone_meanwhile(
    serve_tls: ServeTls, caplog: pytest.LogCaptureFixture
) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def refuse(certificate: bytes | None) -> str:
        asked.set()
        go_on.wait(LONG)
        raise ValueError("no rule matches")

    running = serve_tls(principal_of=refuse)
    client = record_client(running)
    client.shake_hands()
    assert asked.wait(LONG)
    (transport,) = running.transports  # type: ignore[attr-defined]
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with a reset
    client.sock.close()
    until(lambda: transport._conn.broken)
    go_on.set()
    until(lambda: running.server.connections == 0)
    assert lines(caplog) == ["authentication failed: no rule matches"]


def test_a_new_context_is_for_later_connections(serve_tls: ServeTls) -> None:
    running = serve_tls()
    before = connect(running)
    other = Authority.root("Another CA").issue("CN=broker", names=["localhost"])
    running.contexts.append(server_context(other))  # type: ignore[attr-defined]
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(running)
    assert before.is_open()


BAD_STARTS = {
    "a Kafka request in plain text": (b"\0\0\0\x20\0\x12\0\3\0\0\0\1\0\4test", "it sent a request in plain text"),
    "its first byte": (b"\0", "it sent a request in plain text"),
    "HTTP": (b"GET / HTTP/1.1\r\n\r\n", "it sent an HTTP request"),
    "garbage": (bytes(range(200, 256)), "it sent bytes that are not TLS: c8 c9"),
    "an oversized record": (b"\x16\3\1\xff\xff", "it sent a record of 65535 bytes"),
    "a record that is no handshake": (b"\x17\3\3\0\1a", ""),
    "a bad hello": (b"\x16\3\1\0\4\1\0\0\0", ""),
    "an alert": (b"\x15\3\1\0\2\2\x28", ""),
}


@pytest.mark.parametrize("start", BAD_STARTS)
def test_a_peer_that_does_not_speak_tls_is_closed_with_one_line(
    serve_tls: ServeTls, caplog: pytest.LogCaptureFixture, start: str
) -> None:
    data, reason = BAD_STARTS[start]
    running = serve_tls()
    good = connect(running)
    client = record_client(running)
    client.sock.sendall(data)
    while True:  # an alert may come first
        with suppress(ConnectionResetError):
            if client.sock.recv(1000):
                continue
        break
    until(lambda: running.server.connections == 1)
    (line,) = lines(caplog)
    assert line.startswith(f"authentication failed: {reason}")
    assert failures(running) == 1
    assert good.is_open()


def test_many_records_of_a_handshake_end_it(serve_tls: ServeTls, caplog: pytest.LogCaptureFixture) -> None:
    running = serve_tls()
    client = record_client(running)
    hello = client.hello()[5:]
    with suppress(ConnectionError):
        client.sock.sendall(b"\x16\3\1\0\4" + hello[:4])
        for at in range(4, len(hello)):
            client.sock.sendall(b"\x16\3\1\0\1" + hello[at : at + 1])
    until(lambda: failures(running) == 1)
    until(lambda: running.server.connections == 0)
    assert lines(caplog) == ["authentication failed: its handshake has more than 64 records"]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\1\1\xff\xff", "its ClientHello has 131071 bytes, more than 16384"),
        (b"\1\0\x40\1", "its ClientHello has 16385 bytes, more than 16384"),
        (b"\1\0", "its handshake does not begin with a ClientHello"),
        (b"\x0b\0\0\4", "its handshake does not begin with a ClientHello"),
    ],
)
def test_a_hello_for_which_much_memory_would_be_reserved_is_refused(
    serve_tls: ServeTls, caplog: pytest.LogCaptureFixture, message: bytes, reason: str
) -> None:
    running = serve_tls()
    client = record_client(running)
    client.sock.sendall(b"\x16\3\1" + struct.pack(">H", len(message)) + message)
    assert client.is_closed()
    assert lines(caplog) == [f"authentication failed: {reason}"]


@pytest.mark.parametrize("waits", [True, False], ids=["after the answer", "in one receive with the first"])
def test_a_second_hello_for_which_much_memory_would_be_reserved_is_refused(
    serve_tls: ServeTls, caplog: pytest.LogCaptureFixture, waits: bool
) -> None:
    """After a HelloRetryRequest: the server wants a group for which the first hello has no key."""
    context = server_context()
    context.set_ecdh_curve("secp521r1")
    running = serve_tls(context=context)
    client = record_client(running)
    first = client.hello()
    client.sock.sendall(first)
    second = client.next_records()
    assert second[:1] == b"\x14"  # change_cipher_spec comes before it
    at = second.index(b"\x16\3\3") + 6
    length = int.from_bytes(second[at + 1 : at + 3], "big")
    second = second[:at] + b"\1" + second[at + 1 :]
    if not waits:
        client.close()
        client = record_client(running)
        parts = [b"\x16\3\1" + struct.pack(">H", len(part)) + part for part in (first[5:100], first[100:])]
        second = b"".join(parts) + second
        until(lambda: bool(lines(caplog)))
        caplog.clear()
    client.sock.sendall(second)
    until(lambda: bool(lines(caplog)))
    assert lines(caplog) == [f"authentication failed: its ClientHello has {65536 + length} bytes, more than 16384"]


def test_a_handshake_with_a_second_hello(serve_tls: ServeTls) -> None:
    context = server_context()
    context.set_ecdh_curve("secp521r1")
    client = record_client(serve_tls(context=context))
    client.shake_hands()
    client.send(b"hello")
    assert client.frame() == b"hello"


@pytest.mark.parametrize("sent", [0, 1, 100, None], ids=["nothing", "a byte", "half a hello", "a hello"])
def test_a_peer_that_closes_in_the_handshake(
    serve_tls: ServeTls, caplog: pytest.LogCaptureFixture, sent: int | None
) -> None:
    """A peer that has sent nothing is a health check, and is only counted."""
    running = serve_tls()
    client = record_client(running)
    client.sock.sendall(client.hello()[:sent])
    if sent is None:
        client.sock.recv(1)
    client.close()
    until(lambda: running.count("network_connections_accepted") == 1 and running.server.connections == 0)
    if sent == 0:
        assert counted(running, "network_connections_without_data") == {("SSL",): 1}
        assert not lines(caplog)
        assert not failures(running)
    else:
        assert lines(caplog) == ["authentication failed: the connection was closed during the TLS handshake"]
        assert failures(running) == 1


def test_single_bytes_do_not_extend_the_time_of_a_handshake(
    serve_tls: ServeTls, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    running = serve_tls(clock=clock, authentication_timeout_ms=10_000)
    good, slow = connect(running), record_client(running)
    assert good.is_open()
    until(lambda: running.count("network_connections_authenticating") == 1)  # from now on its time counts
    hello = slow.hello()
    for second in range(9):
        slow.sock.sendall(hello[second : second + 1])
        pass_time(running, clock, 1)
        assert good.is_open()
    late = record_client(running)
    late.sock.sendall(b"\x16")
    until(lambda: running.count("network_connections_authenticating") == 2)
    pass_time(running, clock, 1.1)
    until(lambda: running.server.connections == 2)
    assert lines(caplog) == [
        "authentication failed: the TLS handshake was not over within 10 s (kafkapy.authentication.timeout.ms)"
    ]
    pass_time(running, clock, 9)
    until(lambda: running.server.connections == 1)
    assert good.is_open()


def test_handshake_and_login_have_one_time_limit_together(
    serve_tls: ServeTls, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    running = serve_tls(principal_of=None, clock=clock, authentication_timeout_ms=10_000)
    client = record_client(running)
    client.sock.sendall(b"\x16")
    until(lambda: running.count("network_connections_authenticating") == 1)
    pass_time(running, clock, 6)
    hello = client.hello()
    client.sock.sendall(hello[1:])
    client.sock.sendall(client.finish() + client.records(b"not yet logged in"))
    assert client.frame() == b"not yet logged in"
    assert running.count("network_connections_authenticating") == 1
    pass_time(running, clock, 5)
    assert client.is_closed()
    assert lines(caplog) == [
        "authentication failed: SASL: the login was not over within 10 s (kafkapy.authentication.timeout.ms)"
    ]
    assert not running.count("network_authentications")


def test_of_too_many_handshakes_the_oldest_is_given_up(serve_tls: ServeTls) -> None:
    running = serve_tls(max_connections_authenticating=3)
    good = [connect(running) for _ in range(5)]
    assert all(client.is_open() for client in good)  # so their handshakes are over for the server, too
    waiting = []
    for number in range(4):
        waiting.append(record_client(running))
        until(lambda number=number: running.count("network_connections_accepted") == 6 + number)  # type: ignore[misc]
    assert waiting[0].is_closed()
    for client in waiting[1:]:
        client.shake_hands()
    assert all(client.is_open() for client in good)


def test_failures_are_logged_a_few_times_a_second(serve_tls: ServeTls, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    running = serve_tls(clock=clock)

    def fail(times: int) -> None:
        before = failures(running)
        for _ in range(times):
            record_client(running).sock.sendall(b"GET / HTTP/1.1")
        until(lambda: failures(running) == before + times)

    # A failure is counted before it is logged.
    fail(10)
    until(lambda: len(lines(caplog)) == 3)
    clock.advance(1)
    fail(1)
    until(lambda: len(lines(caplog)) == 4)
    assert lines(caplog)[3:] == ["authentication failed: it sent an HTTP request (7 such lines were left out)"]


def test_tls_on_a_plain_listener_is_named_in_the_log(serve_tls: ServeTls, caplog: pytest.LogCaptureFixture) -> None:
    running = serve_tls()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        TlsClient(running.ports["PLAINTEXT"])
    until(lambda: running.server.connections == 0)
    (line,) = lines(caplog)
    assert "the peer speaks TLS, but this listener is plain text" in line


# After the handshake


def test_a_changed_record_closes_the_connection_with_one_line(
    serve_tls: ServeTls, caplog: pytest.LogCaptureFixture
) -> None:
    running = serve_tls()
    client = record_client(running)
    client.shake_hands()
    stream = bytearray(client.records(b"hello"))
    stream[-1] ^= 1
    client.sock.sendall(stream)
    assert client.is_closed()
    assert lines(caplog) == ["closed a TLS connection: it sent a record whose authentication code is wrong"]
    assert failures(running) == 0
    assert not running.handler.connections


@pytest.mark.parametrize("data", [b"\x17\3\3\xff\xff", b"plain text", b"\0\0\0\4"])
def test_bytes_that_are_no_record_close_the_connection(
    serve_tls: ServeTls, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    running = serve_tls()
    client = record_client(running)
    client.shake_hands()
    client.sock.sendall(client.records(b"hello"))
    assert client.frame() == b"hello"
    client.sock.sendall(data)
    assert client.is_closed()
    (line,) = lines(caplog)
    assert line.startswith("closed a TLS connection: it sent")


class OpenSsl:
    """OpenSSL's own client, which can send key updates and renegotiate."""

    def __init__(self, port: int, *words: str) -> None:
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *words]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def send(self, text: str) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(text.encode())
            self.process.stdin.flush()

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.mark.usefixtures("only_openssl")
def test_key_updates_are_answered_but_a_flood_of_them_closes_the_connection(
    serve_tls: ServeTls, caplog: pytest.LogCaptureFixture
) -> None:
    running = serve_tls()
    client = OpenSsl(running.ports["SSL"], "-tls1_3")
    try:
        until(lambda: counted(running, "network_authentications") == {("SSL", "TLS"): 1})
        (transport,) = running.transports  # type: ignore[attr-defined]
        for number in range(1, MOST_EMPTY_RECORDS + 1):
            client.send("K\n")  # s_client takes several commands in one read for one
            until(lambda number=number: transport._empty == number)  # type: ignore[misc]
        assert running.server.connections == 1
        client.send("K\n")
        until(lambda: running.server.connections == 0)
        assert lines(caplog) == ["closed a TLS connection: it sent too many records without data, such as key updates"]
    finally:
        client.stop()


@pytest.mark.usefixtures("only_openssl")
def test_key_updates_with_data_behind_them_are_answered_at_once(serve_tls: ServeTls) -> None:
    """Otherwise a peer that sends one large frame in small records would fill the memory with answers.

    OpenSSL makes the answer to a key update when it reads the next record.
    """
    running = serve_tls()
    client = OpenSsl(running.ports["SSL"], "-tls1_3")
    try:
        until(lambda: counted(running, "network_authentications") == {("SSL", "TLS"): 1})
        (transport,) = running.transports  # type: ignore[attr-defined]
        conn = transport._conn
        go_on = hold(conn)
        for sent in ("K\n", "\0\0\0d\n", "K\n", "more\n"):  # the beginning of a frame of 100 bytes
            before = unread(conn.sock)
            client.send(sent)
            until(lambda before=before: unread(conn.sock) > before)  # type: ignore[misc]
        go_on.set()
        until(lambda: conn.carry == b"\0\0\0d\nmore\n")
        assert not transport._outgoing.pending
    finally:
        client.stop()


def hold(conn: Connection) -> threading.Event:
    """Stop the connection's network thread, and return an event that lets it continue."""
    is_held, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        is_held.set()
        go_on.wait(2 * LONG)

    conn.processor.post(wait)
    assert is_held.wait(LONG)
    return go_on


def unread(sock: socket.socket) -> int:
    """Return how many bytes the socket has that were not received yet."""
    return int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_renegotiation_is_refused(serve_tls: ServeTls) -> None:
    running = serve_tls()
    client = OpenSsl(running.ports["SSL"], "-tls1_2")
    try:
        until(lambda: counted(running, "network_authentications") == {("SSL", "TLS"): 1})
        client.send("R\n")
        until(lambda: running.server.connections == 0)
    finally:
        client.stop()


def test_a_closed_connection_leaves_no_reference_cycle(serve_tls: ServeTls) -> None:
    running = serve_tls()

    def connect_and_close() -> None:
        client = connect(running)
        assert client.is_open()
        client.close()
        bad = record_client(running)
        bad.sock.sendall(b"\x16\3\1\0\4\1\0\0\0")
        until(lambda: running.server.connections == 0)
        bad.close()
        running.clients.clear()
        running.handler.connections.clear()
        running.transports.clear()  # type: ignore[attr-defined]

    assert not objects_left_in_cycles(connect_and_close, 5)


def test_handshakes_that_wait_for_the_pool_hold_up_no_open_connection(serve_tls: ServeTls) -> None:
    """The principal is built on the pool: while that waits, so do all other handshakes, and nothing else."""
    go_on = threading.Event()
    names = iter(["User:first"])

    def principal_of(certificate: bytes | None) -> str:
        assert next(names, None) or go_on.wait(LONG)
        return ANONYMOUS

    running = serve_tls(principal_of=principal_of, authentication_timeout_ms=600_000)
    client = connect(running)
    assert client.is_open()
    waiting = [record_client(running) for _ in range(20)]
    waiting[0].shake_hands()
    for one in waiting[1:]:
        one.sock.sendall(one.hello())
    for _ in range(3):
        assert client.is_open()
    assert running.count("network_connections_authenticating") == 20
    assert running.count("network_authentications") == 1
    go_on.set()
    for one in waiting[1:]:
        one.sock.sendall(one.finish())
    for one in waiting:
        one.sock.sendall(one.records(b"served"))
        assert one.frame() == b"served"


def test_two_peers_that_send_before_they_receive_do_not_wait_for_each_other(
    serve: Serve, listening: socket.socket
) -> None:
    """The peer reads no request until its responses are sent, as a broker does."""
    running, pool, link = serve(socket_send_buffer_bytes=4096), DiskPool(1), Link()
    context = client_context()
    dialer = TlsDialer(lambda: context, pool)
    opened(running, link, listening.getsockname(), prepare=lambda conn: dialer.prepare(conn, "localhost"))
    peer = Peer(server_context().wrap_socket(listening.accept()[0], server_side=True))
    running.clients.append(peer)
    link.send(b"q" * 20_000_000)
    assert link.connection is not None
    transport = link.connection.transport
    until(lambda: transport is not None and transport.wants_write)
    peer.send(*[b"r" * 1_000_000] * 20)  # blocks until they are received
    until(lambda: len(link.responses) == 20)
    assert peer.frame() == b"q" * 20_000_000
    pool.stop()


def test_large_requests_wait_for_memory_and_go_on(serve_tls: ServeTls) -> None:
    running = serve_tls(queued_max_request_bytes=1 << 20)
    payloads = [b"\0\0" + random.Random(number).randbytes(999_998) for number in range(3)]  # Produce requests
    clients = [connect(running) for _ in payloads]
    # The first two use up the memory, and are complete only after the third one waits.
    for client, payload in zip(clients[:2], payloads, strict=False):
        client.sock.sendall(framed(payload)[:500_000])
    until(lambda: running.count("network_memory_used_bytes") == 2 * 1_000_004)
    sender = clients[2].send_aside(payloads[2], b"small")
    until(lambda: running.count("network_memory_waiting") == 1)
    senders = [sender]
    for client, payload in zip(clients[:2], payloads, strict=False):
        senders.append(threading.Thread(target=client.sock.sendall, args=(framed(payload)[500_000:],), daemon=True))
        senders[-1].start()
    assert [client.frame() for client in clients] == payloads
    assert clients[2].frame() == b"small"
    for thread in senders:
        thread.join()
    assert running.count("network_memory_used_bytes") == 0
