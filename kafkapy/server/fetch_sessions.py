"""Incremental fetch sessions (KIP-227): what a consumer asks for is kept here, so that it sends only changes.

Source: kafka.server.FetchSession and FetchManager. A session belongs to one connection's consumer in practice,
but Kafka lets any connection name it, so every session has a lock of its own state: the epoch.
"""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from kafkapy.errors import Errors

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_INT32 = 2**31 - 1
# Of all sessions together. Kafka counts sessions only, and a request can open one with a million partitions, which
# take 300 MB here.
MAX_PARTITIONS = 1_000_000

Key = tuple[Any, int]  # (topic id from Fetch v13 on, topic name before) and partition


class FetchPartition:
    """What a consumer wants of one partition, and what it was told last."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "max_bytes",
        "told_high_watermark",
        "told_log_start",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str | None,
        topic_id: bytes,
        index: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.told_high_watermark = -1
        self.told_log_start = -1

    def update(self, asked: FetchPartition) -> None:
        """Takes over what the consumer asks now; what it was told stays."""
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch

    def news(self, read: Any) -> bool:
        """Whether `read` must be in an incremental response; remembers what the consumer is told by it."""
        must = bool(read.records is not None and len(read.records) > 0) or read.diverging is not None
        if self.told_high_watermark != read.high_watermark:
            self.told_high_watermark = read.high_watermark
            must = True
        if self.told_log_start != read.log_start_offset:
            self.told_log_start = read.log_start_offset
            must = True
        if read.error_code != Errors.NONE:
            self.told_high_watermark = -1  # the first answer after the error is news again
            must = True
        return must


class FetchSession:
    """Partitions in the order in which they are read; one with data goes to the end, so that all get their turn."""

    __slots__ = ("created", "epoch", "id", "last_used", "lock", "partitions", "uses_topic_ids")

    def __init__(
        self, session_id: int, partitions: OrderedDict[Key, FetchPartition], uses_topic_ids: bool, now: float
    ) -> None:
        self.id = session_id
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids
        self.epoch = INITIAL_EPOCH + 1
        self.lock = threading.Lock()  # of epoch and partitions; taken after the cache's, where both are
        self.created = now
        self.last_used = now


class FetchContext:
    """One fetch: the partitions to read, and which of the answers go into the response."""

    __slots__ = ("_cache", "_epoch", "_session", "_uses_topic_ids", "error_code", "partitions")

    def __init__(
        self,
        partitions: Iterable[FetchPartition],
        *,
        error_code: int = Errors.NONE,
        session: FetchSession | None = None,
        cache: FetchSessionCache | None = None,
        uses_topic_ids: bool = False,
    ) -> None:
        self.partitions = list(partitions)
        self.error_code = error_code
        self._session = session
        self._epoch = session.epoch if session is not None else INITIAL_EPOCH
        self._cache = cache
        self._uses_topic_ids = uses_topic_ids

    def respond(self, reads: list[Any], now: float) -> tuple[int, int, list[tuple[FetchPartition, Any]]]:
        """(error code, session id, the answers to send), once a fetch."""
        pairs = list(zip(self.partitions, reads, strict=True))
        session = self._session
        if session is None:
            if self._cache is None:
                return self.error_code, NO_SESSION, pairs
            for asked, read in pairs:
                asked.told_high_watermark = -1 if read.error_code else read.high_watermark
                asked.told_log_start = read.log_start_offset
            return Errors.NONE, self._cache.create(self.partitions, self._uses_topic_ids, now), pairs
        told = []
        with session.lock:
            if session.epoch != self._epoch:  # another request took the session on while this one waited
                return Errors.INVALID_FETCH_SESSION_EPOCH, session.id, []
            for asked, read in pairs:
                if asked.news(read):
                    told.append((asked, read))
                    if read.records is not None and len(read.records) > 0:
                        key = (asked.topic_id if session.uses_topic_ids else asked.topic, asked.index)
                        if key in session.partitions:
                            session.partitions.move_to_end(key)
        return Errors.NONE, session.id, told


class FetchSessionCache:
    """At most `slots` sessions (`max.incremental.fetch.session.cache.slots`).

    A full cache gives up the session unused for longest if that is over `eviction_seconds`, else, among those
    older than that, the smallest one if the new one has more partitions. So does one with `max_partitions` in all
    sessions together. Who gets no session has its fetches answered in full.
    """

    def __init__(self, slots: int, eviction_seconds: float = 120.0, max_partitions: int = MAX_PARTITIONS) -> None:
        self.slots = slots
        self.max_partitions = max_partitions
        self.eviction_seconds = eviction_seconds
        self.evictions = 0
        self._lock = threading.Lock()
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the one unused for longest first
        self._held = 0  # partitions in all of them
        self._random = random.Random()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Partitions in all sessions."""
        return self._held

    def context(
        self,
        session_id: int,
        epoch: int,
        asked: list[FetchPartition],
        forgotten: list[Key],
        *,
        uses_topic_ids: bool,
        now: float,
    ) -> FetchContext:
        """What this request reads: a full fetch, an incremental one, or a session error (an empty context)."""
        with self._lock:
            if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
                if session_id in self._sessions:
                    self._drop(session_id)
                if epoch == FINAL_EPOCH:
                    return FetchContext(asked)
                return FetchContext(asked, cache=self, uses_topic_ids=uses_topic_ids)
            session = self._sessions.get(session_id)
            if session is None:
                return FetchContext([], error_code=Errors.FETCH_SESSION_ID_NOT_FOUND)
            if session.epoch != epoch:
                return FetchContext([], error_code=Errors.INVALID_FETCH_SESSION_EPOCH)
            if session.uses_topic_ids != uses_topic_ids:
                return FetchContext([], error_code=Errors.FETCH_SESSION_TOPIC_ID_ERROR)
            with session.lock:
                partitions = session.partitions
                before = len(partitions)
                for one in asked:
                    key = (one.topic_id if uses_topic_ids else one.topic, one.index)
                    known = partitions.get(key)
                    if known is None:
                        partitions[key] = one
                    else:
                        known.update(one)
                for key in forgotten:
                    partitions.pop(key, None)
                self._held += len(partitions) - before
                if not partitions:
                    self._drop(session_id)
                    return FetchContext([])
                if self._held > self.max_partitions:
                    self._drop(session_id)
                    return FetchContext([], error_code=Errors.FETCH_SESSION_ID_NOT_FOUND)
                session.last_used = now
                session.epoch = 1 if session.epoch == MAX_INT32 else session.epoch + 1
                self._sessions.move_to_end(session_id)
                return FetchContext(partitions.values(), session=session)

    def create(self, partitions: list[FetchPartition], uses_topic_ids: bool, now: float) -> int:
        """The id of a new session, or NO_SESSION where there is no room for one of this size."""
        with self._lock:
            keyed = OrderedDict(((one.topic_id if uses_topic_ids else one.topic, one.index), one) for one in partitions)
            if len(keyed) > self.max_partitions:
                return NO_SESSION
            while len(self._sessions) >= self.slots or self._held + len(keyed) > self.max_partitions:
                if not self._evict(len(keyed), now):
                    return NO_SESSION
            session_id = NO_SESSION
            while session_id == NO_SESSION or session_id in self._sessions:
                session_id = self._random.randint(1, MAX_INT32)
            self._held += len(keyed)
            self._sessions[session_id] = FetchSession(session_id, keyed, uses_topic_ids, now)
            return session_id

    def _evict(self, size: int, now: float) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now - oldest.last_used > self.eviction_seconds:
            victim = oldest
        else:
            settled = [one for one in self._sessions.values() if now - one.created > self.eviction_seconds]
            if not settled:
                return False
            victim = min(settled, key=lambda one: (len(one.partitions), one.id))
            if size < len(victim.partitions):
                return False
        self._drop(victim.id)
        self.evictions += 1
        return True

    def _drop(self, session_id: int) -> None:
        self._held -= len(self._sessions.pop(session_id).partitions)
