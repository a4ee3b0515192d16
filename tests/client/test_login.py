"""The login of a connection, and the TLS messages that carry no response."""

import select
import socket
import ssl
import threading
import time

import pytest

import kafkapy
from kafkapy.client import AuthenticationFailed, BrokerTimedOut, ConnectionFailed, Security
from kafkapy.client import tls as tls_module
from kafkapy.client.connection import Connection
from kafkapy.client.login import log_in
from kafkapy.client.security import security_of
from kafkapy.errors import Errors
from kafkapy.protocol.apis import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafkapy.security.sasl.client import client_mechanism
from tests.harness.certificates import Pki, trust_settings

PLAIN = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "secret-word"}
TOKEN = b"\0alice\0secret-word"


class Broker:
    """The broker's side of a login, without sockets. `answers` has the responses by API key, or an exception."""

    address = "broker:9093"

    def __init__(self, version, **answers):
        self.version = version
        self.answers = answers
        self.seen = []

    def version_of(self, api):
        return self.version

    def exchange(self, api, request):
        self.seen.append(request)
        given = self.answers.get(api.name, {})
        return api.Response(**given)

    def exchange_token(self, token):
        self.seen.append(token)
        answer = self.answers.get("token", b"")
        if isinstance(answer, Exception):
            raise answer
        return answer


def plain():
    return client_mechanism(PLAIN, "broker")


def test_a_login_returns_the_lifetime_of_the_session():
    broker = Broker(1, SaslAuthenticate={"session_lifetime_ms": 5000})
    assert log_in(broker, plain()) == 5000
    assert broker.seen == [
        SASL_HANDSHAKE.Request(mechanism="PLAIN"),
        SASL_AUTHENTICATE.Request(auth_bytes=TOKEN),
    ]


def test_a_broker_of_kafka_0_10_gets_bare_tokens_and_refuses_by_closing():
    broker = Broker(0)
    assert log_in(broker, plain()) == 0
    assert broker.seen[1:] == [TOKEN]
    with pytest.raises(AuthenticationFailed, match=r"broker:9093 failed: it closed the connection, as brokers of its"):
        log_in(Broker(0, token=ConnectionFailed("closed")), plain())
    with pytest.raises(BrokerTimedOut):
        log_in(Broker(0, token=BrokerTimedOut("late")), plain())


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (
            {"SaslHandshake": {"error_code": Errors.UNSUPPORTED_SASL_MECHANISM, "mechanisms": ["OAUTHBEARER", "X"]}},
            r"it has no SASL mechanism PLAIN, but OAUTHBEARER, X\.",
        ),
        ({"SaslHandshake": {"error_code": Errors.ILLEGAL_SASL_STATE}}, "its listener takes no login"),
        ({"SaslAuthenticate": {"error_code": Errors.SASL_AUTHENTICATION_FAILED, "error_message": "No."}}, r": No\."),
        ({"SaslAuthenticate": {"error_code": Errors.SASL_AUTHENTICATION_FAILED}}, r"SASL authentication failed\."),
    ],
)
def test_a_refusal_says_why_without_the_password(answers, message):
    with pytest.raises(AuthenticationFailed, match=message) as caught:
        log_in(Broker(1, **answers), plain())
    assert "secret-word" not in str(caught.value)


def test_sessions_end_while_requests_are_in_flight_and_responses_keep_their_order(monkeypatch):
    # The client logs in again long before the session ends, so that it is in time on a busy machine, too.
    monkeypatch.setattr("kafkapy.client.connection.next_login_s", lambda lifetime_s: lifetime_s / 3)
    config = {"connections.max.reauth.ms": 3000}
    with kafkapy.Broker(tls=True, users={"alice": "secret"}, config=config) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        connection = Connection(host, int(port), security=security_of(broker.client_properties()))
        until = time.monotonic() + 4
        sent = received = 0
        waiting = []
        while time.monotonic() < until or waiting:
            while len(waiting) < 20 and time.monotonic() < until:
                waiting.append(connection.send(METADATA, METADATA.Request(topics=[])))
                sent += 1
            answered, _ = connection.receive()
            assert answered is waiting.pop(0)
            received += 1
        assert sent == received > 20
        connection.close()


def test_a_tls_message_without_data_is_not_taken_for_a_response(tmp_path):
    """The session tickets of TLS 1.3 make the socket readable, but no bytes of a response have come."""
    pki = Pki()
    certificate = tmp_path / "server.pem"
    certificate.write_text(pki.server.pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    ours, theirs = socket.socketpair()
    security = Security("SSL", trust_settings(tmp_path, [pki.authority]))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(incoming, outgoing, server_side=True)

    def serve():
        while True:
            try:
                server.do_handshake()
                return
            except ssl.SSLWantReadError:
                theirs.sendall(outgoing.read())
                incoming.write(theirs.recv(65536))

    thread = threading.Thread(target=serve)
    thread.start()
    encrypted = tls_module.encrypt(ours, security.context(), "localhost", "localhost:1")
    thread.join()
    theirs.sendall(outgoing.read())  # the session tickets
    buffer = memoryview(bytearray(4))
    assert select.select([encrypted], [], [], 10)[0]
    assert tls_module.receive_at_once(encrypted, buffer) is None
    server.write(b"answer")
    theirs.sendall(outgoing.read())
    assert tls_module.receive_at_once(encrypted, buffer) == 4
    assert tls_module.has_buffered(encrypted)
    encrypted.close()
    theirs.close()
