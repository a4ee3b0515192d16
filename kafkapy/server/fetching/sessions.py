"""The cache of incremental fetch sessions (KIP-227). A session holds the partitions of a consumer or of a follower,
which sends only changes.

Source: kafka.server.FetchSession and FetchManager. In practice one connection uses a session, but Kafka lets any
connection name it, so each session has a lock.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from kafkapy.errors import Errors
from kafkapy.replica.hosted_partition import READ_UNCOMMITTED
from kafkapy.server.fetching.session import INITIAL_EPOCH, FetchPartition, FetchSession, Key

NO_SESSION = 0
FINAL_EPOCH = -1
MAX_INT32 = 2**31 - 1
# The limit for all sessions together. Kafka limits only the number of sessions, but one request can open a session with
# a million partitions, which take 400 MB here.
MAX_PARTITIONS = 1_000_000


class FetchContext:
    """One fetch request, with the partitions to read. Its method `respond` chooses the results that go into the
    response."""

    __slots__ = (
        "_answering",
        "_cache",
        "_epoch",
        "_is_follower",
        "_principal",
        "_uses_topic_ids",
        "error_code",
        "partitions",
        "session",
    )

    def __init__(
        self,
        partitions: list[FetchPartition],
        *,
        error_code: int = Errors.NONE,
        session: FetchSession | None = None,
        cache: FetchSessionCache | None = None,
        uses_topic_ids: bool = False,
        is_follower: bool = False,
        principal: str = "",
    ) -> None:
        self.partitions = partitions
        self.error_code = error_code
        self.session = session
        self._epoch = session.epoch if session is not None else INITIAL_EPOCH
        self._cache = cache
        self._uses_topic_ids = uses_topic_ids
        self._is_follower = is_follower
        self._principal = principal
        self._answering = False

    @property
    def is_empty(self) -> bool:
        """Return True if the fetch has no partitions and no session, so that there is nothing to wait for."""
        return self.session is None and not self.partitions

    @property
    def is_over(self) -> bool:
        """Return True if the fetch's session has ended, or if another request has continued the session since."""
        session = self.session
        return session is not None and (session.closed or session.epoch != self._epoch)

    def due_now(self, *, to_answer: bool = False) -> list[FetchPartition]:
        """Return the partitions of the fetch's session that may have something to send. `to_answer` is True for the
        read whose results go into the response.

        Return [] if the fetch is over, or after an earlier call with `to_answer`. In both cases the marks of changed
        partitions stay, for the request that has continued the session or for the next one.
        """
        session = self.session
        assert session is not None
        with session.lock:
            if self._answering or self.is_over:
                return []
            self._answering = to_answer
            return session.take()

    def has_news(self) -> bool:
        """Return True if the waiting fetch of a follower can be answered: a partition of its session has changed since
        the last call and has something to send, or the fetch is over."""
        session = self.session
        assert session is not None
        with session.lock:
            if self._answering or session.closed or session.epoch != self._epoch:
                return True  # what is marked stays, see `due_now`
            return bool(session.marked) and session.take_until_news()

    def open_no_session(self) -> None:
        """Have `respond` open no session for a full fetch. A session that the fetch continues stays."""
        self._cache = None

    def respond(self, reads: list[Any], now: float) -> tuple[int, int, list[tuple[FetchPartition, Any]]]:
        """Return (error code, session id, results to send) for a response, where `reads` has the result of reading each
        partition. The results to send are pairs (partition, result). Call this once per fetch."""
        pairs = list(zip(self.partitions, reads, strict=True))
        session = self.session
        if session is None:
            if self._cache is None:
                return self.error_code, NO_SESSION, pairs
            for asked, read in pairs:
                asked.sent_high_watermark = -1 if read.error_code else read.high_watermark
                asked.sent_log_start = read.log_start_offset
            return (
                Errors.NONE,
                self._cache.create(
                    self.partitions,
                    self._uses_topic_ids,
                    now,
                    is_follower=self._is_follower,
                    principal=self._principal,
                ),
                pairs,
            )
        to_send = []
        with session.lock:
            if session.epoch != self._epoch:  # another request continued the session while this one waited
                return Errors.INVALID_FETCH_SESSION_EPOCH, session.id, []
            for asked, read in pairs:
                if asked.news(read):
                    to_send.append((asked, read))
                    if read.records is not None and read.records.length > 0:
                        session.to_the_end(asked)
                if asked.has_nothing_to_send(read, session.isolation):
                    session.due.discard(asked)
        return Errors.NONE, session.id, to_send

    def would_send(self, reads: list[Any]) -> list[tuple[FetchPartition, Any]]:
        """Return the results to send that `respond` would return, and change nothing."""
        pairs = list(zip(self.partitions, reads, strict=True))
        if self.session is None:
            return pairs
        with self.session.lock:
            return [] if self.is_over else [(asked, read) for asked, read in pairs if asked.is_news(read)]

    def leave_unanswered(self) -> tuple[int, int]:
        """Return (error code, session id) for a response without results, because the consumer is throttled. All that
        was read stays due for the session's next fetch. A full fetch opens no session."""
        session = self.session
        if session is None:
            return Errors.NONE, NO_SESSION
        return (Errors.INVALID_FETCH_SESSION_EPOCH if self.is_over else Errors.NONE), session.id


class FetchSessionCache:
    """Holds at most `slots` fetch sessions (max.incremental.fetch.session.cache.slots), with at most `max_partitions`
    in all.

    When the cache is full, a new session replaces the least recently used one if that was not used for more than
    `eviction_seconds`. Otherwise it replaces the smallest session that was created more than `eviction_seconds` ago, if
    the new one has more partitions. A follower's session replaces a consumer's session of any age and size, and the
    session of another follower by the rules above; a consumer's replaces a follower's only if that was not used.
    Without a session, fetches are full fetches.

    Unlike in Kafka, no principal can take all the room: if no other session may be replaced, a consumer's new session
    replaces the least recently used one of the principal that has most of what is used up (sessions or partitions), if
    that is at least twice as much as the new session's principal has.

    `wake(session)` is called without a lock when a fetch that waits in the session may be able to complete.
    """

    def __init__(
        self,
        slots: int,
        eviction_seconds: float = 120.0,
        max_partitions: int = MAX_PARTITIONS,
        wake: Callable[[FetchSession], object] = lambda _: None,
    ) -> None:
        self.slots = slots
        self.max_partitions = max_partitions
        self.eviction_seconds = eviction_seconds
        self.evictions = 0
        self._wake = wake
        self._lock = threading.Lock()
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first
        self._ended: list[FetchSession] = []  # ended sessions whose waiting fetches must still be woken
        self._held = 0  # partitions in all sessions
        self._random = random.Random()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        with self._lock:
            return iter(list(self._sessions.values()))

    @property
    def partitions(self) -> int:
        """The number of partitions in all sessions."""
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
        isolation: int = READ_UNCOMMITTED,
        rights: Hashable = None,
        everything: bool = False,
        is_follower: bool = False,
        principal: str = "",
        refresh_s: float = float("inf"),
    ) -> FetchContext:
        """Return the context of a fetch request: of a full fetch, of an incremental fetch, or of a session error
        (without partitions).

        `everything`: an incremental fetch reads all partitions of its session, not only the due ones. It also reads all
        of them if `isolation`, or `rights` (the value of `admission.rights_of`), differs from that of the session's
        fetch before, and if no fetch has read all of them for `refresh_s` seconds.
        """
        with self._lock:
            if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
                self._drop(session_id)
                cache = None if epoch == FINAL_EPOCH else self
                context = FetchContext(
                    asked, cache=cache, uses_topic_ids=uses_topic_ids, is_follower=is_follower, principal=principal
                )
            else:
                session = self._sessions.get(session_id)
                if session is None:
                    return FetchContext([], error_code=Errors.FETCH_SESSION_ID_NOT_FOUND)
                if session.epoch != epoch:
                    return FetchContext([], error_code=Errors.INVALID_FETCH_SESSION_EPOCH)
                if session.uses_topic_ids != uses_topic_ids:
                    return FetchContext([], error_code=Errors.FETCH_SESSION_TOPIC_ID_ERROR)
                context = self._continue_session(
                    session, asked, forgotten, now, isolation, rights, everything, refresh_s
                )
        if self._ended:
            self._wake_ended()
        return context

    def _continue_session(
        self,
        session: FetchSession,
        asked: list[FetchPartition],
        forgotten: list[Key],
        now: float,
        isolation: int,
        rights: Hashable,
        everything: bool,
        refresh_s: float,
    ) -> FetchContext:
        with session.lock:
            partitions = session.partitions
            before = len(partitions)
            for one in asked:
                session.add(one.key(session.uses_topic_ids), one)
            for key in forgotten:
                session.forget(key)
            self._held += len(partitions) - before
            if partitions and self._held <= self.max_partitions:
                session.last_used = now
                session.epoch = 1 if session.epoch == MAX_INT32 else session.epoch + 1
                self._sessions.move_to_end(session.id)
                if (
                    everything
                    or now - session.read_all_at >= refresh_s
                    or isolation != session.isolation
                    or rights != session.rights
                ):
                    session.isolation, session.rights, session.read_all_at = isolation, rights, now
                    session.due.update(partitions.values())
                return FetchContext(session.take(), session=session)
        self._drop(session.id)
        return FetchContext([], error_code=Errors.FETCH_SESSION_ID_NOT_FOUND if partitions else Errors.NONE)

    def create(
        self,
        partitions: list[FetchPartition],
        uses_topic_ids: bool,
        now: float,
        *,
        is_follower: bool = False,
        principal: str = "",
    ) -> int:
        """Create a fetch session and return its id. Return NO_SESSION if the cache has no room for that many
        partitions."""
        with self._lock:
            session_id = self._create(partitions, uses_topic_ids, now, is_follower, principal)
        if self._ended:
            self._wake_ended()
        return session_id

    def _create(
        self, partitions: list[FetchPartition], uses_topic_ids: bool, now: float, is_follower: bool, principal: str
    ) -> int:
        keyed = {one.key(uses_topic_ids): one for one in partitions}
        if len(keyed) > self.max_partitions:
            return NO_SESSION
        while len(self._sessions) >= self.slots or self._held + len(keyed) > self.max_partitions:
            if not self._evict(len(keyed), now, is_follower) and not self._evict_greedy(len(keyed), principal):
                return NO_SESSION
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randint(1, MAX_INT32)
        self._held += len(keyed)
        session = FetchSession(session_id, keyed, uses_topic_ids, now, self._wake, is_follower)
        session.principal = principal
        self._sessions[session_id] = session
        return session_id

    def _evict(self, size: int, now: float, for_follower: bool) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now - oldest.last_used > self.eviction_seconds:
            victim = oldest
        else:
            old = [one for one in self._sessions.values() if now - one.created > self.eviction_seconds]
            if for_follower:
                evictable = [one for one in self._sessions.values() if not one.is_follower] or old
            else:
                evictable = [one for one in old if not one.is_follower]
            if not evictable:
                return False
            victim = min(evictable, key=lambda one: (len(one.partitions), one.id))
            if size <= len(victim.partitions) and not (for_follower and not victim.is_follower):
                return False
        self._drop(victim.id)
        self.evictions += 1
        return True

    def _evict_greedy(self, size: int, principal: str) -> bool:
        """Make room for a session of `principal` with `size` partitions, if another principal has much more."""
        no_slot = len(self._sessions) >= self.slots
        used: Counter[str] = Counter()
        for session in self._sessions.values():
            if not session.is_follower:
                used[session.principal] += 1 if no_slot else len(session.partitions)
        if not used:
            return False
        (greediest, most), *_ = used.most_common(1)
        if greediest == principal or 2 * (used[principal] + (1 if no_slot else size)) > most:
            return False
        victim = next(one for one in self._sessions.values() if one.principal == greediest and not one.is_follower)
        self._drop(victim.id)
        self.evictions += 1
        return True

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            with session.lock:
                session.close()
            self._held -= len(session.partitions)
            self._ended.append(session)

    def _wake_ended(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        for session in ended:
            self._wake(session)
