"""Runs the requests of both coordinators one at a time. A shard is one partition of an internal topic together with its
state machine.

A step is a function that gets the state machine and handles one request. A step reads the state, raises KafkaError to
refuse the request, or returns Effects: records to append, and a callback that runs when the records are in the log.
Records change the state only after the append, through the same code that rebuilds the state from the log, so a failed
append needs no rollback. State that is not stored in records, such as members that wait for a rebalance, is changed by
the step itself and by the callback. Source: Kafka's CoordinatorRuntime.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from kafkapy.errors import Errors, KafkaError

if TYPE_CHECKING:
    from kafkapy._ext.batch import BatchHeader
    from kafkapy.runtime.clock import Clock
    from kafkapy.runtime.timer import Timer, TimerEntry

log = logging.getLogger("kafkapy.coordinator.shard")

Record = tuple[bytes, "bytes | None"]  # key, value; a value of None is a tombstone

TOO_LARGE = (Errors.MESSAGE_TOO_LARGE, Errors.RECORD_LIST_TOO_LARGE, Errors.INVALID_FETCH_SIZE)

LOADING, ACTIVE, FAILED, UNLOADED = "loading", "active", "failed", "unloaded"


class Producer(NamedTuple):
    """A producer id and producer epoch."""

    id: int
    epoch: int


class Effects(NamedTuple):
    """The outcome of a step (a function that handles one request): records to append to the log, and a callback `then`.

    `then(None)` is called when the records are in the log and applied to the state, `then(error)` if the append failed.
    Without records, `then(None)` is called at once. With `producer`, the records are appended in this producer's
    transaction.
    """

    records: Sequence[Record] = ()
    then: Callable[[KafkaError | None], object] | None = None
    producer: Producer | None = None


class Machine(Protocol):
    """The interface of the state machine of one shard (a partition of an internal topic).

    One thread at a time calls the methods, and it holds the shard's lock except in `replay`. `shard` is set right after
    both objects are created.
    """

    shard: Any

    def replay(self, header: BatchHeader, batch: memoryview) -> None:
        """Load one batch of the log into the state; batches come in the order of their offsets. `header` describes the
        batch, which may be a control batch. Raises ProtocolError, ValueError for a damaged batch."""
        ...

    def apply(self, records: Sequence[Record], producer: Producer | None) -> None:
        """Update the state with the records of a request, which are now in the log. `producer` is the producer of their
        transaction, or None."""
        ...

    def loaded(self) -> None:
        """Start the time-outs. This is called when the whole log of the partition has been replayed into the state."""
        ...

    def unloaded(self, reason: KafkaError) -> None:
        """Answer the pending requests with the error `reason` and cancel the time-outs. This is called when the broker
        stops being the coordinator for the partition."""
        ...


class ShardLog(Protocol):
    """The interface of the log that a shard (a partition of an internal topic and its state machine) appends records
    to."""

    def append(
        self, records: Sequence[Record], producer: Producer | None, done: Callable[[KafkaError | None], None]
    ) -> None:
        """Append the records as one batch. `done` is called once for each append with None or the error, either before
        this returns or later on another thread."""
        ...


M = TypeVar("M", bound=Machine)
T = TypeVar("T")


class _Append:
    """An append to the partition's log in progress. `effects` has its records and callback; `error` is set if the
    append has failed."""

    __slots__ = ("effects", "error", "is_finished")

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.error: KafkaError | None = None
        self.is_finished = False


class Shard(Generic[M]):
    """A partition of an internal topic with its state machine. It runs steps (functions that handle one request) on the
    state machine, one at a time.

    Steps and `then` callbacks run under this shard's lock, so they must not block, and they must not run a step of
    another shard that could call back. A thread may take the lock of a group shard while it holds the lock of a
    transaction shard, never the other way round.
    """

    def __init__(self, topic: str, index: int, machine: M, shard_log: ShardLog, *, clock: Clock, timer: Timer) -> None:
        self.topic = topic
        self.index = index
        self.machine = machine
        self.clock = clock
        self.state = LOADING
        self.leader_epoch = 0  # the partition's; used as the coordinator epoch of transaction markers
        self.load_s = 0.0  # duration of the load
        self._log = shard_log
        self._timer = timer
        # Reentrant, because a `then` callback may run the next step.
        self._lock = threading.RLock()
        self._pending_appends: deque[_Append] = deque()
        self._after_load: list[Callable[[], object]] = []
        self._is_open = False

    def __repr__(self) -> str:
        return f"Shard({self.name}, {self.state})"

    @property
    def name(self) -> str:
        """The name of the shard's partition, TOPIC-INDEX."""
        return f"{self.topic}-{self.index}"

    @property
    def has_ended(self) -> bool:
        return self.state in (FAILED, UNLOADED)

    @property
    def is_loading(self) -> bool:
        """True until the partition's log has been loaded into the state and `machine.loaded` has returned. Network
        threads check this first, so that they do not wait for the shard's lock during a load."""
        return not (self._is_open or self.has_ended)

    def run(self, step: Callable[[M], Effects | None]) -> None:
        """Run a step (a function that handles one request on the state machine) and append the records that it returns.
        Raises KafkaError if the step refuses the request, or if the state is still loading or the shard has ended."""
        with self._lock:
            self.check()
            effects = step(self.machine)
            if effects is not None:
                self._execute(effects)

    def run_joined(self, steps: Sequence[tuple[Callable[[M], Effects | None], Callable[[KafkaError], object]]]) -> None:
        """Run several steps (functions that each handle one request) as `run` would, but append the records of all of
        them as one batch. `steps` has pairs (step, refused).

        `refused(error)` is called if its step refuses the request or the shard is not active. A step whose records
        belong to a transaction must not be run together with other steps.
        """
        wanted = []
        with self._lock:
            for step, refused in steps:
                try:
                    self.check()
                    effects = step(self.machine)
                except KafkaError as error:
                    refused(error)
                    continue
                except Exception as failure:  # the other steps have already changed state and must still append
                    log.exception("%s: a step failed", self.name)
                    refused(KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(failure)))
                    continue
                if effects is not None and effects.records:
                    wanted.append(effects)
                elif effects is not None:
                    self._execute(effects)
            self._append_joined(wanted)

    def _append_joined(self, wanted: Sequence[Effects]) -> None:
        def then(error: KafkaError | None) -> None:
            if error is not None and error.code in TOO_LARGE:  # a single step's records may still fit
                for effects in wanted:
                    self._execute(effects)
                return
            for effects in wanted:
                self._call_then(effects, error)

        if len(wanted) > 1:
            self._execute(Effects([record for effects in wanted for record in effects.records], then))
        elif wanted:
            self._execute(wanted[0])

    def read(self, look: Callable[[M], T]) -> T:
        """Call `look` with the state machine under the shard's lock, and return its result. Raises KafkaError if the
        state is still loading or the shard has ended."""
        with self._lock:
            self.check()
            return look(self.machine)

    def after_pending_appends(self, look: Callable[[M], object]) -> None:
        """Call `look` with the state machine after the callbacks of all appends that are now in progress have run.

        The call is made at once if no append is in progress, otherwise on the thread that finishes the last of them.
        `look` is not called if the shard ends before that. If `look` fails, the shard ends as FAILED. Raises KafkaError
        if the shard is not active.

        This is for transaction markers, which are appended to the partition without the shard. There is a race: the
        shard may learn of a marker before the callback of an earlier append has run. If the marker were handled at
        once, it would be applied to the state before records that precede it in the log.
        """
        with self._lock:
            self.check()
            turn = _Append(Effects(then=lambda error: self._apply_marker(look) if error is None else None))
            self._pending_appends.append(turn)
            self._appended(turn, None)

    def when_loaded(self, act: Callable[[], object]) -> None:
        """Call `act` now if the partition's log has been loaded. Otherwise call `act` at the end of the load, before
        any request is handled.

        `act` is never called if the shard ends before it is loaded.
        """
        with self._lock:
            if self.state == LOADING:
                self._after_load.append(act)
                return
        if not self.has_ended:
            act()

    def check(self) -> None:
        """Raise KafkaError COORDINATOR_LOAD_IN_PROGRESS if the partition's log is being loaded, or NOT_COORDINATOR if
        the load has failed or the shard has ended."""
        if self.state == LOADING:
            raise KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, f"{self.name} is being loaded")
        if self.state != ACTIVE:
            raise KafkaError(Errors.NOT_COORDINATOR, f"{self.name} is {self.state}")

    def after(self, delay_s: float, step: Callable[[M], Effects | None]) -> TimerEntry:
        """Run a step (a function that gets the state machine) after `delay_s` seconds on the timer's thread, unless the
        shard has ended by then. Return the timer entry, with which the caller can cancel the step."""
        return self._timer.schedule(delay_s, lambda: self._run_late(step))

    def _run_late(self, step: Callable[[M], Effects | None]) -> None:
        try:
            with self._lock:
                if self.state == ACTIVE:
                    self.run(step)
        except KafkaError as error:
            log.warning("a delayed step of %s was refused: %s", self.name, error)

    def _execute(self, effects: Effects) -> None:
        if not effects.records:
            if effects.then is not None:
                effects.then(None)
            return
        append = _Append(effects)
        self._pending_appends.append(append)
        try:
            self._log.append(effects.records, effects.producer, lambda error: self._appended(append, error))
        except Exception as failure:  # later appends would otherwise wait for this one forever
            log.exception("%s: an append failed", self.name)
            self._appended(append, KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(failure)))

    def _appended(self, append: _Append, error: KafkaError | None) -> None:
        """Mark an append as finished, with its error or None. Then run the callbacks of the finished appends at the
        front of the queue, up to the first append that is not finished, so that callbacks run in the order of the
        log."""
        with self._lock:
            append.error, append.is_finished = error, True
            while self._pending_appends and self._pending_appends[0].is_finished:
                first = self._pending_appends.popleft()
                self._finish(first.effects, first.error)

    def _finish(self, effects: Effects, error: KafkaError | None) -> None:
        try:
            if error is None and self.state == ACTIVE:
                self.machine.apply(effects.records, effects.producer)
            elif error is None:
                error = KafkaError(Errors.NOT_COORDINATOR, f"{self.name} is {self.state}")
        # the records are in the log but not in the state: only a reload makes the state complete
        except Exception as failure:
            log.exception("%s stops: its appended records cannot be applied to its state", self.name)
            self.end(FAILED)
            error = KafkaError(Errors.NOT_COORDINATOR, str(failure))
        self._call_then(effects, error)

    def _call_then(self, effects: Effects, error: KafkaError | None) -> None:
        if effects.then is None:
            return
        try:
            effects.then(error)
        except Exception:  # the callbacks of the next appends must still run
            log.exception("%s: the callback of an append failed", self.name)

    def _apply_marker(self, look: Callable[[M], object]) -> None:
        try:
            look(self.machine)
        # the marker is in the log but not, or only partly, in the state: only a reload makes the state complete
        except Exception:
            log.exception("%s stops: a transaction marker in its log cannot be applied to its state", self.name)
            self.end(FAILED)

    # --- loading and unloading

    def begin(self, is_complete: Callable[[], bool] | None = None) -> bool:
        """Make the shard active and return True, or return False if `is_complete()` says that more of the log has to be
        loaded. Also return True if the shard has already ended, without making it active.

        `is_complete` is called under the shard's lock. This makes it safe for a thread to append a transaction marker
        to the partition and then call `after_pending_appends`: either the load reads the marker from the log, or the
        call comes after the load.
        """
        with self._lock:
            if self.state == LOADING:
                if is_complete is not None and not is_complete():
                    return False
                self.state = ACTIVE
                self.machine.loaded()
                for act in self._after_load:
                    act()
                self._after_load.clear()
                self._is_open = True
            return True

    def end(self, state: str = UNLOADED) -> None:
        """End the shard: handle no more requests, and answer all pending requests with NOT_COORDINATOR. `state` is
        FAILED if the load failed or the state is no longer complete, otherwise UNLOADED."""
        with self._lock:
            was = self.state
            if not self.has_ended:
                self.state = state
            if was == ACTIVE:
                self.machine.unloaded(KafkaError(Errors.NOT_COORDINATOR, f"{self.name} is {state}"))
