"""Logins that are cut off or damaged, with and without TLS: tokens of every length and closed connections at every step
of every mechanism, and random requests. Each such login ends its connection, and is counted once as a failure."""

from __future__ import annotations

import logging
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from kafkapy.protocol import apis
from kafkapy.protocol.headers import request_frame
from kafkapy.security.sasl.client import ClientMechanism
from kafkapy.server.broker import BrokerServer
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.network.tls_client import client_context, pki
from tests.server.test_sasl_logins import (
    AUTHENTICATE,
    HANDSHAKE,
    MECHANISMS,
    SETTINGS,
    begin,
    client,
    log_in,
    principal,
    running,
)

STEPS = [(mechanism, step) for mechanism in MECHANISMS for step in range(1 + mechanism.startswith("SCRAM"))]
LONG = (16 << 10, (16 << 10) + 1, 524_000)  # SCRAM's limit, one byte more, nearly sasl.server.max.receive.size
LISTENERS = ["CLIENT", "SECURED"]
RESET = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerServer]:
    directory, users = tmp_path_factory.mktemp("broker"), "plain.sasl.jaas.config"
    settings = {
        "connection.failed.authentication.delay.ms": "0",
        "listeners": "CLIENT://127.0.0.1:0,SECURED://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,SECURED:SASL_SSL",
        f"listener.name.secured.{users}": SETTINGS[f"listener.name.client.{users}"],
        **pki().server.settings(directory / "tls"),
    }
    with running(directory / "data", **settings) as server:
        yield server


@contextmanager
def connect(broker: BrokerServer, listener: str) -> Iterator[Wire]:
    addresses = dict(one.split("://") for one in broker.listeners)
    with Wire(addresses[listener]) as wire:
        if listener == "SECURED":
            wire.socket = client_context().wrap_socket(wire.socket, server_hostname="localhost")
        yield wire


def failures(broker: BrokerServer) -> float:
    found = broker.services.counters.read()
    (name,) = [metric for metric in found if metric.name == "network_authentication_failures"]
    return sum(value for _, value in found[name])


def authenticating(broker: BrokerServer) -> float:
    found = broker.services.counters.read()
    (name,) = [metric for metric in found if metric.name == "network_connections_authenticating"]
    return sum(value for _, value in found[name])


def exchange(wire: Wire, token: bytes, *, bare: bool) -> bytes | None:
    """Send a client's token. Return the answer, or None if the login is refused."""
    if not bare:
        response = wire.call(AUTHENTICATE, 2, auth_bytes=token)
        return None if response.error_code else bytes(response.auth_bytes)
    wire.socket.sendall(struct.pack(">i", len(token)) + token)
    with suppress(AssertionError, ConnectionResetError):
        return wire.frame()
    return None


def drain(wire: Wire) -> None:
    """Shut down the sending side of the connection, and receive until the broker closes it."""
    with suppress(OSError):  # raised if the broker has closed the connection already
        wire.socket.shutdown(socket.SHUT_WR)
        while wire.socket.recv(4096):
            pass


def token_of(ours: ClientMechanism, wire: Wire, step: int, *, bare: bool) -> bytes:
    """Exchange the right tokens of the steps before this one, and return the right token for this step."""
    token = ours.initial()
    for _ in range(step):
        token = ours.respond(exchange(wire, token, bare=bare) or b"") or b""
    return token


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("bare", [False, True], ids=["requests", "bare tokens"])
@pytest.mark.parametrize(("mechanism", "step"), STEPS)
def test_tokens_of_every_length_are_refused(
    broker: BrokerServer, mechanism: str, step: int, bare: bool, listener: str
) -> None:
    """The tokens are all beginnings of the right token, and the right token with more bytes behind it."""
    before, count, length = failures(broker), 0, 0
    while True:
        with connect(broker, listener) as wire:
            begin(wire, mechanism, 0 if bare else 1)
            token = token_of(client(mechanism), wire, step, bare=bare)
            lengths = [*range(len(token)), len(token) + 1, *LONG]
            if count == len(lengths):
                break
            length = lengths[count]
            answer = exchange(wire, token[:length] + b"x" * (length - len(token)), bare=bare)
            if answer:  # SCRAM accepts a shorter nonce at first; OAUTHBEARER first says why it refuses the token
                answer = exchange(wire, b"\x01", bare=bare)
            assert answer is None, length
            assert wire.closed()
            count += 1
    eventually(lambda: failures(broker) == before + count + 1)  # plus 1: the last connection was closed without a token
    with connect(broker, listener) as good:
        log_in(good)
        assert principal(good) == "User:alice"


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("how", ["close", "half", "reset"])
@pytest.mark.parametrize(("mechanism", "step"), [*((mechanism, -1) for mechanism in MECHANISMS), *STEPS])
def test_a_client_that_closes_in_the_midst_of_a_login_is_one_failure(
    broker: BrokerServer, caplog: pytest.LogCaptureFixture, mechanism: str, step: int, how: str, listener: str
) -> None:
    """The client closes after the handshake, or after it has sent a token."""
    before = failures(broker)
    with connect(broker, listener) as wire:
        begin(wire, mechanism)
        if step >= 0:
            token = token_of(client(mechanism, "alice", "wrong"), wire, step, bare=False)
            wire.send(AUTHENTICATE, 2, auth_bytes=token)
        if how == "half":
            drain(wire)
        elif how == "reset":
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    complete = (mechanism, step) == ("OAUTHBEARER", 0)  # OAUTHBEARER has no password that could be wrong
    eventually(lambda: authenticating(broker) == 0 and (complete or failures(broker) == before + 1))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("seed", range(30))
def test_no_mutated_login_is_accepted_or_disturbs_the_broker(broker: BrokerServer, seed: int, listener: str) -> None:
    rng = random.Random(seed)
    with connect(broker, listener) as wire:
        for _ in range(rng.randrange(1, 6)):
            mechanism = rng.choice([*MECHANISMS, "NONE"])
            api, message = rng.choice(
                [
                    (HANDSHAKE, HANDSHAKE.Request(mechanism=mechanism)),
                    (AUTHENTICATE, AUTHENTICATE.Request(auth_bytes=rng.randbytes(rng.randrange(60)))),
                    (AUTHENTICATE, AUTHENTICATE.Request(auth_bytes=b"n,,n=alice,r=" + rng.randbytes(5).hex().encode())),
                    (apis.API_VERSIONS, apis.API_VERSIONS.Request()),
                    (apis.METADATA, apis.METADATA.Request(topics=None)),
                ]
            )
            frame = bytearray(request_frame(api, min(api.max_version, 1), 1, "fuzz", message))
            if rng.random() < 0.6:
                frame[rng.randrange(4, len(frame))] ^= 1 << rng.randrange(8)
            if rng.random() < 0.1:
                del frame[rng.randrange(len(frame)) :]
            try:
                wire.socket.sendall(frame)
            except OSError:
                break
        drain(wire)
    with connect(broker, listener) as good:
        log_in(good)
        assert principal(good) == "User:alice"
