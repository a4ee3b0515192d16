"""The client's part of a SCRAM login (RFC 5802; Kafka's ScramSaslClient). It also verifies the server."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import lru_cache

from kafkapy.security.base64_text import decode64, encode64
from kafkapy.security.sasl.errors import AuthenticationFailed
from kafkapy.security.sasl.scram import (
    LEAST_ITERATIONS,
    attributes,
    digest,
    escape_name,
    hmac_of,
    is_nonce,
    new_nonce,
    salted_password,
    xor,
)

MOST_ITERATIONS = 1_000_000  # a server that asks for more, which would take half a second and more, is refused

# A client that connects again, or to the other brokers of a cluster, has the same salt and so the same result.
_salted = lru_cache(maxsize=64)(salted_password)


class ScramClient:
    """The client's side of one login with SCRAM-SHA-256 or SCRAM-SHA-512."""

    def __init__(
        self,
        name: str,
        user: str,
        password: str,
        *,
        token_auth: bool = False,
        nonce: Callable[[], str] = new_nonce,
    ) -> None:
        """`token_auth`: the user is the id of a delegation token, and the password its HMAC."""
        self.name = name
        self._password = password
        self._nonce = nonce()
        self._bare = f"n={escape_name(user)},r={self._nonce}" + (",tokenauth=true" if token_auth else "")
        # A function, not a bound method, which would be a reference cycle.
        self._step: Callable[[ScramClient, bytes], bytes | None] | None = ScramClient._proof

    def initial(self) -> bytes:
        """Return the first message."""
        return f"n,,{self._bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the answer to the server's message, or None if the server is verified.

        Raise AuthenticationFailed if the message is malformed, or comes from a server that does not know the password.
        """
        step, self._step = self._step, None
        if step is None:
            raise AuthenticationFailed("the server sent a message after the end of the login")
        try:
            return step(self, challenge)
        except ValueError as error:
            raise AuthenticationFailed(f"the server sent a malformed message: {error}") from None

    def _proof(self, challenge: bytes) -> bytes:
        message = challenge.decode()
        (r, nonce), (s, salt), (i, iterations_text), *_ = attributes(message)
        if (r, s, i) != ("r", "s", "i") or not (iterations_text.isascii() and iterations_text.isdigit()):
            raise ValueError("attributes other than r, s and i, or not in this order")
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not is_nonce(nonce):
            raise AuthenticationFailed("the server did not extend the client's nonce")
        iterations = int(iterations_text)
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise AuthenticationFailed(
                f"the server asks for {iterations} iterations; allowed are {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
            )
        salted = _salted(self.name, self._password, decode64(salt), iterations)
        client_key = hmac_of(self.name, salted, b"Client Key")
        without_proof = f"c={encode64(b'n,,')},r={nonce}"
        auth = f"{self._bare},{message},{without_proof}".encode()
        signature = hmac_of(self.name, digest(self.name, client_key), auth)
        self._expected = hmac_of(self.name, hmac_of(self.name, salted, b"Server Key"), auth)
        self._step = ScramClient._verify
        return f"{without_proof},p={encode64(xor(client_key, signature))}".encode()

    def _verify(self, challenge: bytes) -> None:
        kind, text = attributes(challenge.decode())[0]
        if kind == "e":
            raise AuthenticationFailed(f"the server refused the login: {text}")
        if kind != "v" or not hmac.compare_digest(decode64(text), self._expected):
            raise AuthenticationFailed("the server could not prove that it knows the password")
