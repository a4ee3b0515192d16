"""SCRAM between our client and server, against the examples of the RFCs, and against peers that deviate."""

import base64
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.security.sasl import scram
from kafkapy.security.sasl.errors import AuthenticationFailed
from kafkapy.security.sasl.scram import (
    ScramCredential,
    credential_from_salted,
    credential_from_text,
    escape_name,
    new_credential,
    salted_password,
    unescape_name,
)
from kafkapy.security.sasl.scram_client import ScramClient
from kafkapy.security.sasl.scram_server import LONGEST_MESSAGE, ScramServer

SHA_256 = "SCRAM-SHA-256"
ALICE = new_credential(SHA_256, "pencil")


def server(credentials: dict[str, ScramCredential] | None = None, name: str = SHA_256) -> ScramServer:
    return ScramServer(name, ({"alice": ALICE} if credentials is None else credentials).get, b"challenge key")


def log_in(client: ScramClient, against: ScramServer) -> None:
    answer: bytes | None = client.initial()
    while answer is not None:
        answer = client.respond(against.respond(answer))


# (mechanism, hash, salt, client nonce, server nonce, proof, signature): RFC 5802 section 5, RFC 7677 section 3
EXAMPLES = [
    ("SCRAM-SHA-1", "sha1", "QSXCR+Q6sek8bf92", "fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j",
     "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=", "rmF9pqV8S7suAoZWja4dJRkFsKQ="),
    ("SCRAM-SHA-256", "sha256", "W22ZaJ0SNY7soEsUEjb6gQ==", "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
     "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="),
]  # fmt: skip


@pytest.mark.parametrize(("name", "hash_name", "salt", "client_nonce", "server_nonce", "proof", "signature"), EXAMPLES)
def test_the_examples_of_the_rfcs(
    name: str,
    hash_name: str,
    salt: str,
    client_nonce: str,
    server_nonce: str,
    proof: str,
    signature: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(scram.HASHES, name, hash_name)
    salt_bytes = base64.b64decode(salt)
    credential = credential_from_salted(name, salted_password(name, "pencil", salt_bytes, 4096), salt_bytes, 4096)
    ours = ScramServer(name, {"user": credential}.get, b"challenge key", nonce=lambda: server_nonce)
    client = ScramClient(name, "user", "pencil", nonce=lambda: client_nonce)
    assert client.initial() == f"n,,n=user,r={client_nonce}".encode()
    first = ours.respond(client.initial())
    assert first == f"r={client_nonce}{server_nonce},s={salt},i=4096".encode()
    final = client.respond(first)
    assert final == f"c=biws,r={client_nonce}{server_nonce},p={proof}".encode()
    verdict = ours.respond(final)
    assert verdict == f"v={signature}".encode()
    assert client.respond(verdict) is None
    assert ours.complete
    assert ours.user == "user"


@settings(max_examples=25, deadline=None)
@given(
    st.text(min_size=1).filter(lambda name: "\0" not in name),
    st.text(min_size=1),
    st.sampled_from(sorted(scram.HASHES)),
)
def test_every_name_and_password_logs_in(user: str, password: str, name: str) -> None:
    ours = server({user: new_credential(name, password)}, name)
    log_in(ScramClient(name, user, password), ours)
    assert ours.user == user


@given(st.text())
def test_names_are_escaped_and_unescaped(name: str) -> None:
    escaped = escape_name(name)
    assert "," not in escaped
    assert unescape_name(escaped) == name


def test_a_stored_credential_is_read_and_written_as_kafka_does() -> None:
    # Kafka 3.9.1, kafka-configs --alter --add-config 'SCRAM-SHA-256=[iterations=4096,password=secret]'
    text = ALICE.as_text()
    assert credential_from_text(text) == ALICE
    assert credential_from_text(",".join(reversed(text.split(",")))) == ALICE
    assert base64.b64encode(ALICE.stored_key).decode() not in repr(ALICE)


@pytest.mark.parametrize("text", ["", "salt=aa", "salt=a,stored_key=b,server_key=c,iterations=x", "salt=====,=,="])
def test_a_malformed_stored_credential_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="SCRAM credential"):
        credential_from_text(text)


def refusal(user: str, password: str) -> tuple[str, int]:
    """Return the text that the client of a failed login gets, and the number of messages before."""
    ours = server()
    client = ScramClient(SHA_256, user, password)
    challenge = ours.respond(client.initial())
    with pytest.raises(AuthenticationFailed) as refused:
        ours.respond(client.respond(challenge) or b"")
    assert not ours.complete
    assert ours.user is None
    return refused.value.message, challenge.count(b",")


def test_unknown_users_and_wrong_passwords_are_refused_alike() -> None:
    assert refusal("unknown", "pencil") == refusal("alice", "wrong")


def challenge(user: str, name: str = SHA_256, key: bytes = b"challenge key") -> dict[str, str]:
    """Return the salt (s) and the iterations (i) that a client gets."""
    ours = ScramServer(name, {"alice": ALICE}.get, key)
    answer = dict(scram.attributes(ours.respond(ScramClient(name, user, "x").initial()).decode()))
    return {"s": answer["s"], "i": answer["i"]}


def test_an_unknown_user_always_gets_the_same_salt() -> None:
    assert challenge("unknown") == challenge("unknown")
    salts = {
        challenge("unknown")["s"],
        challenge("unknown2")["s"],
        challenge("unknown", "SCRAM-SHA-512")["s"],
        challenge("unknown", key=b"another")["s"],
    }
    assert len(salts) == 4


@pytest.mark.parametrize("user", ["alice", "unknown"])
def test_challenges_of_users_and_of_unknown_names_look_alike(user: str) -> None:
    """The salt has the form of those that Kafka's own tools make: a number of 130 bits in base 36."""
    answer = challenge(user)
    assert answer["i"] == "4096"
    salt = base64.b64decode(answer["s"])
    assert salt == salt.lower()
    assert int(salt, 36) < 1 << 130
    assert len(salt) > 15


@pytest.mark.parametrize(("number", "salt"), [(0, b"0"), (35, b"z"), (36, b"10"), ((1 << 130) + 37, b"11")])
def test_a_salt_is_a_number_in_base_36(number: int, salt: bytes) -> None:
    assert scram.salt_of(number.to_bytes(32, "big")) == salt


def test_a_changed_nonce_is_refused() -> None:
    for change in (lambda nonce: nonce[1:], lambda nonce: "x" + nonce, lambda nonce: nonce + "x"):
        ours, client = server(), ScramClient(SHA_256, "alice", "pencil")
        final = (client.respond(ours.respond(client.initial())) or b"").decode()
        c, r, p = final.split(",")
        with pytest.raises(AuthenticationFailed) as refused:
            ours.respond(f"{c},r={change(r[2:])},{p}".encode())
        assert "another nonce" in refused.value.reason


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=alice",
        b"n,,n=alice,r=",
        b"n,,r=abc,n=alice",
        b"n,,n=alice,r=abc,r=def",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice,r=a c",
        b"n,x,n=alice,r=abc",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,m=x,n=alice,r=abc",
        b"\xff\xff",
        b"n,,n=alice,r=abc,tokenauth=true",
        b"n,,n=alice,r=abc,tokenauth=TRUE",
    ],
)
def test_a_malformed_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        server().respond(message)


def test_a_message_that_is_too_long_is_refused_before_it_is_read() -> None:
    first = b"n,,n=alice,r=abc,x="
    longest = first + b"y" * (LONGEST_MESSAGE - len(first))
    assert server().respond(longest).startswith(b"r=abc")
    with pytest.raises(AuthenticationFailed) as refused:
        server().respond(longest + b"y")
    assert "too long" in refused.value.reason


def test_another_authorization_id_is_refused_before_the_user_is_known() -> None:
    for user in ("alice", "unknown"):
        with pytest.raises(AuthenticationFailed, match="different from username"):
            server().respond(f"n,a=bob,n={user},r=abc".encode())


def test_the_same_authorization_id_is_allowed_with_its_channel_binding() -> None:
    for header in (b"n,a=alice,", b"n,,"):
        ours, client = server(), ScramClient(SHA_256, "alice", "pencil")
        client.initial()
        bare = client.initial()[3:]
        challenge = ours.respond(b"n,a=alice," + bare)
        final = client.respond(challenge) or b""
        if header == b"n,,":
            ours.respond(final)
            assert ours.complete
        else:  # the proof covers the channel binding, so another one needs another proof
            with pytest.raises(AuthenticationFailed):
                ours.respond(final.replace(b"c=biws", b"c=" + base64.b64encode(header)))


@pytest.mark.parametrize("binding", ["eSws", "cD10bHMtdW5pcXVlLCw=", "biw=", ""])
def test_another_channel_binding_is_refused(binding: str) -> None:
    ours, client = server(), ScramClient(SHA_256, "alice", "pencil")
    final = (client.respond(ours.respond(client.initial())) or b"").decode()
    with pytest.raises(AuthenticationFailed):
        ours.respond(final.replace("c=biws", f"c={binding}").encode())


@pytest.mark.parametrize(
    "change",
    [
        lambda c, r, p: f"{c},{r},{r},{p}",
        lambda c, r, p: f"{r},{c},{p}",
        lambda c, r, p: f"{c},{r},{p},x=y",
        lambda c, r, p: f"{c},{r},{p}{p}",
        lambda c, r, p: f"{c},{r},m=x",
        lambda c, r, p: f"{c},{r},p=",
    ],
)
def test_a_malformed_final_message_is_refused(change: Callable[[str, str, str], str]) -> None:
    ours, client = server(), ScramClient(SHA_256, "alice", "pencil")
    c, r, p = (client.respond(ours.respond(client.initial())) or b"").decode().split(",")
    with pytest.raises(AuthenticationFailed):
        ours.respond(change(c, r, p).encode())
    assert not ours.complete


def test_a_third_message_is_refused() -> None:
    ours = server()
    log_in(ScramClient(SHA_256, "alice", "pencil"), ours)
    with pytest.raises(AuthenticationFailed):
        ours.respond(b"n,,n=alice,r=abc")


def test_a_stored_credential_with_too_few_iterations_is_refused() -> None:
    weak = {"alice": ALICE._replace(iterations=1)}
    with pytest.raises(AuthenticationFailed) as refused:
        server(weak).respond(ScramClient(SHA_256, "alice", "pencil").initial())
    assert "too few" in refused.value.reason


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        ("r={nonce}x,s=AAAA,i=1", "iterations"),
        ("r={nonce}x,s=AAAA,i=2000000", "iterations"),
        ("r={nonce},s=AAAA,i=4096", "nonce"),
        ("r=other,s=AAAA,i=4096", "nonce"),
        ("r={nonce}x,s=AAAA,i=-4096", "malformed|attributes"),
        ("r={nonce}x,s=A,i=4096", "malformed"),
        ("s=AAAA,r={nonce}x,i=4096", "malformed"),
        ("m=x,r={nonce}x,s=AAAA,i=4096", "malformed"),
        ("e=no", "malformed"),
    ],
)
def test_a_client_refuses_a_deviating_server(challenge: str, why: str) -> None:
    client = ScramClient(SHA_256, "alice", "pencil", nonce=lambda: "abcdef")
    client.initial()
    with pytest.raises(AuthenticationFailed, match=why):
        client.respond(challenge.format(nonce="abcdef").encode())


def test_a_client_refuses_a_server_that_does_not_know_the_password() -> None:
    for verdict in (b"v=" + base64.b64encode(bytes(32)), b"v=x", b"v=", b"", b"e=other-error", b"r=x"):
        ours, client = server(), ScramClient(SHA_256, "alice", "pencil")
        client.respond(ours.respond(client.initial()))
        with pytest.raises(AuthenticationFailed):
            client.respond(verdict)


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4))
def test_no_sequence_of_bytes_logs_in_or_fails_otherwise(messages: list[bytes]) -> None:
    ours = server()
    for message in messages:
        try:
            ours.respond(message)
        except AuthenticationFailed:
            break
    assert not ours.complete
