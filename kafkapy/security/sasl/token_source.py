"""The sources of a client's OAUTHBEARER tokens: a file, an OAuth provider, or tokens without a signature."""

from __future__ import annotations

import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote_plus

from kafkapy.security.base64_text import decode64url, encode64, encode64url
from kafkapy.security.sasl.errors import AuthenticationFailed, SaslSettingError
from kafkapy.security.sasl.http import TIMEOUT_S, request

log = logging.getLogger("kafkapy.security.sasl.token_source")

Token = tuple[str, float]  # the token, and when it expires in seconds since the epoch

RETRY_S = 10.0  # the pause after the provider gave no new token, while the old one is valid
_REFRESH_FACTOR = 0.8  # part of a token's lifetime after which the next is fetched (sasl.login.refresh.window.factor)
_PREFIX = "unsecuredLogin"


class TokenCache:
    """Keeps a token until most of its lifetime has passed. `get` may be called from any thread, and may block."""

    def __init__(
        self, fetch: Callable[[], Token], factor: float = _REFRESH_FACTOR, time_s: Callable[[], float] = time.time
    ) -> None:
        self._fetch = fetch
        self._factor = factor
        self._time_s = time_s
        self._lock = threading.Lock()
        self._token = ""
        self._refresh_at = self._expires = float("-inf")

    def get(self) -> str:
        """Return a token that is valid. Raise AuthenticationFailed if there is none.

        If the provider gives no new token before the old one has expired, return the old one.
        """
        with self._lock:
            now = self._time_s()
            if now >= self._refresh_at:
                try:
                    self._token, self._expires = self._fetch()
                except AuthenticationFailed as error:
                    if now >= self._expires:
                        raise
                    self._refresh_at = now + RETRY_S
                    log.warning("the token is used until it expires, because there is no new one: %s", error.message)
                else:
                    self._refresh_at = now + (self._expires - now) * self._factor
            return self._token


def file_token(path: Path) -> Callable[[], Token]:
    """Return a function that reads the token in a file, each time it is called."""

    def fetch() -> Token:
        try:
            token = path.read_text("ascii").strip()
        except (OSError, ValueError) as error:
            raise AuthenticationFailed(f"there is no token: {error}") from None
        return token, 0.0

    return fetch


def provider_token(
    url: str,
    client_id: str,
    secret: str,
    scope: str,
    *,
    encode: bool = False,
    timeout_s: float = TIMEOUT_S,
    context: ssl.SSLContext | None = None,
) -> Callable[[], Token]:
    """Return a function that asks an OAuth provider for a token (the grant of client credentials, RFC 6749).

    encode: write id and secret URL-encoded (`sasl.oauthbearer.header.urlencode`).
    context: for https; None means the system's authorities.
    """
    name, word = (quote_plus(client_id), quote_plus(secret)) if encode else (client_id, secret)
    credentials = encode64(f"{name}:{word}".encode())
    body = "grant_type=client_credentials" + (f"&scope={quote_plus(scope.strip())}" if scope.strip() else "")
    headers = {"Authorization": f"Basic {credentials}", "Content-Type": "application/x-www-form-urlencoded"}

    def fetch() -> Token:
        try:
            answer = json.loads(request(url, body=body.encode(), headers=headers, timeout_s=timeout_s, context=context))
            token = answer["access_token"]
        except OSError as error:
            raise AuthenticationFailed(f"there is no token: {error}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise AuthenticationFailed(f"there is no token in the answer of {url}") from None
        if not isinstance(token, str) or not token:
            raise AuthenticationFailed(f"there is no token in the answer of {url}")
        return token, _expiry(token, answer.get("expires_in"))

    return fetch


def _expiry(token: str, expires_in: object) -> float:
    """Return when a token expires (seconds since the epoch): by its claim exp, else by `expires_in`, else now."""
    try:
        return float(json.loads(decode64url(token.split(".")[1]))["exp"])
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        lifetime = expires_in if isinstance(expires_in, (int, float)) else 0
        return time.time() + lifetime


def unsecured_token(
    claims: Mapping[str, object], lifetime_s: float, time_s: Callable[[], float] = time.time
) -> Callable[[], Token]:
    """Return a function that makes tokens without a signature, with these claims."""

    def fetch() -> Token:
        now = time_s()
        body = {**claims, "iat": now, "exp": now + lifetime_s}
        return f"{_part({'alg': 'none'})}.{_part(body)}.", now + lifetime_s

    return fetch


def _part(value: Mapping[str, object]) -> str:
    return encode64url(json.dumps(value).encode())


def claims_of_options(options: Mapping[str, str]) -> tuple[dict[str, object], float]:
    """Return the claims and the lifetime in seconds that the options `unsecuredLogin...` of a JAAS line describe.

    Raise SaslSettingError for an invalid option (Kafka's OAuthBearerUnsecuredLoginCallbackHandler).
    """
    claims: dict[str, object] = {}
    for name, value in options.items():
        kind, _, claim = name.partition("_")
        if kind == _PREFIX + "StringClaim":
            claims[claim] = value
        elif kind == _PREFIX + "NumberClaim":
            claims[claim] = _number(name, value)
        elif kind == _PREFIX + "ListClaim":
            claims[claim] = value[1:].split(value[0]) if len(value) > 1 else []
        if claim in ("iat", "exp"):
            raise SaslSettingError(f"the option {name} must not set {claim}")
    principal = options.get(_PREFIX + "PrincipalClaimName", "").strip() or "sub"
    if not claims.get(principal):
        raise SaslSettingError(
            f"OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url, or a claim {principal} in the JAAS line"
        )
    return claims, _number(_PREFIX + "LifetimeSeconds", options.get(_PREFIX + "LifetimeSeconds", "3600"))


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SaslSettingError(f"the option {name} must be a number") from None
