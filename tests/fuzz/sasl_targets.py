"""Fuzz targets of logins: messages of all mechanisms in sequences, JAAS lines, stored credentials and passwords."""

from __future__ import annotations

import random
from functools import cache

from kafkapy.security.passwords import PasswordEncoder, PasswordUnreadable
from kafkapy.security.sasl.errors import AuthenticationFailed, SaslSettingError
from kafkapy.security.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE, parse_jaas
from kafkapy.security.sasl.jwt_tokens import TokenRules, UnsecuredTokens
from kafkapy.security.sasl.oauthbearer import OAuthServer, first_message
from kafkapy.security.sasl.plain import PlainServer, PlainUsers
from kafkapy.security.sasl.scram import credential_from_text, new_credential
from kafkapy.security.sasl.scram_client import ScramClient
from kafkapy.security.sasl.scram_server import ScramServer
from kafkapy.security.sasl.server import ServerMechanism
from tests.fuzz.target import Target

NAME = "SCRAM-SHA-256"
_SEPARATOR = b"\0\xff\0"  # between the messages of one input
_NONCES = ("client-nonce", "server-nonce")


@cache
def credentials() -> tuple[tuple[str, str], ...]:
    """Return the stored text of the user's credential, in its forms."""
    text = new_credential(NAME, "secret").as_text()
    return (("alice", text), ("alice", ",".join(reversed(text.split(",")))))


def server(kind: str) -> ServerMechanism:
    if kind == "plain":
        return PlainServer(PlainUsers({"user_alice": "secret"}).check, may_wait=False)
    if kind == "oauth":
        return OAuthServer(UnsecuredTokens(TokenRules()).check)
    credential = credential_from_text(credentials()[0][1])
    return ScramServer(NAME, {"alice": credential}.get, b"key", nonce=lambda: _NONCES[1])


def logins() -> tuple[bytes, ...]:
    """Return whole logins: the messages of a client."""
    client = ScramClient(NAME, "alice", "secret", nonce=lambda: _NONCES[0])
    first = client.initial()
    final = client.respond(server("scram").respond(first)) or b""
    token = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImlhdCI6MSwiZXhwIjo0MTAyNDQ0ODAwfQ."
    return (
        b"s" + first + _SEPARATOR + final,
        b"p\0alice\0secret",
        b"o" + first_message(token, "alice"),
        b"o" + first_message("not-a-token") + _SEPARATOR + b"\x01",
    )


def fuzz_login(view: memoryview, rng: random.Random) -> None:
    """A sequence of messages is answered or refused. Only the unchanged logins of the corpus succeed as alice."""
    data = bytes(view)
    ours = server({b"s": "scram", b"p": "plain", b"o": "oauth"}.get(data[:1], "scram"))
    for message in data[1:].split(_SEPARATOR):
        answer = ours.respond(message)
        assert isinstance(answer, bytes)
        if ours.complete:
            assert ours.user == "alice", "another user has logged in"
            return


def fuzz_scram_client(view: memoryview, rng: random.Random) -> None:
    """A server's messages never make a client accept a server that does not know the password."""
    client = ScramClient(NAME, "alice", "secret", nonce=lambda: _NONCES[0])
    for message in bytes(view).split(_SEPARATOR):
        assert client.respond(message) is not None, "an unknown server was accepted"


def fuzz_jaas(view: memoryview, rng: random.Random) -> None:
    parse_jaas("sasl.jaas.config", bytes(view).decode("latin-1"))


def fuzz_credential(view: memoryview, rng: random.Random) -> None:
    credential_from_text(bytes(view).decode("latin-1"))


def fuzz_password(view: memoryview, rng: random.Random) -> None:
    PasswordEncoder("secret").decode(bytes(view).decode("latin-1"))


def targets() -> list[Target]:
    lines = [
        f'{SCRAM_MODULE} required username="alice" password=\'s"e\\143\' ; // end'.encode(),
        f"/* a */ {PLAIN_MODULE} optional\n user_a=b user_c = 'd' ;".encode(),
    ]
    stored = [text.encode() for _, text in credentials()]
    password = PasswordEncoder("secret", iterations=1).encode("x").encode()
    first = f"r={''.join(_NONCES)},s=c2FsdA==,i=4096".encode()
    return [
        Target("sasl login", logins(), fuzz_login, (AuthenticationFailed,)),
        Target("scram client", (first, first + _SEPARATOR + b"v=c2ln"), fuzz_scram_client, (AuthenticationFailed,)),
        Target("jaas line", lines, fuzz_jaas, (SaslSettingError,)),
        Target("scram credential", stored, fuzz_credential, (ValueError,)),
        Target("stored password", (password,), fuzz_password, (PasswordUnreadable,)),
    ]
