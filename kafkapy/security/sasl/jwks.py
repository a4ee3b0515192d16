"""The public keys of an OAuth provider: a JSON Web Key Set (RFC 7517) in a file or at a URL.

A URL is read on the thread that needs a key, which must not be a network thread: at the first login, when the keys are
old, and when a token names an unknown key, because the provider may have changed its keys; then at most every
UNKNOWN_KEY_S seconds. Source: Kafka's JwksFileVerificationKeyResolver and RefreshingHttpsJwks.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

log = logging.getLogger("kafkapy.security.sasl.jwks")

UNKNOWN_KEY_S = 10.0  # for so long after a read of the URL, an unknown key causes no further read
LONGEST_KEY_ID = 1000
_TYPES = {"R": "RSA", "P": "RSA", "E": "EC"}  # by the first letter of the algorithm


class KeySource(Protocol):
    """Gives the public keys that a token may be signed with."""

    def find(self, kid: str | None, algorithm: str) -> list[Any]:
        """Return the keys with this id, or all keys if the token names none, that fit the algorithm. May block."""
        ...


class _Key(NamedTuple):
    id: Any
    type: str
    algorithm: str | None  # the only algorithm that the key is meant for; None: all of its type
    key: Any  # of the library cryptography


class KeySet:
    """The usable keys of a JSON Web Key Set. Raises ValueError if `data` is not one."""

    def __init__(self, data: bytes) -> None:
        try:
            entries = json.loads(data)["keys"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError("not a JSON Web Key Set") from None
        if not isinstance(entries, list):
            raise ValueError("not a JSON Web Key Set")
        self._keys = [key for key in map(_public_key, entries) if key is not None]

    def find(self, kid: str | None, algorithm: str) -> list[Any]:
        """Return the keys with this id, or all keys if `kid` is None, that fit the algorithm."""
        kind = "OKP" if algorithm == "EdDSA" else _TYPES[algorithm[0]]
        return [
            one.key
            for one in self._keys
            if one.type == kind and (kid is None or one.id == kid) and one.algorithm in (None, algorithm)
        ]


def _public_key(entry: Any) -> _Key | None:
    """Return the public key of an entry in a key set, or None if the entry cannot verify signatures of tokens."""
    import jwt

    if not isinstance(entry, dict) or entry.get("kty") not in ("RSA", "EC", "OKP") or entry.get("use", "sig") != "sig":
        return None
    public = {name: value for name, value in entry.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")}
    try:
        return _Key(entry.get("kid"), entry["kty"], entry.get("alg"), jwt.PyJWK(public).key)
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError) as error:
        log.warning("a key of the OAuth provider is ignored: %s", error)
        return None


class KeyFile:
    """The keys in a file, which is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._version: tuple[int, int] | None = None
        self._keys: KeySet | None = None
        self._read()  # so that a missing or malformed file is noticed at the start

    def find(self, kid: str | None, algorithm: str) -> list[Any]:
        with self._lock:
            try:
                self._read()
            except (OSError, ValueError) as error:
                log.error("the OAuth provider's keys are not read again: %s", error)
            assert self._keys is not None
            return self._keys.find(kid, algorithm)

    def _read(self) -> None:
        found = os.stat(self._path)
        version = found.st_mtime_ns, found.st_size
        if version != self._version:
            self._keys = KeySet(self._path.read_bytes())
            self._version = version


class KeyUrl:
    """The keys at a URL. `fetch()` returns the bytes there, or raises OSError."""

    def __init__(
        self,
        fetch: Callable[[], bytes],
        *,
        refresh_s: float = 3600.0,
        backoff_s: float = 0.1,
        backoff_max_s: float = 10.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._refresh_s = refresh_s
        self._backoff_s = backoff_s
        self._backoff_max_s = backoff_max_s
        self._monotonic = monotonic
        self._lock = threading.Lock()  # held while the URL is read
        self._keys: KeySet | None = None
        self._due_at = float("-inf")  # when the keys are read again although no key is missing
        self._read_at = float("-inf")
        self._failures = 0

    def find(self, kid: str | None, algorithm: str) -> list[Any]:
        """Return the keys for a token. If none is known, read the URL again first, if that is due."""
        keys = self._keys
        found = keys.find(kid, algorithm) if keys is not None else []
        if found:
            if self._monotonic() >= self._due_at and self._lock.acquire(blocking=False):  # others use old keys
                try:
                    self._read()
                finally:
                    self._lock.release()
                assert self._keys is not None
                return self._keys.find(kid, algorithm)
            return found
        if kid is not None and len(kid) > LONGEST_KEY_ID:
            return []
        with self._lock:
            now = self._monotonic()
            if self._keys is keys and (now >= self._read_at + UNKNOWN_KEY_S or (keys is None and now >= self._due_at)):
                self._read()
            return self._keys.find(kid, algorithm) if self._keys is not None else []

    def _read(self) -> None:
        """Read the URL, and keep the old keys if that fails.

        The next read is due some time after the end of this one: a provider that takes ten seconds to fail must not
        have all logins wait for the next read at once.
        """
        try:
            keys = KeySet(self._fetch())
        except (OSError, ValueError) as error:
            now = self._read_at = self._monotonic()
            self._due_at = now + min(self._backoff_s * 2**self._failures, self._backoff_max_s)
            self._failures = min(self._failures + 1, 20)
            log.error("the OAuth provider's keys cannot be read: %s", error)
        else:
            self._keys = keys
            now = self._read_at = self._monotonic()
            self._due_at = now + self._refresh_s
            self._failures = 0
