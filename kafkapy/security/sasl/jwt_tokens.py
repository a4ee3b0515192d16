"""Checks JSON Web Tokens (RFC 7519): signature, times, issuer, audience (Kafka's ValidatorAccessTokenValidator).

PyJWT and cryptography are imported when the first token is checked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkapy.security.base64_text import decode64url
from kafkapy.security.sasl.oauthbearer import TokenRefused, ValidToken

if TYPE_CHECKING:
    from kafkapy.security.sasl.jwks import KeySource

# Signatures with a private key only. With HS256 the public key, which everybody knows, would be the secret.
ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
LONGEST_TOKEN = 1 << 16
_LARGEST_TIME = 2**53  # seconds; more is not a time


class TokenRules(NamedTuple):
    """The rules for the claims of a token. An empty `audience` means that tokens must not have one, as in Kafka."""

    audience: Collection[str] = ()
    issuer: str | None = None
    clock_skew_s: float = 30.0
    sub_claim: str = "sub"


class SignedTokens:
    """Checks signed tokens with the keys of a provider. `check` may block while keys are fetched."""

    def __init__(self, keys: KeySource, rules: TokenRules, time_s: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._rules = rules
        self._time_s = time_s

    def check(self, token: str) -> ValidToken:
        """Check a token and return its content. Raise TokenRefused if it is malformed, not signed by the provider,
        expired, not valid yet, or meant for others."""
        import jwt

        if len(token) > LONGEST_TOKEN:
            raise TokenRefused(f"a token of {len(token)} characters is too long")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError) as error:  # RecursionError: older PyJWT
            raise TokenRefused(f"not a JSON Web Token: {error}") from None
        if "crit" in header:  # older versions of PyJWT do not look at it
            raise TokenRefused("the token has critical extensions, and none is supported")
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise TokenRefused(f"the token's algorithm {str(algorithm)[:20]!r} is not allowed")
        if kid is not None and not isinstance(kid, str):
            raise TokenRefused("the token's key id is not a text")
        return _valid(self._signed_claims(token, algorithm, kid), self._rules, self._time_s())

    def _signed_claims(self, token: str, algorithm: str, kid: str | None) -> dict[str, Any]:
        """Verify the signature of a token, and return its claims. Raise TokenRefused if the signature is wrong."""
        import jwt

        problem = "the provider has no key for it"
        for key in self._keys.find(kid, algorithm):
            try:
                claims = json.loads(jwt.PyJWS().decode(token, key, algorithms=[algorithm]))
            except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
                problem = str(error)
            else:
                if isinstance(claims, dict):
                    return claims
                problem = "it has no claims"
        raise TokenRefused(f"the token's signature is not accepted: {problem}")


class UnsecuredTokens:
    """Checks tokens without a signature, which anybody can make (Kafka's OAuthBearerUnsecuredValidatorCallbackHandler).

    For development only.
    """

    def __init__(self, rules: TokenRules, time_s: Callable[[], float] = time.time) -> None:
        self._rules = rules
        self._time_s = time_s

    def check(self, token: str) -> ValidToken:
        """Check a token and return its content. Raise TokenRefused if it is malformed, signed, or not valid now."""
        parts = token.split(".")
        if len(parts) != 3 or parts[2] or len(token) > LONGEST_TOKEN:
            raise TokenRefused("not a token without a signature")
        try:
            header, claims = (json.loads(decode64url(part)) for part in parts[:2])
        except (ValueError, RecursionError):
            raise TokenRefused("not a JSON Web Token") from None
        if not isinstance(header, dict) or header.get("alg") != "none" or not isinstance(claims, dict):
            raise TokenRefused("not a token without a signature")
        return _valid(claims, self._rules, self._time_s())


def _valid(claims: dict[str, Any], rules: TokenRules, now: float) -> ValidToken:
    expires, issued = _time(claims, "exp"), _time(claims, "iat")
    if expires is None or issued is None:
        raise TokenRefused("the token must have exp and iat")
    if expires <= now - rules.clock_skew_s:
        raise TokenRefused("the token has expired")
    not_before = _time(claims, "nbf")
    if max(issued, issued if not_before is None else not_before) > now + rules.clock_skew_s:
        raise TokenRefused("the token is not valid yet")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenRefused("the token has another issuer")
    given = claims.get("aud")
    audience = given if isinstance(given, list) else [given] if given is not None else []
    if (audience or rules.audience) and not any(one in rules.audience for one in audience):
        raise TokenRefused("the token is meant for another audience")
    user = claims.get(rules.sub_claim)
    if not isinstance(user, str) or not user.strip():
        raise TokenRefused(f"the token has no user in the claim {rules.sub_claim}")
    try:
        user.encode()
    except UnicodeEncodeError:  # JSON can name half of a surrogate pair, which no response and no log line can have
        raise TokenRefused("the token's user is not valid Unicode") from None
    return ValidToken(user.strip(), int(expires * 1000))


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _LARGEST_TIME:
        raise TokenRefused(f"the token's {name} is not a time")
    return float(value)
