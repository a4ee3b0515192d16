"""The server's part of a SCRAM login (RFC 5802; Kafka's ScramSaslServer).

The server computes only a few HMACs and hashes: PBKDF2, which takes time, is done by the client. An unknown user gets a
challenge, too, and fails at the end with the same message as a wrong password. (Kafka fails at once, which reveals
which users exist.) The salt in this challenge looks like one that Kafka's tools and kafkapy's make. The salt is always
the same for a name, like that of an existing user: it is computed with a secret key that all brokers of the cluster
share.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from kafkapy.security.base64_text import decode64, encode64
from kafkapy.security.sasl.errors import AuthenticationFailed, invalid_credentials
from kafkapy.security.sasl.scram import (
    LEAST_ITERATIONS,
    ScramCredential,
    attributes,
    digest,
    hmac_of,
    is_nonce,
    new_nonce,
    salt_of,
    unescape_name,
    xor,
)

# Returns the stored credential of a user for the mechanism, None if there is none.
FindCredential = Callable[[str], "ScramCredential | None"]

# In bytes; more than any user name and nonce need. Without this limit a peer that has not logged in could have the
# network thread read half a MiB (sasl.server.max.receive.size) of attributes for each message.
LONGEST_MESSAGE = 16 << 10


class ScramServer:
    """The server's side of one login with SCRAM-SHA-256 or SCRAM-SHA-512.

    `find` returns the stored credentials. `challenge_key` is the secret from which the challenges of unknown users are
    computed.
    """

    may_wait = False

    def __init__(
        self, name: str, find: FindCredential, challenge_key: bytes, nonce: Callable[[], str] = new_nonce
    ) -> None:
        self.name = name
        self.user: str | None = None
        self.expires_at_ms: int | None = None
        self.complete = False
        self._find = find
        self._challenge_key = challenge_key
        self._nonce = nonce
        self._credential: ScramCredential | None = None
        # A function, not a bound method, which would be a reference cycle.
        self._step: Callable[[ScramServer, bytes], bytes] | None = ScramServer._first

    def respond(self, token: bytes) -> bytes:
        """Return the answer to the client's message. Raise AuthenticationFailed if the login fails."""
        step, self._step = self._step, None
        if step is None:
            raise self._failed("a message after the end of the login")
        if len(token) > LONGEST_MESSAGE:
            raise self._failed(f"a message of {len(token)} bytes is too long")
        return step(self, token)

    def _first(self, token: bytes) -> bytes:
        try:
            header, bare, authzid, found = _client_first(token)
            (_, name), (_, client_nonce), *extensions = found
            user = unescape_name(name)
        except ValueError as error:
            raise self._failed(f"the client's first message: {error}") from None
        if dict(extensions).get("tokenauth", "").lower() == "true":
            raise self._failed("tokenauth=true: this broker has no delegation tokens")
        if authzid and authzid != user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        credential = self._find(user)
        if credential is not None and credential.iterations < LEAST_ITERATIONS:
            raise self._failed(f"the stored credential has {credential.iterations} iterations, which is too few")
        self._user = user
        self._credential = credential
        shown = credential if credential is not None else self._mock(user)
        self._whole_nonce = client_nonce + self._nonce()
        answer = f"r={self._whole_nonce},s={encode64(shown.salt)},i={shown.iterations}".encode()
        self._bindings = (encode64(header), encode64(b"n,,"))  # Kafka's clients leave out the authorization id
        self._messages = bare + b"," + answer
        self._step = ScramServer._final
        return answer

    def _final(self, token: bytes) -> bytes:
        try:
            message = token.decode()
            found = attributes(message)
            (c, binding), (r, nonce), *_, (p, proof_text) = found
            if (c, r, p) != ("c", "r", "p"):
                raise ValueError("attributes other than c, r and p, or not in this order")
            proof = decode64(proof_text)
        except ValueError as error:
            raise self._failed(f"the client's final message: {error}") from None
        if binding not in self._bindings:
            raise self._failed("the client's final message: another channel binding")
        if not hmac.compare_digest(nonce.encode(), self._whole_nonce.encode()):
            raise self._failed("the client's final message: another nonce")
        credential = self._credential
        stored_key = credential.stored_key if credential is not None else self._mock(self._user).stored_key
        auth = self._messages + b"," + message.rpartition(",p=")[0].encode()
        signature = hmac_of(self.name, stored_key, auth)
        if len(proof) != len(signature):
            raise self._failed("the client's final message: a proof of another length")
        matches = hmac.compare_digest(digest(self.name, xor(proof, signature)), stored_key)
        if credential is None:
            raise self._failed("unknown user")
        if not matches:
            raise self._failed("wrong password")
        self.user = self._user
        self.complete = True
        return b"v=" + encode64(hmac_of(self.name, credential.server_key, auth)).encode()

    def _mock(self, user: str) -> ScramCredential:
        """Return a made-up credential for the challenge of an unknown user. No password matches it."""
        seed = hmac_of(self.name, self._challenge_key, user.encode())
        return ScramCredential(salt_of(seed), digest(self.name, seed), seed, LEAST_ITERATIONS)

    def _failed(self, reason: str) -> AuthenticationFailed:
        return invalid_credentials(self.name, reason)


def _client_first(token: bytes) -> tuple[bytes, bytes, str, list[tuple[str, str]]]:
    """Return the header, the rest, the authorization id and the attributes of a client's first message.

    Raise ValueError if the message is malformed.
    """
    message = token.decode()
    binding, comma, rest = message.partition(",")
    authzid_part, second, bare = rest.partition(",")
    if binding != "n" or not comma or not second:
        raise ValueError("it must begin with n, because there is no channel binding")
    if authzid_part and not authzid_part.startswith("a="):
        raise ValueError("a malformed authorization id")
    found = attributes(bare)
    names = [name for name, _ in found]
    if names[:2] != ["n", "r"]:
        raise ValueError("attributes other than n and r, or not in this order")
    if not is_nonce(found[1][1]):
        raise ValueError("a malformed nonce")
    header = f"{binding},{authzid_part},".encode()
    return header, bare.encode(), unescape_name(authzid_part[2:]), found
