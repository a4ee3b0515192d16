"""TLS contexts that can be replaced while their listener runs: new certificates without a restart."""

import os
import ssl
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from kafkapy.security.tls.certificates import Certificate
from kafkapy.security.tls.context import ENDPOINT_IDENTIFICATION, Stores, client_context_of, server_context_of
from kafkapy.security.tls.errors import StoreError
from kafkapy.security.tls.settings import flag
from kafkapy.security.tls.stores import KEY_STORE, TRUST_STORE, files_of
from kafkapy.security.tls.trial import TrialError, handshake

Mark = tuple[str, int, int, int]  # path, modification time in ns, size, inode


class _State(NamedTuple):
    settings: Mapping[str, Any]
    marks: list[Mark]
    stores: Stores
    context: ssl.SSLContext
    client: ssl.SSLContext | None


class ReloadableContext:
    """The context of a listener, or of the connections to other brokers, that follows its settings and files.

    `context` is the one for the next connection; connections that exist keep theirs. A change is taken as a whole or
    not at all: if anything is wrong with it, StoreError is raised, and `context` stays as it is. The rules are those of
    Kafka's SslFactory. Calls of `reload` must not overlap.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        make: Callable[[Mapping[str, Any], Stores], ssl.SSLContext] = server_context_of,
        *,
        between_brokers: bool = False,
    ) -> None:
        """Load the stores. Raises StoreError if they cannot be used.

        `make` is `server_context_of` or `client_context_of`. With `between_brokers`, for the listener that brokers use
        among themselves, the trust store must accept the key store's certificate, at the start and after each change,
        and there is a `client` context, too.
        """
        self._make = make
        self._between_brokers = between_brokers
        self._state = self._loaded(settings)
        if between_brokers:
            self._try_each_other(self._state, self._state)

    @property
    def context(self) -> ssl.SSLContext:
        """The context for new connections. Reading it is atomic."""
        return self._state.context

    @property
    def client(self) -> ssl.SSLContext | None:
        """With `between_brokers`: the context for connections to other brokers, from the same stores as `context`."""
        return self._state.client

    @property
    def certificate(self) -> Certificate | None:
        """The certificate that this side presents, None for a client without one."""
        keys = self._state.stores.keys
        return None if keys is None else keys.chain[0]

    def days_left(self, now: datetime | None = None) -> float | None:
        """Return the days until the first certificate of the chain that is presented expires, None without a chain."""
        keys = self._state.stores.keys
        return None if keys is None else min(one.days_left(now) for one in keys.chain)

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise StoreError if `reload` with these settings would fail. Nothing changes."""
        if not self._is_in_use(settings):
            self._acceptable(settings)

    def reload(self, settings: Mapping[str, Any] | None = None) -> bool:
        """Load the stores again, with `settings` in place of the present ones if given, and use them for new
        connections.

        Returns False if neither settings nor files have changed: then clients can go on to resume their sessions.
        Raises StoreError, and changes nothing, if the stores cannot be used; if the certificate has another name,
        unless `ssl.allow.dn.changes` or `ssl.allow.san.changes` is true; or for a store where there was none.
        """
        settings = self._state.settings if settings is None else settings
        if self._is_in_use(settings):
            return False
        self._state = self._acceptable(settings)
        return True

    def _is_in_use(self, settings: Mapping[str, Any]) -> bool:
        """Return True if neither the settings nor their files have changed since they were loaded. They are then not
        loaded again, as in Kafka: a certificate that has expired since must not refuse changes of other settings."""
        state = self._state
        return settings == state.settings and _marks(settings) == state.marks

    def _loaded(self, settings: Mapping[str, Any]) -> _State:
        settings = dict(settings)
        marks = _marks(settings)  # before the files are read, so that a change meanwhile is noticed the next time
        stores = Stores.load(settings)
        client = client_context_of(settings, stores) if self._between_brokers else None
        return _State(settings, marks, stores, self._make(settings, stores), client)

    def _acceptable(self, settings: Mapping[str, Any]) -> _State:
        """Return the state for these settings. Raises StoreError if Kafka would not change to it."""
        old, new = self._state, self._loaded(settings)
        if (old.stores.keys is None) != (new.stores.keys is None):
            word = "added to" if old.stores.keys is None else "removed from"
            raise StoreError(KEY_STORE, f"a key store cannot be {word} a running listener: restart the broker")
        if old.stores.trust is None and new.stores.trust is not None:
            raise StoreError(TRUST_STORE, "a trust store cannot be added to a running listener: restart the broker")
        if old.stores.keys is not None and new.stores.keys is not None:
            _check_names(old.stores.keys.chain[0], new.stores.keys.chain[0], settings)
        if self._between_brokers:
            self._try_each_other(old, new)
        return new

    def _try_each_other(self, old: _State, new: _State) -> None:
        """Raise StoreError unless brokers with the old and the new stores accept each other.

        An old certificate that has expired is left out: no peer accepts it any more, and it has to be replaced.
        """
        if old.stores.keys is None or new.stores.keys is None:
            return
        if old.stores.keys.chain[0].days_left() < 0:
            old = new
        for server, client, words in ((old, new, "present"), (new, old, "new")):
            try:
                handshake(
                    server.context, client_context_of({**client.settings, ENDPOINT_IDENTIFICATION: ""}, client.stores)
                )
            except TrialError as error:
                reason = f"brokers could not connect to each other with it ({error})"
                if server is not client:
                    reason = f"brokers could not connect to each other while it changes: with the {words} key store "
                    reason += f"of the listener, {error}"
                raise StoreError(
                    KEY_STORE, f"{reason}; {TRUST_STORE} must trust the certificates of all brokers"
                ) from None


def _marks(settings: Mapping[str, Any]) -> list[Mark]:
    """Return a Mark of each file that exists, which differs from one version of the file to the next."""
    marks = []
    for path in files_of(settings):
        try:
            found = os.stat(path)
        except OSError:
            continue  # loading it says what is wrong
        marks.append((path, found.st_mtime_ns, found.st_size, found.st_ino))
    return marks


def _check_names(old: Certificate, new: Certificate, settings: Mapping[str, Any]) -> None:
    """Raise StoreError if the new certificate has another subject, or lacks an alternative name of the old one."""
    if not flag(settings, "ssl.allow.dn.changes") and _plain(new.subject) != _plain(old.subject):
        raise StoreError(
            KEY_STORE,
            f"the new certificate is for {new.subject}, the present one for {old.subject}: set "
            "ssl.allow.dn.changes=true in the broker's file to allow this",
        )
    missing = set(old.alternative_names) - set(new.alternative_names)
    if missing and not flag(settings, "ssl.allow.san.changes"):
        names = ", ".join(f"{kind} {name}" for kind, name in sorted(missing))
        raise StoreError(
            KEY_STORE,
            f"the new certificate lacks names of the present one ({names}): set ssl.allow.san.changes=true in the "
            "broker's file to allow this",
        )


def _plain(name: str) -> str:
    """Return a name for comparison: case and repeated spaces do not matter."""
    return " ".join(name.split()).lower()
