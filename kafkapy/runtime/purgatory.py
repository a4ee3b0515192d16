"""Operations that wait for a condition or a time-out without a thread: fetch min.bytes, acks=all, join, sync.

As Kafka's DelayedOperationPurgatory, with two differences: an operation leaves all its watch lists when it
completes (so quiet keys cannot pile up dead ones), and `try_complete` is a question only; the completion
is made for it, exactly once, by whoever gets the answer yes, or by the timer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable, Iterable

from kafkapy.runtime.timer import Timer, TimerEntry

log = logging.getLogger(__name__)


class DelayedOperation:
    """Base class: subclasses say when they are complete and what then happens.

    `try_complete` may be called by any thread, but by one at a time. `on_complete` is called exactly once,
    `on_expire` after it if time ran out first. Both run on the thread that completed it: keep them short.
    """

    __slots__ = ("_again", "_claim", "_entry", "_keys", "_purgatory", "_trying", "completed")

    def __init__(self) -> None:
        self.completed = False
        self._claim = threading.Lock()  # taken once, by whoever completes; never given back
        self._trying = threading.Lock()
        self._again = False
        self._keys: tuple[Hashable, ...] = ()
        self._purgatory: Purgatory | None = None
        self._entry: TimerEntry | None = None

    def try_complete(self) -> bool:
        """Whether the condition holds now."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """What is done once: the answer."""
        raise NotImplementedError

    def on_expire(self) -> None:
        """What is done besides when the time-out came first (counting it, for instance)."""

    def force_complete(self) -> bool:
        """Completes now whatever the condition says. True if this call did it, False if it was done before."""
        if not self._claim.acquire(blocking=False):
            return False
        self.completed = True
        entry = self._entry
        if entry is not None:
            entry.cancel()
        purgatory = self._purgatory
        if purgatory is not None:
            purgatory._forget(self)
        self.on_complete()
        return True

    def check(self) -> bool:
        """Asks `try_complete` and completes on yes. True if this call completed it.

        A thread that finds another one asking must not go away unheard: the other may have looked before
        this thread's news. So it leaves a note (`_again`) first and then tries the lock. The one that asks
        clears the note before it looks, and reads it after it let go of the lock: a note left before the
        look is answered by that look, one left later is seen, and if it is left even after that last
        reading, the lock was free and the thread that left it got it.
        """
        while not self.completed:
            self._again = True
            if not self._trying.acquire(blocking=False):
                return False
            try:
                self._again = False
                ready = self.try_complete()
            finally:
                self._trying.release()
            if ready:
                return self.force_complete()
            if not self._again:
                return False
        return False

    def _expire(self) -> None:
        if self.force_complete():
            self.on_expire()


class Purgatory:
    """Watches operations by keys (a topic partition, a group, a member) and completes them in time."""

    def __init__(self, name: str, timer: Timer) -> None:
        self.name = name
        self._timer = timer
        self._lock = threading.Lock()
        # Per key an insertion-ordered set, so that the first who waits is the first to be asked.
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._delayed = 0
        self._watched = 0

    @property
    def delayed(self) -> int:
        """Operations that wait (Kafka's NumDelayedOperations)."""
        return self._delayed

    @property
    def watched(self) -> int:
        """Entries in all watch lists: an operation with n keys counts n times (Kafka's PurgatorySize)."""
        return self._watched

    @property
    def keys(self) -> int:
        """Keys with at least one operation."""
        return len(self._watchers)

    def try_complete_else_watch(self, op: DelayedOperation, timeout_s: float, keys: Iterable[Hashable]) -> bool:
        """Completes `op` now if it can be; otherwise it waits under `keys` for `check`, at most `timeout_s`.

        True if this call completed it. Whoever changes what the condition looks at must change it first and
        then call `check(key)`.
        """
        return op.check() or self.watch(op, timeout_s, keys)

    def watch(self, op: DelayedOperation, timeout_s: float, keys: Iterable[Hashable]) -> bool:
        """As `try_complete_else_watch`, of an operation whose condition did not hold a moment ago.

        Between that look and the watching news may be missed, therefore it is asked after it is watched.
        """
        self._watch(op, tuple(dict.fromkeys(keys)))
        if op.check():
            return True
        if not op.completed:
            op._entry = entry = self._timer.schedule(timeout_s, op._expire)
            if op.completed:  # it may have looked for the entry before it was there
                entry.cancel()
        return False

    def check(self, key: Hashable) -> int:
        """Asks the operations under `key` whether they can complete now; returns how many this call completed."""
        # Looking without the lock misses only an operation that is being added right now, and that one asks
        # its own condition after it was added, which is after the change that this call reports.
        if key not in self._watchers:
            return 0
        with self._lock:
            operations = list(self._watchers.get(key, ()))
        completed = 0
        for op in operations:
            try:
                completed += op.check()
            except Exception:
                log.exception("an operation in the %s purgatory failed under the key %r", self.name, key)
        return completed

    def complete_all(self, key: Hashable) -> int:
        """Completes all operations under `key` whatever their conditions say (a partition moved, a stop)."""
        with self._lock:
            operations = list(self._watchers.get(key, ()))
        return sum(op.force_complete() for op in operations)

    def _watch(self, op: DelayedOperation, keys: tuple[Hashable, ...]) -> None:
        # Completion sets `completed`, then reads `_purgatory` and takes the lock to remove. Here `_purgatory`
        # is set first and `completed` is read under the lock: so either we see it completed and add nothing,
        # or the removal comes after us and finds everything.
        op._purgatory = self
        with self._lock:
            if op.completed:
                return
            op._keys = keys
            for key in keys:
                watchers = self._watchers.get(key)
                if watchers is None:
                    watchers = self._watchers[key] = {}
                watchers[op] = None
            self._delayed += 1
            self._watched += len(keys)

    def _forget(self, op: DelayedOperation) -> None:
        with self._lock:
            keys, op._keys = op._keys, ()
            if not keys:
                return
            self._delayed -= 1
            self._watched -= len(keys)
            for key in keys:
                watchers = self._watchers[key]
                del watchers[op]
                if not watchers:
                    del self._watchers[key]
