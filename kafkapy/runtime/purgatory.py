"""Delayed operations that wait for a condition or a time-out without a thread, such as a fetch with min.bytes.

This is like Kafka's DelayedOperationPurgatory, with two differences. A completed operation leaves all its watch lists
at once, so completed operations cannot accumulate under idle keys. And `try_complete` only tests the condition: the
thread that gets True, or the timer, then completes the operation exactly once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable, Iterable

from kafkapy.runtime.timer import Timer, TimerEntry

log = logging.getLogger(__name__)


class DelayedOperation:
    """The base class of delayed operations. Subclasses define the condition (`try_complete`) and the work on completion
    (`on_complete`).

    Any thread may call `try_complete`, but only one at a time. `on_complete` is called exactly once, and `on_expire`
    after it if the time-out came first. Both run on the completing thread, so they must be short.
    """

    __slots__ = ("_claim", "_entry", "_keys", "_purgatory", "_recheck", "_trying", "completed")

    def __init__(self) -> None:
        self.completed = False
        self._claim = threading.Lock()  # acquired once, by the completing thread, and never released
        self._trying = threading.Lock()
        self._recheck = False
        self._keys: tuple[Hashable, ...] = ()
        self._purgatory: Purgatory | None = None
        self._entry: TimerEntry | None = None

    def try_complete(self) -> bool:
        """Return True if the condition of the operation holds now. This only tests; it does not complete the
        operation."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Do the operation's work on completion, for example send the response."""
        raise NotImplementedError

    def on_expire(self) -> None:
        """Do additional work after completion by time-out, such as counting time-outs."""

    def force_complete(self) -> bool:
        """Complete the operation now, even if its condition does not hold. Return True if this call completed the
        operation, False if it was already complete."""
        if not self._claim.acquire(blocking=False):
            return False
        self.completed = True
        entry = self._entry
        if entry is not None:
            entry.cancel()
        purgatory = self._purgatory
        if purgatory is not None:
            purgatory._unwatch(self)
        self.on_complete()
        return True

    def check(self) -> bool:
        """Call `try_complete`, and complete the operation if it returns True. Return True if this call completed the
        operation.

        If another thread T is in `try_complete`, T may have tested the condition before this thread's change. So this
        thread first sets `_recheck`, then tries the lock. T clears `_recheck` before it tests, and reads it after it
        has released the lock. If `_recheck` is set before T clears it, T's test sees the change. If it is set later but
        before T reads it, T tests again. If it is set after T has read it, the lock is free, and this thread gets it.
        """
        while not self.completed:
            self._recheck = True
            if not self._trying.acquire(blocking=False):
                return False
            try:
                self._recheck = False
                ready = self.try_complete()
            finally:
                self._trying.release()
            if ready:
                return self.force_complete()
            if not self._recheck:
                return False
        return False

    def _expire(self) -> None:
        if self.force_complete():
            self.on_expire()


class Purgatory:
    """Holds delayed operations by keys (a partition, a group, a member) until they complete or time out."""

    def __init__(self, name: str, timer: Timer) -> None:
        self.name = name
        self._timer = timer
        self._lock = threading.Lock()
        # By key: an insertion-ordered set, so that the operation that waits longest is tested first.
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}

    @property
    def delayed(self) -> int:
        """The number of operations that wait here (Kafka's NumDelayedOperations)."""
        with self._lock:
            return len({op for operations in self._watchers.values() for op in operations})

    @property
    def watched(self) -> int:
        """The number of entries in all watch lists; an operation with n keys counts n times (Kafka's PurgatorySize)."""
        with self._lock:
            return sum(map(len, self._watchers.values()))

    @property
    def keys(self) -> int:
        """The number of keys under which at least one operation waits."""
        return len(self._watchers)

    def watch(self, op: DelayedOperation, timeout_s: float, keys: Iterable[Hashable]) -> bool:
        """Watch `op` under `keys` for at most `timeout_s` seconds. Return True if this call completed the operation.

        Call this after `op.check()` returned False. A change between that test and the watching would be missed, so the
        condition is tested again once the operation is watched. A thread that changes the data that the condition
        depends on must first make the change, then call `check(key)`.
        """
        # A race with completion: it sets `completed`, then reads `_purgatory`, and takes the lock to remove the
        # operation. This method sets `_purgatory` first and reads `completed` under the lock. So either it sees that
        # the operation is complete and adds nothing, or the removal comes later and finds all entries.
        op._purgatory = self
        with self._lock:
            if not op.completed:
                op._keys = tuple(dict.fromkeys(keys))
                for key in op._keys:
                    watchers = self._watchers.get(key)
                    if watchers is None:
                        self._watchers[key] = {op: None}
                    else:
                        watchers[op] = None
        if op.check():
            return True
        if not op.completed:
            op._entry = entry = self._timer.schedule(timeout_s, op._expire)
            if op.completed:  # it may have completed before the entry was set, and so not cancelled it
                entry.cancel()
        return False

    def check(self, key: Hashable) -> int:
        """Call `check` on all operations under `key`. Return the number of operations that this call completed."""
        # Without the lock this can only miss an operation that is being added right now. That operation tests its
        # condition after it was added, which is after the change that this call reports.
        operations = self._watchers.get(key)
        if operations is None:
            return 0
        completed = 0
        for op in list(operations):  # copying the keys is atomic
            try:
                completed += op.check()
            except Exception:
                log.exception("an operation in the %s purgatory failed under the key %r", self.name, key)
        return completed

    def complete_all(self, key: Hashable) -> int:
        """Complete all operations under `key`, even if their conditions do not hold, for example because a partition
        has moved. Return the number of operations that this call completed."""
        with self._lock:
            operations = list(self._watchers.get(key, ()))
        return sum(op.force_complete() for op in operations)

    def _unwatch(self, op: DelayedOperation) -> None:
        with self._lock:
            keys, op._keys = op._keys, ()
            for key in keys:
                watchers = self._watchers[key]
                if len(watchers) > 1:
                    del watchers[op]
                else:
                    del self._watchers[key]
