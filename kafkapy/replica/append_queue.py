"""Queues for appends that must not run on a network thread. Each partition has a queue; the threads of a pool empty it.

An append is queued when another thread holds the log's lock, when the append has to wait for the disk (for a roll, or
for a flush that the topic wants before the acknowledgement), or when the log directory is slow. While an append is
queued or being written, every later append to the partition is queued behind it, so their order stays. A pool thread
writes all queued sets in one append.

Where acknowledgements wait for a flush (`flush.messages=1`) this is group commit. While one thread flushes, another
thread writes the records that arrive, and the next flush covers all of them. So a producer waits at most for the flush
that was in progress when its records were written, and for the next one.

Long work (records of old formats, which are converted) is done by a pool of its own, in the order of the queue.
Otherwise a few such appends could keep all threads of the pool busy for seconds while appends to other partitions wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from kafkapy.errors import Errors, KafkaError
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.threads import NoThread

log = logging.getLogger("kafkapy.replica.append_queue")

Sets = Sequence[Any]
Results = list[Any]
Done = Callable[[Results], None]
Entry = tuple[Sets, Done]

# The most record sets that one write takes, so that a flood of queued sets does not become one endless write.
MAX_SETS_A_WRITE = 1024


class AppendQueue:
    """The queue of the appends to one partition.

    `write(sets, long)` appends record sets to the log and may block. It returns a result for each set, and whether the
    sets need a flush. If so, `flush()` is called before the callbacks get the results. If `write` or `flush` raises,
    the error is the result of each set.
    """

    __slots__ = ("_flush", "_flushing", "_lock", "_long_pool", "_pool", "_waiting", "_write", "_written", "busy")

    def __init__(
        self,
        pool: Any,
        write: Callable[[Sets, bool], tuple[Results, bool]],
        flush: Callable[[], object],
        long_pool: Any = None,
    ) -> None:
        self._pool = pool
        self._long_pool = pool if long_pool is None else long_pool
        self._write = write
        self._flush = flush
        self._lock = threading.Lock()
        self._waiting: list[tuple[Entry, bool]] = []  # and whether the entry is long work
        self._written: list[tuple[Entry, Results]] = []  # written, but not flushed yet
        self.busy = False  # an append is queued or being written, so that the next one has to be queued too
        self._flushing = False

    def put(self, sets: Sets, done: Done, *, long: bool = False) -> None:
        """Queue record sets to be written, and call `done(results)` once, on another thread. `long`: use the pool for
        long work.

        That thread is one of the pool, or one whose `put` finds that the pool cannot write what is queued. Raises
        KafkaError, and does not call `done`, if this call finds that the pool was stopped or has no thread.
        """
        with self._lock:
            self._waiting.append(((sets, done), long))
            if self.busy:
                return
            self.busy = True
        try:
            self._submit(long)
        except (PoolStopped, NoThread) as error:  # no thread will write this append and those after it
            refusal = _refusal(error)
            self._refuse_waiting(refusal, but=1)
            raise refusal from error

    def end(self, why: KafkaError) -> None:
        """Refuse all later appends with the error `why`, because this broker does not lead the partition any more.

        Drops the references to the partition, which refers to this queue, unless an append in progress needs them.
        """

        def refuse(*_: object) -> NoReturn:
            raise KafkaError(why.code, why.message)

        with self._lock:
            if not (self.busy or self._flushing or self._written):
                self._write = self._flush = refuse

    def put_written(self, sets: Sets, results: Results, done: Done) -> None:
        """Call `done(results)` after the next flush. The caller has already written `sets`, with these results.

        Raises KafkaError, and does not call `done`, if the pool was stopped or has no thread.
        """
        entry = ((sets, done), results)
        with self._lock:
            self._written.append(entry)
        try:
            self._pool.submit(self._flush_unless_another_does)
        except (PoolStopped, NoThread) as error:
            with self._lock:
                if self._flushing or not any(one is entry for one in self._written):
                    return  # the thread that is flushing calls `done`
                self._written = [one for one in self._written if one is not entry]
            raise _refusal(error) from error

    def _submit(self, long: bool) -> None:
        (self._long_pool if long else self._pool).submit(self._run, long)

    def _run(self, long: bool) -> None:
        while self._write_next(long):
            if self._may_flush():
                self._pass_on()
                self._flush_all()
                return

    def _write_next(self, long: bool) -> bool:
        """Write the next queued appends together. Return False if there are none for this thread to write."""
        try:
            taken = self._next(long)
            if taken is not None:
                self._write_together(*taken)
        except MemoryError:  # this thread writes no more, so nothing may wait for it
            self._refuse_waiting(KafkaError(Errors.KAFKA_STORAGE_ERROR, "out of memory"))
            raise
        return taken is not None

    def _refuse_waiting(self, refusal: KafkaError, but: int = 0) -> None:
        """Empty the queue, and call the callbacks of all queued appends with the error `refusal`.

        The first `but` appends are left out, because their callers get the error from `put`.
        """
        with self._lock:
            self.busy = False
            waiting, self._waiting = self._waiting, []
        _give_out([(entry, [refusal] * len(entry[0])) for entry, _ in waiting[but:]])

    def _flush_unless_another_does(self) -> None:
        if self._may_flush():
            self._flush_all()

    def _may_flush(self) -> bool:
        """Return True if this thread should flush, and mark it as the thread that flushes.

        Return False if nothing needs a flush, or another thread is flushing and will also cover what was written
        meanwhile.
        """
        with self._lock:
            if self._flushing or not self._written:
                return False
            self._flushing = True
            return True

    def _pass_on(self) -> None:
        """Have another pool thread write the queued appends, because this thread is going to flush."""
        with self._lock:
            self.busy = waits = bool(self._waiting)
            long = waits and self._waiting[0][1]
        # Not `if self.busy`: if the queue was empty, another thread's `put` may have set `busy` and submitted its own
        # write after the lock was released. This thread would then submit a second writer.
        if waits:
            try:
                self._submit(long)
            except (PoolStopped, NoThread):  # no other thread will write the queued appends
                while self._write_next(long):
                    pass

    def _next(self, long: bool) -> tuple[list[Entry], bool] | None:
        """Remove the appends to write together next from the queue; return (appends, whether they are long work).

        Return None if the queue is empty, or if a thread of the other pool will write the next appends.
        """
        with self._lock:
            if not self._waiting or self._waiting[0][1] == long:
                return self._take()
        try:
            self._submit(not long)
        except (PoolStopped, NoThread):  # no other thread will write them
            with self._lock:
                return self._take()
        return None

    def _take(self) -> tuple[list[Entry], bool] | None:
        """Remove the first appends that are all long work, or all not, from the queue; return (appends, whether they
        are long).

        Return None if the queue is empty. Called with the lock held.
        """
        self.busy = bool(self._waiting)
        if not self._waiting:
            return None
        long = self._waiting[0][1]
        taken, count = 0, 0
        while taken < len(self._waiting) and count < MAX_SETS_A_WRITE and self._waiting[taken][1] == long:
            count += len(self._waiting[taken][0][0])
            taken += 1
        entries = [entry for entry, _ in self._waiting[:taken]]
        self._waiting = self._waiting[taken:]
        return entries, long

    def _write_together(self, entries: list[Entry], long: bool) -> None:
        to_flush = False
        try:
            results, to_flush = self._write([one for sets, _ in entries for one in sets], long)
        except Exception as error:  # every producer needs a response, after any error
            results = [_verdict(error)] * sum(len(sets) for sets, _ in entries)
        answers = []
        start = 0
        for sets, done in entries:
            answers.append(((sets, done), results[start : start + len(sets)]))
            start += len(sets)
        if to_flush:
            with self._lock:
                self._written += answers
        else:
            _give_out(answers)

    def _flush_all(self) -> None:
        while True:
            with self._lock:
                answers, self._written = self._written, []
                self._flushing = bool(answers)
            if not answers:
                return
            try:
                self._flush()
            except Exception as error:
                verdict = _verdict(error)
                answers = [((sets, done), [verdict] * len(sets)) for (sets, done), _ in answers]
            _give_out(answers)


def _refusal(error: PoolStopped | NoThread) -> KafkaError:
    """Return the KafkaError for appends that no thread will write, because the pool was stopped or has no thread.

    Clients send the records again after this error.
    """
    code = Errors.NOT_LEADER_OR_FOLLOWER if isinstance(error, PoolStopped) else Errors.KAFKA_STORAGE_ERROR
    return KafkaError(code, str(error))


def _verdict(error: Exception) -> KafkaError:
    return error if isinstance(error, KafkaError) else KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(error))


def _give_out(answers: list[tuple[Entry, Results]]) -> None:
    for (_, done), results in answers:
        try:
            done(results)
        except Exception:  # the other callbacks have to be called, and the queue has to stay usable
            log.exception("the callback of a queued append failed")
