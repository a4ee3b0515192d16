"""Appends that may not run on a network thread: one queue a partition, drained by the disk pool.

An append goes here when the log's lock is taken, when it has to wait for the disk (a roll whose files are
not there yet, a flush that the topic asks for before the acknowledgement), or when the log directory stalls.
While anything is queued every later append to the partition queues behind it, so an inline append never
overtakes a pooled one. What has gathered by the time a pool thread comes is appended at once, and so a topic
with `flush.messages=1` gets group commit without further ado: many producers, one write, one fsync.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kafkapy.errors import Errors, KafkaError

log = logging.getLogger("kafkapy.replica.append_queue")

Sets = Sequence[memoryview]
Results = list[Any]
Done = Callable[[Results], None]

# One drain appends at most so much, so that a flood of queued sets does not become one endless write.
MAX_SETS_A_DRAIN = 1024


class AppendQueue:
    """The queue of one partition. `append` is the log's blocking append: sets in, one result a set out."""

    __slots__ = ("_append", "_draining", "_lock", "_pool", "_waiting")

    def __init__(self, pool: Any, append: Callable[[Sets], Results]) -> None:
        self._pool = pool
        self._append = append
        self._lock = threading.Lock()
        self._waiting: list[tuple[Sets, Done]] = []
        self._draining = False

    @property
    def busy(self) -> bool:
        """Whether an append is queued or under way, so that the next one must queue too."""
        return self._draining

    def put(self, sets: Sets, done: Done) -> None:
        """Queues `sets`; `done(results)` is called once, on a pool thread."""
        with self._lock:
            self._waiting.append((sets, done))
            if self._draining:
                return
            self._draining = True
        self._pool.submit(self._drain)

    def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._draining = False
                    return
                taken, count = 0, 0
                while taken < len(self._waiting) and count < MAX_SETS_A_DRAIN:
                    count += len(self._waiting[taken][0])
                    taken += 1
                entries, self._waiting = self._waiting[:taken], self._waiting[taken:]
            gathered = [one for sets, _ in entries for one in sets]
            try:
                results = self._append(gathered)
            except Exception as error:  # every waiting producer needs its answer, whatever went wrong
                verdict = (
                    error if isinstance(error, KafkaError) else KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(error))
                )
                results = [verdict] * len(gathered)
            start = 0
            for sets, done in entries:
                try:
                    done(results[start : start + len(sets)])
                except Exception:  # the others wait for theirs, and the queue must not stay taken for ever
                    log.exception("the answer to a pooled append failed")
                start += len(sets)
