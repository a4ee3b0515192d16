"""Damaged, cut and repeated TLS records in every state of a connection. Whatever comes, one connection ends at most,
without an internal error, and is counted once."""

from __future__ import annotations

import logging
import random
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress

import pytest

from kafkapy.network.connection import ANONYMOUS

from .conftest import Running, until
from .test_tls import ServeTls, connect, counted, serve_tls  # noqa: F401  (a fixture)
from .tls_client import RecordClient, client_context

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
TIMES = 60
RESET = struct.pack("ii", 1, 0)


def flipped(stream: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(stream)
    for _ in range(rng.choice((1, 1, 1, 5))):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def cut(stream: bytes, rng: random.Random) -> bytes:
    return stream[: rng.randrange(len(stream))]


def repeated(stream: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(stream))
    return stream[:at] + stream[: rng.randrange(1, len(stream))] + stream[at:]


def without_some(stream: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(stream))
    return stream[:at] + stream[at + rng.randrange(1, 40) :]


def of_another_type(stream: bytes, rng: random.Random) -> bytes:
    return bytes([rng.choice((0, 19, 20, 21, 22, 23, 24, 128))]) + stream[1:]


def of_another_length(stream: bytes, rng: random.Random) -> bytes:
    return stream[:3] + struct.pack(">H", rng.choice((0, 1, 100, 16384, 16640, 18432, 18433, 65535))) + stream[5:]


def mixed_with_plain(stream: bytes, rng: random.Random) -> bytes:
    return stream + rng.choice((b"\0\0\0\4test", b"GET / HTTP/1.1\r\n\r\n", b"\x15\3\3\0\2\1\0", bytes(5)))


DAMAGES: list[Callable[[bytes, random.Random], bytes]] = [
    flipped,
    cut,
    repeated,
    without_some,
    of_another_type,
    of_another_length,
    mixed_with_plain,
]


def send_in_pieces(client: RecordClient, stream: bytes, rng: random.Random) -> None:
    while stream:
        size = rng.choice((1, 3, 50, 1000, 1 << 20))
        client.sock.sendall(stream[:size])
        stream = stream[size:]


def close(client: RecordClient, rng: random.Random) -> None:
    """Close the connection in a random way: both directions at once, one after the other, or by a reset."""
    how = rng.choice(("close", "half", "reset"))
    if how == "half":
        with suppress(OSError):
            client.sock.shutdown(socket.SHUT_WR)
            client.sock.settimeout(5)
            while client.sock.recv(1 << 16):
                pass
    elif how == "reset":
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()


def attack(running: Running, state: str, version: ssl.TLSVersion, rng: random.Random) -> None:
    client = RecordClient(running.ports["SSL"], client_context(version=version))
    try:
        damage = rng.choice(DAMAGES)
        if state == "hello":
            send_in_pieces(client, damage(client.hello(), rng), rng)
        elif state == "finish":
            client.sock.sendall(client.hello())
            send_in_pieces(client, damage(client.next_records(), rng), rng)
        else:
            client.shake_hands()
            frames = [rng.randbytes(rng.choice((0, 10, 5000, 40_000))) for _ in range(3)]
            stream = b"".join(client.records(frame) for frame in frames)
            send_in_pieces(client, damage(stream, rng), rng)
    except (OSError, EOFError):
        pass  # the server has closed the connection already
    finally:
        close(client, rng)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("state", ["hello", "finish", "open"])
def test_damaged_records_end_their_connection_only(
    serve_tls: ServeTls,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
    state: str,
    version: ssl.TLSVersion,
) -> None:
    running = serve_tls(principal_of=lambda certificate: ANONYMOUS, authentication_timeout_ms=2000)
    good = connect(running)
    assert good.is_open()
    rng = random.Random(f"{state} {version}")
    for _ in range(TIMES):
        attack(running, state, version, rng)
    until(lambda: running.count("network_connections_accepted") == TIMES + 1 and running.server.connections == 1)
    assert good.is_open()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]
    ends = ("network_authentications", "network_authentication_failures", "network_connections_without_data")
    assert sum(sum(counted(running, name).values()) for name in ends) == TIMES + 1
    assert running.count("network_connections_authenticating") == 0
