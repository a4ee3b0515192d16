"""The step machine under both coordinators: one shard is one partition of an internal topic and the state in it.

A step is a function of the state. It looks, refuses by raising KafkaError, or answers `Effects`: records to append
and what to do when they are in the log. Records change the state only then, by the same `apply` that rebuilds the
state at a load; so an append that fails leaves nothing to take back. What is not recorded (who waits for a rebalance,
a commit under way) is the machine's own, and `then` tells it how the append went. Source: Kafka's CoordinatorRuntime.
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

Record = tuple[bytes, "bytes | None"]  # key, value; no value deletes

TOO_LARGE = (Errors.MESSAGE_TOO_LARGE, Errors.RECORD_LIST_TOO_LARGE, Errors.INVALID_FETCH_SIZE)

LOADING, ACTIVE, FAILED, UNLOADED = "loading", "active", "failed", "unloaded"


class Producer(NamedTuple):
    """Whose transaction a batch belongs to."""

    id: int
    epoch: int


class Effects(NamedTuple):
    """What a step wants done. `then(None)` when the records are in the log and applied, `then(error)` if they are not.

    Without records `then(None)` is called at once. `producer`: the records are part of its transaction.
    """

    records: Sequence[Record] = ()
    then: Callable[[KafkaError | None], object] | None = None
    producer: Producer | None = None


class Machine(Protocol):
    """The state of one shard. Every method is called by one thread at a time, all but `replay` under the lock.

    `shard`: set right after both are made.
    """

    shard: Any

    def replay(self, header: BatchHeader, batch: memoryview) -> None:
        """At the load: the next batch of the log, control batches included. Raises ProtocolError, ValueError."""
        ...

    def apply(self, records: Sequence[Record], producer: Producer | None) -> None:
        """Records of a step that are in the log now."""
        ...

    def loaded(self) -> None:
        """The state is whole; time-outs begin."""
        ...

    def unloaded(self, reason: KafkaError) -> None:
        """The shard ends here: whoever waits is told `reason`, time-outs end."""
        ...


class ShardLog(Protocol):
    """Where a shard's records go: a Partition, behind the runtime."""

    def append(
        self, records: Sequence[Record], producer: Producer | None, done: Callable[[KafkaError | None], None]
    ) -> None:
        """Appends one batch; `done` is called once, in the order of the appends, at once or from another thread."""
        ...


M = TypeVar("M", bound=Machine)
T = TypeVar("T")


class _Append:
    """One under way: what the step wants, and, once it is known, how it went."""

    __slots__ = ("effects", "error", "is_known")

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.error: KafkaError | None = None
        self.is_known = False


class Shard(Generic[M]):
    """Runs steps on one machine, one at a time.

    A step may not wait, nor run a step of another shard that could come back here: it holds this shard's lock, as
    `then` does. From a transaction's shard to a group's is the one way in which locks are taken together.
    """

    def __init__(self, topic: str, index: int, machine: M, shard_log: ShardLog, *, clock: Clock, timer: Timer) -> None:
        self.topic = topic
        self.index = index
        self.machine = machine
        self.clock = clock
        self.state = LOADING
        self.leader_epoch = 0  # of the partition, set at the load: the coordinator epoch of transaction markers
        self.load_s = 0.0  # how long the load took
        self._log = shard_log
        self._timer = timer
        # Reentrant: `then` is part of a step's work and may run the next step.
        self._lock = threading.RLock()
        self._under_way: deque[_Append] = deque()
        self._is_open = False

    def __repr__(self) -> str:
        return f"Shard({self.name}, {self.state})"

    @property
    def name(self) -> str:
        """TOPIC-INDEX."""
        return f"{self.topic}-{self.index}"

    @property
    def has_ended(self) -> bool:
        return self.state in (FAILED, UNLOADED)

    @property
    def is_loading(self) -> bool:
        """Until the machine is done with `loaded` too: a network thread that came sooner would wait for the lock."""
        return not (self._is_open or self.has_ended)

    def run(self, step: Callable[[M], Effects | None]) -> None:
        """Runs a step and appends what it answers. Raises KafkaError: what the step refuses, or why none can run."""
        with self._lock:
            self.check()
            effects = step(self.machine)
            if effects is not None:
                self._carry_out(effects)

    def run_together(
        self, steps: Sequence[tuple[Callable[[M], Effects | None], Callable[[KafkaError], object]]]
    ) -> None:
        """As `run` for each (step, refused), but with one append for all of them; a step of a transaction comes alone.
        `refused(error)` is told what its step refuses, or why none can run."""
        wanted = []
        with self._lock:
            for step, refused in steps:
                try:
                    self.check()
                    effects = step(self.machine)
                except KafkaError as error:
                    refused(error)
                    continue
                except Exception as failure:  # must not keep the others from what they have begun
                    log.exception("%s: a step failed", self.name)
                    refused(KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(failure)))
                    continue
                if effects is not None and effects.records:
                    wanted.append(effects)
                elif effects is not None:
                    self._carry_out(effects)
            self._carry_out_together(wanted)

    def _carry_out_together(self, wanted: Sequence[Effects]) -> None:
        def then(error: KafkaError | None) -> None:
            if error is not None and error.code in TOO_LARGE:  # each alone may not be
                for one in wanted:
                    self._carry_out(one)
                return
            for one in wanted:
                self._tell(one, error)

        if len(wanted) > 1:
            self._carry_out(Effects([record for one in wanted for record in one.records], then))
        elif wanted:
            self._carry_out(wanted[0])

    def read(self, look: Callable[[M], T]) -> T:
        """What `look` finds in the state. Raises KafkaError as `run` does."""
        with self._lock:
            self.check()
            return look(self.machine)

    def in_turn(self, look: Callable[[M], object]) -> None:
        """Calls `look` behind the appends that are under way, with nothing between: now, or on the thread that tells
        how the last of them went. Not at all if the shard ends before. Raises KafkaError as `run` does.

        For what is in the log by other hands, and may be told of before an append of ours that lies before it.
        """
        with self._lock:
            self.check()
            turn = _Append(Effects(then=lambda error: look(self.machine) if error is None else None))
            self._under_way.append(turn)
            self._appended(turn, None)

    def check(self) -> None:
        """Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR unless steps can run."""
        if self.state == LOADING:
            raise KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, f"{self.name} is being loaded")
        if self.state != ACTIVE:
            raise KafkaError(Errors.NOT_COORDINATOR, f"{self.name} is {self.state}")

    def after(self, delay_s: float, step: Callable[[M], Effects | None]) -> TimerEntry:
        """Runs a step in `delay_s` seconds, on the timer's thread, unless the shard has ended by then."""
        return self._timer.schedule(delay_s, lambda: self._run_late(step))

    def _run_late(self, step: Callable[[M], Effects | None]) -> None:
        try:
            with self._lock:
                if self.state == ACTIVE:
                    self.run(step)
        except KafkaError as error:
            log.warning("a step of %s that was due was refused: %s", self.name, error)

    def _carry_out(self, effects: Effects) -> None:
        if not effects.records:
            if effects.then is not None:
                effects.then(None)
            return
        append = _Append(effects)
        self._under_way.append(append)
        try:
            self._log.append(effects.records, effects.producer, lambda error: self._appended(append, error))
        except Exception as failure:  # else those that come later would wait for this one for ever
            log.exception("%s: an append failed", self.name)
            self._appended(append, KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(failure)))

    def _appended(self, append: _Append, error: KafkaError | None) -> None:
        """Records change the state in the order of the log, whichever append is known first."""
        with self._lock:
            append.error, append.is_known = error, True
            while self._under_way and self._under_way[0].is_known:
                first = self._under_way.popleft()
                self._finish(first.effects, first.error)

    def _finish(self, effects: Effects, error: KafkaError | None) -> None:
        try:
            if error is None and self.state == ACTIVE:
                self.machine.apply(effects.records, effects.producer)
            elif error is None:
                error = KafkaError(Errors.NOT_COORDINATOR, f"{self.name} is {self.state}")
        except Exception as failure:  # in the log, and not in the state: only a new load can make it whole
            log.exception("%s cannot go on: records that it has appended cannot be applied", self.name)
            self.end(FAILED)
            error = KafkaError(Errors.NOT_COORDINATOR, str(failure))
        self._tell(effects, error)

    def _tell(self, effects: Effects, error: KafkaError | None) -> None:
        if effects.then is None:
            return
        try:
            effects.then(error)
        except Exception:  # the next append's outcome must be told all the same
            log.exception("%s: what follows an append failed", self.name)

    # --- life, of which the runtime decides

    def begin(self, is_complete: Callable[[], bool] | None = None) -> bool:
        """Ends the load, unless `is_complete()` says that there is more; whether there is nothing left to load.

        It is asked under the lock. So whoever appends to the partition without the shard (the markers of a
        transaction), and then tells the shard: the load has seen the append, or the step comes after the load.
        """
        with self._lock:
            if self.state == LOADING:
                if is_complete is not None and not is_complete():
                    return False
                self.state = ACTIVE
                self.machine.loaded()
                self._is_open = True
            return True

    def end(self, state: str = UNLOADED) -> None:
        """No step runs any more; whoever waits is told NOT_COORDINATOR."""
        with self._lock:
            was = self.state
            if not self.has_ended:
                self.state = state
            if was == ACTIVE:
                self.machine.unloaded(KafkaError(Errors.NOT_COORDINATOR, f"{self.name} is {state}"))
