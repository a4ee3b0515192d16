"""PLAIN (RFC 4616; Kafka's PlainSaslServer): user and password in one message."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkapy.security.sasl.errors import AuthenticationFailed

# Returns True if the password is the user's. May block.
CheckPassword = Callable[[str, str], bool]

_USER_OPTION = "user_"


class PlainUsers:
    """The users in a JAAS line: each has an option `user_NAME="PASSWORD"`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._passwords = {
            name[len(_USER_OPTION) :]: password.encode()
            for name, password in options.items()
            if name.startswith(_USER_OPTION)
        }

    def __len__(self) -> int:
        return len(self._passwords)

    def check(self, user: str, password: str) -> bool:
        """Return True if the user exists and has this password. The time does not depend on how much of it matches."""
        import hmac  # loads OpenSSL, so not at the start of a broker

        expected = self._passwords.get(user)
        # Digests, because the comparison of texts of different lengths would take less time.
        matches = hmac.compare_digest(_digest(password.encode()), _digest(b"" if expected is None else expected))
        return matches and expected is not None


def _digest(password: bytes) -> bytes:
    import hashlib

    return hashlib.sha256(password).digest()


class PlainServer:
    """The server's side of one login with PLAIN. `may_wait` tells that `check` may block."""

    name = "PLAIN"

    def __init__(self, check: CheckPassword, *, may_wait: bool) -> None:
        self.may_wait = may_wait
        self.user: str | None = None
        self.expires_at_ms: int | None = None
        self.complete = False
        self._check = check
        self._used = False

    def respond(self, token: bytes) -> bytes:
        """Return the empty answer to a correct login. Raise AuthenticationFailed for any other."""
        if self._used:
            raise _wrong("a message after the end of the login")
        self._used = True
        try:
            parts = token.decode().split("\0", 3)
        except UnicodeDecodeError:
            raise _wrong("the message is not UTF-8") from None
        if len(parts) != 3:
            raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authzid, user, password = parts
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        if not self._check(user, password):
            raise _wrong("unknown user or wrong password")
        if authzid and authzid != user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = user
        self.complete = True
        return b""


def _wrong(reason: str) -> AuthenticationFailed:
    return AuthenticationFailed("Authentication failed: Invalid username or password", reason)


class PlainClient:
    """The client's side of one login with PLAIN."""

    name = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._message = b"\0".join((b"", user.encode(), password.encode()))

    def initial(self) -> bytes:
        """Return the only message."""
        return self._message

    def respond(self, challenge: bytes) -> bytes | None:
        """Return None: a server that answers has accepted the login."""
        return None
