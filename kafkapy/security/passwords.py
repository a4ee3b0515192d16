"""Encrypts passwords in dynamic settings as Kafka stores them (EncryptingPasswordEncoder).

The key is derived from `password.encoder.secret` with PBKDF2. The text has all other parameters, so it can be read
after they were changed: `keyFactoryAlgorithm:..,cipherAlgorithm:..,keyLength:..,salt:..,iterations:..,` and so on. The
library cryptography is imported when the first password is encrypted.
"""

from __future__ import annotations

import os

from kafkapy.security.base64_text import decode64, encode64

_HASHES = {
    "PBKDF2WithHmacSHA1": "sha1",
    "PBKDF2WithHmacSHA224": "sha224",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA384": "sha384",
    "PBKDF2WithHmacSHA512": "sha512",
}
CIPHERS = ("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding")
KEY_FACTORIES = tuple(_HASHES)
KEY_LENGTHS = (128, 192, 256)

_DEFAULT_FACTORY = "PBKDF2WithHmacSHA512"
_SALT_BYTES = 256
_BLOCK = 16
_GCM_IV_BYTES, _GCM_TAG_BYTES = 12, 16
_MOST_ITERATIONS = 10_000_000  # in a stored text: more would take seconds


class PasswordUnreadable(ValueError):
    """Raised if a stored password cannot be decrypted. The message shows nothing of it."""


class PasswordEncoder:
    """Encrypts with these parameters, and decrypts texts with their own. Raises ValueError for unknown parameters."""

    def __init__(
        self,
        secret: str,
        *,
        key_factory: str | None = None,
        cipher: str = CIPHERS[0],
        key_length: int = 128,
        iterations: int = 4096,
    ) -> None:
        self._secret = secret.encode()
        self._factory = key_factory or _DEFAULT_FACTORY
        self._cipher = cipher
        self._key_length = key_length
        self._iterations = iterations
        if self._factory not in _HASHES or cipher not in CIPHERS or key_length not in KEY_LENGTHS:
            raise ValueError(f"{self._factory}, {cipher} and {key_length} bits are not all known")

    def encode(self, password: str) -> str:
        """Return the encrypted password as a text."""
        salt = os.urandom(_SALT_BYTES)
        key = _key(self._secret, self._factory, salt, self._iterations, self._key_length)
        fields: dict[str, object] = {
            "keyFactoryAlgorithm": self._factory,
            "cipherAlgorithm": self._cipher,
            "keyLength": self._key_length,
            "salt": encode64(salt),
            "iterations": self._iterations,
            "passwordLength": _java_length(password),
        }
        if self._cipher == CIPHERS[0]:
            vector = os.urandom(_BLOCK)
            encrypted = _cbc_encrypted(key, vector, password.encode())
        else:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            vector = os.urandom(_GCM_IV_BYTES)
            encrypted = AESGCM(key).encrypt(vector, password.encode(), None)
            fields["authenticationTagLength"] = _GCM_TAG_BYTES * 8
        fields |= {"encryptedPassword": encode64(encrypted), "initializationVector": encode64(vector)}
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """Return the password in an encrypted text. Raise PasswordUnreadable if it was encrypted with another secret
        or is malformed."""
        fields = dict(part.partition(":")[::2] for part in text.split(","))
        try:
            factory, cipher = fields["keyFactoryAlgorithm"], fields["cipherAlgorithm"]
            iterations, key_length = int(fields["iterations"]), int(fields["keyLength"])
            if factory not in _HASHES or cipher not in CIPHERS or key_length not in KEY_LENGTHS:
                raise PasswordUnreadable("a stored password is encrypted with an algorithm that is not supported")
            if not 0 < iterations <= _MOST_ITERATIONS:
                raise ValueError
            key = _key(self._secret, factory, decode64(fields["salt"]), iterations, key_length)
            vector, encrypted = decode64(fields["initializationVector"]), decode64(fields["encryptedPassword"])
            password = _decrypted(cipher, key, vector, encrypted).decode()
            if _java_length(password) != int(fields["passwordLength"]):
                raise ValueError
        except PasswordUnreadable:
            raise
        except (KeyError, ValueError):
            raise PasswordUnreadable(
                "a stored password cannot be decrypted with this password.encoder.secret"
            ) from None
        return password


def _key(secret: bytes, factory: str, salt: bytes, iterations: int, bits: int) -> bytes:
    import hashlib  # loads OpenSSL, so not at the start of a broker

    return hashlib.pbkdf2_hmac(_HASHES[factory], secret, salt, iterations, bits // 8)


def _decrypted(cipher: str, key: bytes, vector: bytes, encrypted: bytes) -> bytes:
    """Return the decrypted bytes. Raise ValueError if they were encrypted with another key."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if cipher != CIPHERS[0]:
        try:
            return AESGCM(key).decrypt(vector, encrypted, None)
        except InvalidTag:
            raise ValueError("another key") from None
    decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
    padded = decryptor.update(encrypted) + decryptor.finalize()
    count = padded[-1] if padded else 0
    if not 1 <= count <= _BLOCK or padded[-count:] != bytes([count]) * count:
        raise ValueError("another key")
    return padded[:-count]


def _cbc_encrypted(key: bytes, vector: bytes, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    count = _BLOCK - len(data) % _BLOCK
    encryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
    return encryptor.update(data + bytes([count]) * count) + encryptor.finalize()


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
