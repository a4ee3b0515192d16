"""The parts of SCRAM that servers and clients share: keys, stored credentials, message attributes (RFC 5802, RFC 7677).

Names and passwords are used as UTF-8, as typed, without SASLprep, as in Kafka (ScramFormatter). hashlib and
hmac load OpenSSL, so they are imported when the first key is computed, not when a broker starts.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from kafkapy.security.base64_text import decode64, encode64, encode64url

LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 16384  # of a credential that is stored; Kafka's ZkAdminManager
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SCRAM_TYPES = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}  # the numbers of mechanisms in requests (ScramMechanism)

_SALT_BITS = 130
_DIGITS = b"0123456789abcdefghijklmnopqrstuvwxyz"


class ScramCredential(NamedTuple):
    """The credential that a server stores for a user and mechanism. The password cannot be computed from it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def as_text(self) -> str:
        """Return the text that Kafka stores (ScramCredentialUtils): salt=A,stored_key=B,server_key=C,iterations=N."""
        return (
            f"salt={encode64(self.salt)},stored_key={encode64(self.stored_key)},"
            f"server_key={encode64(self.server_key)},iterations={self.iterations}"
        )

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"  # never the keys, also not in a traceback


def credential_from_text(text: str) -> ScramCredential:
    """Return the credential in the text that Kafka stores. Raise ValueError if it is malformed."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    if set(fields) != {"salt", "stored_key", "server_key", "iterations"}:
        raise ValueError("a stored SCRAM credential has salt, stored_key, server_key and iterations")
    try:
        return ScramCredential(
            decode64(fields["salt"]),
            decode64(fields["stored_key"]),
            decode64(fields["server_key"]),
            int(fields["iterations"]),
        )
    except ValueError:
        raise ValueError("a stored SCRAM credential has a malformed field") from None


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password: PBKDF2 over `iterations`, which takes a millisecond or more."""
    import hashlib

    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_from_salted(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential that a server stores for this salted password."""
    client_key = hmac_of(mechanism, salted, b"Client Key")
    server_key = hmac_of(mechanism, salted, b"Server Key")
    return ScramCredential(salt, digest(mechanism, client_key), server_key, iterations)


def new_credential(mechanism: str, password: str, iterations: int = LEAST_ITERATIONS) -> ScramCredential:
    """Return a credential for this password, with a new random salt."""
    salt = new_salt()
    return credential_from_salted(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def new_salt() -> bytes:
    """Return a random salt."""
    return salt_of(os.urandom(32))


def salt_of(seed: bytes) -> bytes:
    """Return the salt for 32 or more random bytes, in the form that Kafka's tools give to salts (ScramFormatter): the
    digits of a number of 130 bits in base 36."""
    number = int.from_bytes(seed, "big") % (1 << _SALT_BITS)
    digits = bytearray()
    while number or not digits:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return bytes(digits[::-1])


def hmac_of(mechanism: str, key: bytes, text: bytes) -> bytes:
    import hmac

    return hmac.digest(key, text, HASHES[mechanism])


def digest(mechanism: str, data: bytes) -> bytes:
    import hashlib

    return hashlib.new(HASHES[mechanism], data).digest()


def xor(left: bytes, right: bytes) -> bytes:
    """Return left XOR right. Both must have the same length."""
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def new_nonce() -> str:
    """Return a random nonce in characters that SCRAM allows."""
    return encode64url(os.urandom(24))


def escape_name(name: str) -> str:
    """Return a user name as SCRAM and OAUTHBEARER messages write it: `=` as =3D and `,` as =2C."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(text: str) -> str:
    """Return the user name that a message has as `text`. Raise ValueError if `=` is followed by something else than 2C
    or 3D."""
    first, *rest = text.split("=")
    parts = [first]
    for part in rest:
        if part[:2] not in ("2C", "3D"):
            raise ValueError("a name has = that is not written as =3D")
        parts.append(("," if part[:2] == "2C" else "=") + part[2:])
    return "".join(parts)


def attributes(message: str) -> list[tuple[str, str]]:
    """Return the attributes in a SCRAM message as (name, value), in order.

    Raise ValueError if one is malformed, or if a name occurs twice.
    """
    found: dict[str, str] = {}
    for part in message.split(","):
        name, equals, value = part.partition("=")
        if not equals or not value or not (name.isascii() and name.isalpha()) or "\0" in value:
            raise ValueError("a malformed attribute")
        if name in found:
            raise ValueError(f"the attribute {name[:20]} occurs twice")
        found[name] = value
    return list(found.items())


def is_nonce(text: str) -> bool:
    """Return True if the text is a nonce that SCRAM allows: printable ASCII without comma."""
    return bool(text) and all("!" <= char <= "~" and char != "," for char in text)
