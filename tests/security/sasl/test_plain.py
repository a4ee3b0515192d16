"""PLAIN: the message, the users of a JAAS line, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.security.sasl.errors import AuthenticationFailed
from kafkapy.security.sasl.plain import PlainClient, PlainServer, PlainUsers

USERS = PlainUsers({"username": "admin", "password": "x", "user_alice": "secret", "user_empty": ""})
NAMES = st.text(min_size=1).filter(lambda text: "\0" not in text)


def server(users: PlainUsers = USERS) -> PlainServer:
    return PlainServer(users.check, may_wait=False)


def test_a_user_of_the_jaas_line_logs_in() -> None:
    ours = server()
    client = PlainClient("alice", "secret")
    assert client.respond(ours.respond(client.initial())) is None
    assert ours.complete
    assert ours.user == "alice"


@given(NAMES, NAMES)
def test_every_name_and_password_logs_in(user: str, password: str) -> None:
    ours = server(PlainUsers({f"user_{user}": password}))
    ours.respond(PlainClient(user, password).initial())
    assert ours.user == user


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        b"\0\0",
        b"\0alice\0",
        b"\0\0secret",
        b"\0alice\0secret\0",
        b"\0alice\0secret\0\0\0",
        b"alice\0secret",
        b"\0alice\0wrong",
        b"\0admin\0x",
        b"\0empty\0",
        b"\0Alice\0secret",
        b"\0alice\0secret ",
        b"bob\0alice\0secret",
        b"\0alice\0\xff\xff",
    ],
)
def test_anything_else_is_refused(message: bytes) -> None:
    ours = server()
    with pytest.raises(AuthenticationFailed) as refused:
        ours.respond(message)
    assert not ours.complete
    assert "secret" not in f"{refused.value}{refused.value.reason}"


def test_unknown_users_and_wrong_passwords_are_refused_alike() -> None:
    messages = set()
    for message in (b"\0nobody\0secret", b"\0alice\0wrong"):
        with pytest.raises(AuthenticationFailed) as refused:
            server().respond(message)
        messages.add((refused.value.message, refused.value.reason))
    assert len(messages) == 1


def test_a_second_message_is_refused() -> None:
    ours = server()
    ours.respond(b"\0alice\0secret")
    with pytest.raises(AuthenticationFailed):
        ours.respond(b"\0alice\0secret")
