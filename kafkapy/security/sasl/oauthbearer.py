"""OAUTHBEARER (RFC 7628; Kafka's OAuthBearerSaslServer): the client sends a token that an OAuth provider has issued."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kafkapy.security.sasl.errors import AuthenticationFailed, SaslSettingError, invalid_credentials
from kafkapy.security.sasl.scram import escape_name, unescape_name

_SEPARATOR = "\x01"
_NAME = "OAUTHBEARER"
_AUTH = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7E \t\r\n]+")


class ValidToken(NamedTuple):
    """The content of a checked token: the user, and when the token expires (milliseconds since the epoch)."""

    user: str
    expires_at_ms: int


class TokenRefused(Exception):
    """Raised if a token is not accepted. The message is for the server's log and does not contain the token."""


# Checks a token: returns its content, or raises TokenRefused. May block.
CheckToken = Callable[[str], ValidToken]


class OAuthServer:
    """The server's side of one login with OAUTHBEARER. `check` may wait for the provider's keys.

    If the token is refused, the client gets a JSON text and answers with one byte; only then the login fails.
    """

    name = _NAME
    may_wait = True

    def __init__(self, check: CheckToken) -> None:
        self.user: str | None = None
        self.expires_at_ms: int | None = None
        self.complete = False
        self._check = check
        self._refusal: str | None = None

    def respond(self, token: bytes) -> bytes:
        """Return the answer to the client's message. Raise AuthenticationFailed if the login fails."""
        if self._refusal is not None:
            raise AuthenticationFailed('{"status":"invalid_token"}', self._refusal)
        if self.complete:
            raise invalid_credentials(_NAME, "a message after the end of the login")
        try:
            authzid, text = _client_first(token)
        except ValueError as error:
            raise invalid_credentials(_NAME, f"the client's first message: {error}") from None
        try:
            valid = self._check(text)
        except TokenRefused as error:
            self._refusal = str(error)
            return b'{"status":"invalid_token"}'
        if authzid and authzid != valid.user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name"
            )
        self.user, self.expires_at_ms = valid
        self.complete = True
        return b""


class OAuthClient:
    """The client's side of one login with OAUTHBEARER. `token` returns the token, and may block."""

    name = _NAME

    def __init__(self, token: Callable[[], str], extensions: Mapping[str, str] | None = None) -> None:
        self._token = token
        self._extensions = dict(extensions or {})
        for key, value in self._extensions.items():
            if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value) or key == "auth":
                raise SaslSettingError(f"the SASL extension {key} must be a word of letters with a printable value")

    def initial(self) -> bytes:
        """Return the first message. Raise AuthenticationFailed if there is no token."""
        fields = {"auth": f"Bearer {self._token()}", **self._extensions}
        pairs = "".join(f"{key}={value}{_SEPARATOR}" for key, value in fields.items())
        return f"n,,{_SEPARATOR}{pairs}{_SEPARATOR}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Return None if the server has accepted the token, otherwise the byte with which the server ends the login."""
        return _SEPARATOR.encode() if challenge else None


def first_message(token: str, authzid: str = "") -> bytes:
    """Return a client's first message with this token, and with an authorization id if one is given."""
    identity = f"a={escape_name(authzid)}" if authzid else ""
    return f"n,{identity},{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{_SEPARATOR}".encode()


def _client_first(token: bytes) -> tuple[str, str]:
    """Return the authorization id ("" if there is none) and the token of a client's first message.

    Raise ValueError if the message is malformed. Extensions are checked for their form, and ignored.
    """
    message = token.decode()
    header, separator, rest = message.partition(_SEPARATOR)
    parts = header.split(",")
    if not separator or len(parts) != 3 or parts[0] != "n" or parts[2]:
        raise ValueError("it must begin with n, an authorization id or nothing, and a control character")
    if parts[1] and not (parts[1].startswith("a=") and len(parts[1]) > 2):
        raise ValueError("a malformed authorization id")
    if not rest.endswith(_SEPARATOR):
        raise ValueError("it must end with a control character")
    pairs: dict[str, str] = {}
    for pair in rest[:-1].split(_SEPARATOR)[:-1] if rest != _SEPARATOR else []:
        key, _, value = pair.partition("=")
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value) or key in pairs:
            raise ValueError("a malformed or repeated field")
        pairs[key] = value
    if rest != _SEPARATOR and not rest.endswith(_SEPARATOR * 2):
        raise ValueError("it must end with two control characters")
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth[1].lower() != "bearer":
        raise ValueError("no field auth with a bearer token")
    return unescape_name(parts[1][2:]), auth[2]
