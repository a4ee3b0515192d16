"""The follower's side of an incremental fetch session: a request names only partitions that changed (KIP-227).

Source: org.apache.kafka.clients.FetchSessionHandler.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kafkapy._ext.fetched import encode_fetch_request
from kafkapy.errors import Errors
from kafkapy.replica.fetch_state import FetchState, Position
from kafkapy.replica.links import Encoded

IDS_FROM = 13  # from this version on Fetch names topics by their ids (KIP-516)
_LAST_EPOCH = 0x7FFFFFFF

Key = tuple[bytes | str, int]  # topic id or name, and partition index


class FetchSettings(NamedTuple):
    """Settings of a follower's fetches; the names in comments are Kafka's."""

    partition_bytes: int = 1 << 20  # replica.fetch.max.bytes
    response_bytes: int = 10 << 20  # replica.fetch.response.max.bytes
    min_bytes: int = 1  # replica.fetch.min.bytes
    wait_ms: int = 500  # replica.fetch.wait.max.ms
    backoff_s: float = 1.0  # replica.fetch.backoff.ms
    timeout_s: float = 30.0  # replica.socket.timeout.ms


class FetchSession:
    """The session of one connection, and what the leader knows of its partitions. Not safe for several threads.

    `sent` has, for each partition of the session, the state and the position of the last request that named it.
    """

    def __init__(self) -> None:
        self.sent: dict[Key, tuple[FetchState, Position]] = {}
        self._by_id = False
        self._id = 0
        self._epoch = 0  # of the next request; 0 opens a new session, and closes the one with this id

    @property
    def is_new(self) -> bool:
        """Return True if the next request opens a session, and so has to name all partitions."""
        return self._epoch == 0

    def begin(self, version: int) -> None:
        """Prepare for a request of this version. A session that used topic names is not continued with topic ids."""
        by_id = version >= IDS_FROM
        if by_id != self._by_id:
            self._by_id = by_id
            self.reset()

    def key(self, state: FetchState) -> Key:
        """Return how requests and responses of this session name the partition."""
        return (state.topic_id if self._by_id else state.partition.topic), state.partition.index

    def reset(self, *, forget_id: bool = False) -> None:
        """Have the next request open a new session. It closes the present one, unless the leader does not know it."""
        self._epoch = 0
        self.sent = {}
        if forget_id:
            self._id = 0

    def request(
        self,
        version: int,
        changed: Iterable[FetchState],
        gone: Iterable[FetchState],
        settings: FetchSettings,
        broker_id: int,
        broker_epoch: int,
    ) -> Encoded:
        """Return the next Fetch request, and note in `sent` what it says.

        Adds the partitions `changed` whose position is not the one that the leader knows, and takes those in `gone` out
        of the session.
        """
        added: dict[bytes | str, list[tuple[int, Position]]] = {}
        sent = self.sent
        for state in changed:
            key, position = self.key(state), state.ahead or state.position
            if sent.get(key) != (state, position):
                sent[key] = state, position
                added.setdefault(key[0], []).append((key[1], position))
        forgotten: dict[bytes | str, list[int]] = {}
        for state in gone:
            key = self.key(state)
            known = sent.get(key)
            if known is not None and known[0] is state:  # a later role of the partition may have taken its place
                del sent[key]
                if self._epoch:
                    forgotten.setdefault(key[0], []).append(key[1])
        request = encode_fetch_request(
            version,
            broker_id,
            broker_epoch,
            settings.wait_ms,
            settings.min_bytes,
            settings.response_bytes,
            settings.partition_bytes,
            self._id,
            self._epoch,
            added,
            forgotten,
        )
        return Encoded((request,))

    def answered(self, session_id: int) -> None:
        """Continue the session after a response without an error. Session id 0: the leader keeps no session."""
        if session_id == 0:
            self.reset(forget_id=True)
        else:
            self._id = session_id
            self._epoch = self._epoch % _LAST_EPOCH + 1

    def refused(self, error_code: int) -> None:
        """Have the next request open a new session, after a response with an error for the whole request."""
        self.reset(forget_id=error_code == Errors.FETCH_SESSION_ID_NOT_FOUND)
