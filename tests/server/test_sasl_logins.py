"""Logins on SASL listeners, message by message: which are allowed or refused, and sessions that expire."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.errors import Errors
from kafkapy.metadata.tree import wait
from kafkapy.protocol import apis
from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.counters import Registry
from kafkapy.security.sasl.client import ClientMechanism, client_mechanism
from kafkapy.security.sasl.jaas import PLAIN_MODULE
from kafkapy.security.sasl.scram import new_credential
from kafkapy.server.api_table import TABLE
from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.metrics.logins import LoginMeters
from tests.harness.reference_cycles import objects_left_in_cycles
from tests.harness.wire import Wire
from tests.server.requests import batch, metrics_address, request

HANDSHAKE, AUTHENTICATE = apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
DELAY_S = 0.05
SETTINGS = {
    "listeners": "CLIENT://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "CLIENT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.client.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="secret" user_bob="secret";',
    "kafkapy.oauthbearer.unsecured.tokens.enable": "true",
    "connection.failed.authentication.delay.ms": str(int(DELAY_S * 1000)),
    "kafkapy.metrics.listen": "127.0.0.1:0",
}


@contextmanager
def running(directory: Path, clock: ManualClock | None = None, **settings: str) -> Iterator[BrokerServer]:
    config = BrokerConfig({**SETTINGS, "log.dirs": str(directory), **settings})
    server = BrokerServer(config, clock=clock) if clock is not None else BrokerServer(config)
    server.start()
    try:
        assert server.wait_until_loaded(60)
        wait(server.services.users.alter, "alice", {name: new_credential(name, "secret") for name in MECHANISMS[1:3]})
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerServer]:
    with running(tmp_path_factory.mktemp("broker")) as server:
        yield server


@pytest.fixture
def wire(broker: BrokerServer) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as connection:
        yield connection


def client(mechanism: str, user: str = "alice", password: str = "secret") -> ClientMechanism:
    settings: dict[str, Any] = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    if mechanism == "OAUTHBEARER":
        lifetime = password if password.lstrip("-").isdigit() else "3600"
        settings["sasl.oauthbearer.config"] = f"principal={user} lifeSeconds={lifetime}"
    return client_mechanism(settings, "127.0.0.1")


def begin(wire: Wire, mechanism: str, version: int = 1) -> Any:
    return wire.call(HANDSHAKE, version, mechanism=mechanism)


def log_in(wire: Wire, mechanism: str = "PLAIN", version: int = 2, *user: str) -> Any:
    """Log in, and return the last response. It has the error code if the login failed."""
    assert begin(wire, mechanism).error_code == Errors.NONE
    ours = client(mechanism, *user)
    answer: bytes | None = ours.initial()
    while True:
        response = wire.call(AUTHENTICATE, version, auth_bytes=answer)
        if response.error_code:
            return response
        answer = ours.respond(response.auth_bytes)
        if answer is None:
            return response


def log_in_with_bare_tokens(wire: Wire, mechanism: str, *user: str) -> None:
    assert begin(wire, mechanism, 0).error_code == Errors.NONE
    ours = client(mechanism, *user)
    answer: bytes | None = ours.initial()
    while answer is not None:
        wire.socket.sendall(struct.pack(">i", len(answer)) + answer)
        answer = ours.respond(wire.frame())


def principal(wire: Wire) -> str:
    """Return the principal of the connection, as the response about a delegation token shows it."""
    response = wire.call(
        apis.CREATE_DELEGATION_TOKEN,
        3,
        owner_principal_type=None,
        owner_principal_name=None,
        renewers=[],
        max_lifetime_ms=-1,
    )
    assert response.error_code == Errors.DELEGATION_TOKEN_AUTH_DISABLED
    return f"{response.principal_type}:{response.principal_name}"


def versions(wire: Wire) -> Any:
    return wire.call(apis.API_VERSIONS, 3, client_software_name="t", client_software_version="1")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_logs_in_with_requests(wire: Wire, mechanism: str, version: int) -> None:
    assert versions(wire).error_code == Errors.NONE
    assert log_in(wire, mechanism, version).session_lifetime_ms == 0 or mechanism == "OAUTHBEARER"
    assert principal(wire) == "User:alice"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_logs_in_with_bare_tokens(wire: Wire, mechanism: str) -> None:
    log_in_with_bare_tokens(wire, mechanism)
    assert principal(wire) == "User:alice"


def test_requests_that_are_sent_with_the_last_token_are_handled_after_the_login(wire: Wire) -> None:
    begin(wire, "PLAIN")
    number = wire.send(AUTHENTICATE, 1, auth_bytes=b"\0alice\0secret")
    wire.send(apis.API_VERSIONS, 0)
    assert wire.receive(AUTHENTICATE, 1)[0] == number
    assert wire.receive(apis.API_VERSIONS, 0)[1].error_code == Errors.NONE


@pytest.mark.parametrize("mechanism", ["GSSAPI", "SCRAM-SHA-1", "plain", "", "x" * 1000])
def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are(wire: Wire, mechanism: str) -> None:
    for_client = begin(wire, mechanism)
    assert (for_client.error_code, for_client.mechanisms) == (Errors.UNSUPPORTED_SASL_MECHANISM, MECHANISMS)
    assert wire.closed()


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
@pytest.mark.parametrize("user", [("alice", "wrong"), ("unknown", "secret")])
def test_a_wrong_login_is_answered_after_the_delay_and_then_closed(
    wire: Wire, mechanism: str, user: tuple[str, str]
) -> None:
    began = time.monotonic()
    response = log_in(wire, mechanism, 2, *user)
    assert time.monotonic() - began >= DELAY_S
    assert response.error_code == Errors.SASL_AUTHENTICATION_FAILED
    expected = (
        "Authentication failed: Invalid username or password"
        if mechanism == "PLAIN"
        else f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
    assert (response.error_message, response.auth_bytes) == (expected, b"")
    assert wire.closed()


@pytest.mark.parametrize("mechanism", MECHANISMS[1:3])
def test_a_restart_changes_the_challenge_of_an_unknown_user_as_little_as_that_of_a_user(
    tmp_path: Path, mechanism: str
) -> None:
    """Otherwise a client could tell, by logins before and after a restart, which users exist."""
    seen = []
    stored = {mechanism: new_credential(mechanism, "secret")}
    for _ in range(2):
        with running(tmp_path) as broker:
            wait(broker.services.users.alter, "alice", stored)
            for user in ("alice", "unknown"):
                with Wire(broker.bootstrap_servers) as connection:
                    begin(connection, mechanism)
                    answer = connection.call(AUTHENTICATE, 2, auth_bytes=client(mechanism, user).initial())
                    seen.append(bytes(answer.auth_bytes).partition(b",")[2])  # the salt and the iterations
    assert seen[:2] == seen[2:]


IMPORTED = """
import json, sys
from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.broker_config import BrokerConfig
server = BrokerServer(BrokerConfig(json.loads(sys.argv[1])))
server.start()
server.wait_until_loaded(60)
before = set(sys.modules)
print(server.bootstrap_servers, flush=True)
sys.stdin.readline()
print(sorted(set(sys.modules) - before))
server.stop()
"""


def test_the_first_logins_import_nothing_on_a_network_thread(tmp_path: Path) -> None:
    """Importing hashlib takes 3 ms, in which the thread would serve no other connection."""
    settings = {**SETTINGS, "log.dirs": str(tmp_path)}
    call = [sys.executable, "-c", IMPORTED, json.dumps(settings)]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        address = child.stdout.readline().strip()
        for mechanism, user, error in (
            ("PLAIN", "alice", Errors.NONE),
            ("SCRAM-SHA-256", "unknown", Errors.SASL_AUTHENTICATION_FAILED),
        ):
            with Wire(address) as connection:
                assert log_in(connection, mechanism, 2, user, "secret").error_code == error
        child.stdin.write("\n")
        child.stdin.close()
        assert child.stdout.read() == "[]\n"


def test_a_refused_token_is_answered_with_json_first(wire: Wire) -> None:
    begin(wire, "OAUTHBEARER")
    first = wire.call(AUTHENTICATE, 2, auth_bytes=client("OAUTHBEARER", "alice", "-100").initial())
    assert (first.error_code, json.loads(first.auth_bytes)) == (Errors.NONE, {"status": "invalid_token"})
    last = wire.call(AUTHENTICATE, 2, auth_bytes=b"\x01")
    assert last.error_code == Errors.SASL_AUTHENTICATION_FAILED
    assert wire.closed()


def test_bare_tokens_that_are_wrong_are_not_answered(wire: Wire) -> None:
    begin(wire, "PLAIN", 0)
    wire.socket.sendall(struct.pack(">i", 12) + b"\0alice\0wrong")
    assert wire.closed()


def test_nothing_that_follows_a_wrong_login_is_handled(wire: Wire) -> None:
    begin(wire, "PLAIN")
    wire.send(AUTHENTICATE, 2, auth_bytes=b"\0alice\0wrong")
    wire.send(AUTHENTICATE, 2, auth_bytes=b"\0alice\0secret")
    assert wire.receive(AUTHENTICATE, 2)[1].error_code == Errors.SASL_AUTHENTICATION_FAILED
    assert wire.closed()


def test_the_versions_may_be_requested_once_or_again_after_an_error(wire: Wire, broker: BrokerServer) -> None:
    header = struct.pack(">hhih", apis.API_VERSIONS.key, 99, 1, -1)
    wire.socket.sendall(struct.pack(">i", len(header)) + header)
    assert wire.frame()[4:6] == struct.pack(">h", Errors.UNSUPPORTED_VERSION)
    bad = wire.call(apis.API_VERSIONS, 3, client_software_name="!", client_software_version="1")
    assert bad.error_code == Errors.INVALID_REQUEST
    assert versions(wire).error_code == Errors.NONE
    wire.send(apis.API_VERSIONS, 0)
    assert wire.closed()


@pytest.mark.parametrize("key", sorted(set(TABLE.versions()) - {apis.API_VERSIONS.key, HANDSHAKE.key}))
def test_no_other_request_is_handled_before_the_login(broker: BrokerServer, key: int) -> None:
    api = apis.APIS[key]
    for steps in (0, 1, 2):
        with Wire(broker.bootstrap_servers) as wire:
            if steps == 1:
                versions(wire)
            if steps == 2 and key == AUTHENTICATE.key:
                continue
            if steps == 2:
                begin(wire, "PLAIN")
            frame = struct.pack(">hhih", key, api.max_version, 1, -1)
            wire.socket.sendall(struct.pack(">i", len(frame)) + frame)
            assert wire.closed()


def test_a_second_handshake_before_the_login_is_refused(wire: Wire) -> None:
    begin(wire, "SCRAM-SHA-256")
    wire.send(HANDSHAKE, 1, mechanism="PLAIN")
    assert wire.closed()


def test_a_frame_over_the_largest_size_is_refused_before_its_bytes_come(wire: Wire) -> None:
    wire.socket.sendall(struct.pack(">i", 524289))
    assert wire.closed()


def test_larger_frames_are_allowed_after_the_login(wire: Wire) -> None:
    log_in(wire)
    wire.create_topic("large")
    data = batch(b"x" * 700_000)
    response = wire.call(apis.PRODUCE, 9, request("large", data))
    assert response.responses[0].partition_responses[0].error_code == Errors.NONE


def test_handshakes_after_a_login_without_an_end_are_refused(wire: Wire) -> None:
    log_in(wire)
    assert begin(wire, "PLAIN").error_code == Errors.ILLEGAL_SASL_STATE
    response = wire.call(AUTHENTICATE, 2, auth_bytes=b"\0alice\0secret")
    assert response.error_code == Errors.ILLEGAL_SASL_STATE
    assert principal(wire) == "User:alice"


def test_logins_are_counted(broker: BrokerServer) -> None:
    from urllib.request import urlopen

    with Wire(broker.bootstrap_servers) as wire:
        log_in(wire, "SCRAM-SHA-512")
    with Wire(broker.bootstrap_servers) as wire:
        log_in(wire, "SCRAM-SHA-512", 2, "alice", "wrong")
        assert wire.closed()
    with urlopen(f"http://{metrics_address(broker)}/metrics") as page:
        text = page.read().decode()
    labels = '{listener="CLIENT",mechanism="SCRAM-SHA-512"}'
    for name in ("authentications", "authentication_failures"):
        (line,) = [line for line in text.splitlines() if line.startswith(f"kafkapy_network_{name}_total{labels}")]
        assert float(line.rpartition(" ")[2]) >= 1


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_login_leaves_no_reference_cycles(broker: BrokerServer, mechanism: str) -> None:
    def step() -> None:
        with Wire(broker.bootstrap_servers) as wire:
            log_in(wire, mechanism)
            assert principal(wire) == "User:alice"
        with Wire(broker.bootstrap_servers) as wire:
            log_in(wire, mechanism, 2, "alice", "wrong")
            assert wire.closed()

    step()
    assert objects_left_in_cycles(step, 5) == {}


# Sessions (KIP-368)


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory, clock: ManualClock) -> Iterator[BrokerServer]:
    settings = {"connections.max.reauth.ms": "60000", "listener.name.client.plain.connections.max.reauth.ms": "10000"}
    delay = {"connection.failed.authentication.delay.ms": "0"}
    with running(tmp_path_factory.mktemp("short"), clock, **settings, **delay) as server:
        yield server


@pytest.fixture
def session(short: BrokerServer) -> Iterator[Wire]:
    with Wire(short.bootstrap_servers) as connection:
        yield connection


def test_the_lifetime_is_the_mechanisms_or_the_tokens(short: BrokerServer) -> None:
    def lifetime(mechanism: str, *user: str) -> int:
        with Wire(short.bootstrap_servers) as wire:
            return int(log_in(wire, mechanism, 2, *user).session_lifetime_ms)

    assert lifetime("PLAIN") == 10_000
    assert lifetime("SCRAM-SHA-256") == 60_000
    assert lifetime("OAUTHBEARER", "alice", "3600") == 60_000


def test_a_session_is_extended_by_a_login_of_the_same_user(session: Wire, clock: ManualClock) -> None:
    log_in(session)
    for _ in range(3):
        clock.advance(9)
        assert log_in(session).session_lifetime_ms == 10_000
    assert principal(session) == "User:alice"


def test_a_request_after_the_end_of_the_session_closes_the_connection(session: Wire, clock: ManualClock) -> None:
    log_in(session)
    clock.advance(9.9)
    assert principal(session) == "User:alice"
    clock.advance(0.2)
    session.send(apis.API_VERSIONS, 0)
    assert session.closed()


def test_a_login_after_the_end_of_the_session_extends_it(session: Wire, clock: ManualClock) -> None:
    log_in(session)
    clock.advance(11)
    assert log_in(session).session_lifetime_ms == 10_000
    assert principal(session) == "User:alice"


def test_other_requests_with_a_late_handshake_close_the_connection(session: Wire, clock: ManualClock) -> None:
    log_in(session)
    clock.advance(11)
    session.send(HANDSHAKE, 1, mechanism="PLAIN")
    session.send(apis.API_VERSIONS, 0)
    assert session.receive(HANDSHAKE, 1)[1].error_code == Errors.NONE
    assert session.closed()


def test_late_requests_that_cannot_extend_the_session_close_the_connection(
    short: BrokerServer, session: Wire, clock: ManualClock
) -> None:
    with Wire(short.bootstrap_servers) as other:
        for wire in (session, other):
            log_in(wire)
        clock.advance(11)
        session.send(AUTHENTICATE, 2, auth_bytes=b"\0alice\0secret")
        assert session.closed()
        assert begin(other, "PLAIN").error_code == Errors.NONE
        other.send(HANDSHAKE, 1, mechanism="PLAIN")
        assert other.closed()


def test_a_session_is_extended_at_most_once_a_second(session: Wire, clock: ManualClock) -> None:
    log_in(session)
    log_in(session)
    assert begin(session, "PLAIN").error_code == Errors.ILLEGAL_SASL_STATE
    clock.advance(1.1)
    assert log_in(session).error_code == Errors.NONE


@pytest.mark.parametrize(
    ("attempt", "code", "text"),
    [
        (lambda wire: log_in(wire, "PLAIN", 2, "bob"), Errors.SASL_AUTHENTICATION_FAILED, "Cannot change principals"),
        (lambda wire: log_in(wire, "PLAIN", 2, "alice", "x"), Errors.SASL_AUTHENTICATION_FAILED, "Invalid username"),
        (lambda wire: log_in(wire, "SCRAM-SHA-256"), Errors.SASL_AUTHENTICATION_FAILED, "not supported for re-auth"),
        (lambda wire: begin(wire, "SCRAM-SHA-1"), Errors.UNSUPPORTED_SASL_MECHANISM, ""),
        (lambda wire: begin(wire, "PLAIN", 0), Errors.ILLEGAL_SASL_STATE, None),
    ],
)
def test_a_session_is_not_extended_by_another_login(
    session: Wire, attempt: Callable[[Wire], Any], code: int, text: str | None
) -> None:
    log_in(session)
    response = attempt(session)
    assert response.error_code == code
    if text is None:
        assert principal(session) == "User:alice"
        return
    assert text in getattr(response, "error_message", "")
    assert session.closed()


def test_a_flood_of_failed_reauthentications_is_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock, registry = ManualClock(), Registry()
    meters = LoginMeters(registry, clock)
    conn: Any = SimpleNamespace(listener="CLIENT", principal="User:alice", who={})
    for _ in range(50):
        meters.reauthentication_failed(conn, "PLAIN: unknown user or wrong password")
        meters.expired(conn)
    assert sum("User:alice" in record.getMessage() for record in caplog.records) == 3
    clock.advance(1)
    meters.expired(conn)
    assert "(97 such lines were left out)" in caplog.text
    counted = {metric.name: values for metric, values in registry.read().items()}
    assert counted["network_reauthentication_failures"] == [(("CLIENT",), 50)]


def test_requests_that_wait_are_answered_before_the_login_that_follows_them(session: Wire) -> None:
    log_in(session)
    session.create_topic("waiting")
    fetch = apis.FETCH.Request
    waiting = fetch(
        max_wait_ms=200,
        min_bytes=1,
        topics=[
            fetch.Topics(topic="waiting", partitions=[fetch.Topics.Partitions(partition=0, partition_max_bytes=1000)])
        ],
    )
    first = session.send(apis.FETCH, 11, waiting)
    second = session.send(HANDSHAKE, 1, mechanism="PLAIN")
    third = session.send(AUTHENTICATE, 2, auth_bytes=b"\0alice\0secret")
    fourth = session.send(apis.API_VERSIONS, 0)
    with Wire(session.socket.getpeername()[0] + f":{session.socket.getpeername()[1]}") as other:
        log_in(other)
        other.call(apis.PRODUCE, 9, request("waiting", batch(b"x")))
    order = [(apis.FETCH, 11, first), (HANDSHAKE, 1, second), (AUTHENTICATE, 2, third), (apis.API_VERSIONS, 0, fourth)]
    for api, version, number in order:
        found, response = session.receive(api, version)
        assert (found, response.error_code) == (number, Errors.NONE)
