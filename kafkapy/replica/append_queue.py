"""Appends that may not run on a network thread: one queue a partition, drained by a pool of threads.

An append goes here when the log's lock is taken, when it has to wait for the disk (a roll whose files are
not there yet, a flush that the topic asks for before the acknowledgement), or when the log directory stalls.
While anything is queued every later append to the partition queues behind it, so an inline append never
overtakes a pooled one. What has gathered by the time a pool thread comes is written at once.

Where acknowledgements wait for a flush (`flush.messages=1`) this is group commit. What is written waits for one
flush; while that runs what arrives is written by another thread, and the next flush covers all of it. So a producer
waits for the flush that was under way when its records were written, at most, and for its own.

What is long work (records of old formats, which are converted) is done by a pool of its own, in its turn: a few such
appends could else keep all threads for seconds, and every append of others that has to wait for the disk with them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.results import CLIENT

log = logging.getLogger("kafkapy.replica.append_queue")

_STOPPED = KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")

Sets = Sequence[memoryview]
Results = list[Any]
Done = Callable[[Results], None]
Entry = tuple[Sets, Done]
Kind = tuple[bool, int]  # whether it is long work, and the origin: what differs in either is not written together

# One write takes at most so much, so that a flood of queued sets does not become one endless write.
MAX_SETS_A_WRITE = 1024


class AppendQueue:
    """The queue of one partition.

    `write(sets, origin)` appends, blocking, and answers one result a set and whether they have to be flushed; then
    `flush()` is called before the results are given out. Where one of them raises, that is everybody's result.
    """

    __slots__ = ("_flush", "_flushing", "_lock", "_long_pool", "_pool", "_waiting", "_write", "_writing", "_written")

    def __init__(
        self,
        pool: Any,
        write: Callable[[Sets, int], tuple[Results, bool]],
        flush: Callable[[], object],
        long_pool: Any = None,
    ) -> None:
        self._pool = pool
        self._long_pool = pool if long_pool is None else long_pool
        self._write = write
        self._flush = flush
        self._lock = threading.Lock()
        self._waiting: list[tuple[Entry, Kind]] = []
        self._written: list[tuple[Entry, Results]] = []  # and not flushed yet
        self._writing = False
        self._flushing = False

    @property
    def busy(self) -> bool:
        """Whether an append is queued or being written, so that the next one must queue too."""
        return self._writing

    def put(self, sets: Sets, done: Done, *, long: bool = False, origin: int = CLIENT) -> None:
        """Queues `sets`; `done(results)` is called once, on a pool thread: the other pool's if it is `long` work.

        Raises RuntimeError, and `done` is not called, when the pool was stopped.
        """
        with self._lock:
            self._waiting.append(((sets, done), (long, origin)))
            if self._writing:
                return
            self._writing = True
        try:
            self._submit(long)
        except RuntimeError:  # the broker stops: nobody will write it, nor what came behind it meanwhile
            with self._lock:
                behind, self._waiting = [entry for entry, _ in self._waiting[1:]], []
                self._writing = False
            _give_out([(entry, [_STOPPED] * len(entry[0])) for entry in behind])
            raise

    def end(self, why: KafkaError) -> None:
        """Nothing more is written or flushed: what comes from now on is told `why`.

        The partition, which has this queue, is let go of; unless something is under way, which still needs it.
        """

        def refuse(*_: object) -> NoReturn:
            raise KafkaError(why.code, why.message)

        with self._lock:
            if not (self._writing or self._flushing or self._written):
                self._write = self._flush = refuse

    def put_written(self, sets: Sets, results: Results, done: Done) -> None:
        """Queues what was written elsewhere, and has to be flushed before `done(results)`."""
        with self._lock:
            self._written.append(((sets, done), results))
        self._pool.submit(self._flush_unless_another_does)

    def _submit(self, long: bool) -> None:
        (self._long_pool if long else self._pool).submit(self._run, long)

    def _run(self, long: bool) -> None:
        while taken := self._next(long):
            self._write_together(*taken)
            if self._may_flush():
                self._pass_on()
                self._flush_all()
                return

    def _flush_unless_another_does(self) -> None:
        if self._may_flush():
            self._flush_all()

    def _may_flush(self) -> bool:
        """Whether there is something to flush and nobody is at it: who is goes on with what is written meanwhile."""
        with self._lock:
            if self._flushing or not self._written:
                return False
            self._flushing = True
            return True

    def _pass_on(self) -> None:
        """This thread goes to flush: another one writes what waits."""
        with self._lock:
            self._writing = waits = bool(self._waiting)
            long = waits and self._waiting[0][1][0]
        if waits:  # not what `_writing` says by now: a `put` may have found nobody writing, and begun
            try:
                self._submit(long)
            except RuntimeError:  # the broker stops: nobody else will
                while taken := self._next(long):
                    self._write_together(*taken)

    def _next(self, long: bool) -> tuple[list[Entry], int] | None:
        """What is written together next, and its origin; None, and another thread may begin to write, or goes on."""
        with self._lock:
            if not self._waiting or self._waiting[0][1][0] == long:
                return self._take()
        try:
            self._submit(not long)
        except RuntimeError:  # the broker stops
            with self._lock:
                return self._take()
        return None

    def _take(self) -> tuple[list[Entry], int] | None:
        """What waits longest, as far as it is of one kind. Under the lock."""
        self._writing = bool(self._waiting)
        if not self._waiting:
            return None
        kind = self._waiting[0][1]
        taken, count = 0, 0
        while taken < len(self._waiting) and count < MAX_SETS_A_WRITE and self._waiting[taken][1] == kind:
            count += len(self._waiting[taken][0][0])
            taken += 1
        entries = [entry for entry, _ in self._waiting[:taken]]
        self._waiting = self._waiting[taken:]
        return entries, kind[1]

    def _write_together(self, entries: list[Entry], origin: int) -> None:
        gathered = [one for sets, _ in entries for one in sets]
        to_flush = False
        try:
            results, to_flush = self._write(gathered, origin)
        except Exception as error:  # every waiting producer needs its answer, whatever went wrong
            results = [_verdict(error)] * len(gathered)
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


def _verdict(error: Exception) -> KafkaError:
    return error if isinstance(error, KafkaError) else KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(error))


def _give_out(answers: list[tuple[Entry, Results]]) -> None:
    for (_, done), results in answers:
        try:
            done(results)
        except Exception:  # the others wait for theirs, and the queue must not stay taken for ever
            log.exception("the answer to a pooled append failed")
