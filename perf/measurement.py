"""The interface of a measurement: rows of the table, and a function that measures them once for one broker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from perf.brokers import Broker, Fleet
from perf.curves import Curve
from perf.machine import free_bytes
from perf.warm import Warmth

Figures = dict[str, float]  # row key -> measured figure, in the row's unit

KAFKA, KAFKA_4, KAFKAPY, BARE = "kafka", "kafka-4", "kafkapy", "bare"  # KAFKA is 3.9.1, KAFKA_4 is 4.4.0 with KRaft
PEERS = (KAFKA, KAFKA_4)
OTHER = "other"  # the broker of another checkout of kafkapy, measured exactly as KAFKAPY is
MIB, GIB = 1 << 20, 1 << 30


CLIENT_LIMIT = 90.0  # % of a core


@dataclass(frozen=True)
class Goal:
    """The goal of a row: `bound` times the figure of `side`, or `bound` itself if `side` is None."""

    bound: float
    side: str | None = KAFKA

    def text(self, row: Row) -> str:
        sign = "≥" if row.better == "higher" else "≤"
        if self.side is None:
            return f"{sign} {row.show(self.bound)} {row.unit}"
        return f"{sign} {self.bound:.3g} ×" + {BARE: " bare", KAFKA_4: " 4.4.0"}.get(self.side, "")


@dataclass(frozen=True)
class Row:
    """One line of the table; `digits` is the number of decimal places.

    `client`: the key of the row that has the share of a core that the client's busiest thread used meanwhile, in
    percent. From CLIENT_LIMIT on, the client and not the broker limits this figure.
    """

    key: str
    label: str
    unit: str
    better: Literal["higher", "lower"]
    goal: Goal | None = None
    digits: int = 0
    client: str = ""

    def show(self, figure: float) -> str:
        return f"{figure:,.{self.digits}f}"


@dataclass(frozen=True)
class Scale:
    """The amount of work of a measurement; bytes are payload bytes."""

    name: str
    stream: int  # bytes through the raw client, for each kind of record
    client: int  # bytes through librdkafka and Java
    warm: int  # bytes before each stream, so that a JVM has compiled its hot code
    requests: int  # with one record each
    paced_seconds: float
    acks: int  # enough for a p99.9: of 30,000 it is the 30th longest latency, of 4,000 one stall decides it
    segment: int  # bytes of the segment to recover
    memory_limit: int | None  # most bytes read to warm the memory
    disk: int  # free bytes that a measurement may need
    most: int  # the largest number of partitions, segments and topics; half as many connections

    def sizes(self, most: int | None = None) -> list[int]:
        """Return 1, 10, 100 and so on, and finally `most`."""
        most = most or self.most
        return [10**power for power in range(len(str(most))) if 10**power < most] + [most]


FULL = Scale("full", 1 * GIB, 1 * GIB, 512 * MIB, 100_000, 8.0, 30_000, 1 * GIB, None, 14 * GIB, 10_000)
QUICK = Scale("quick", 256 * MIB, 96 * MIB, 64 * MIB, 10_000, 2.0, 2_000, 256 * MIB, 4 * GIB, 3 * GIB, 300)
TINY = Scale("tiny", 4 * MIB, 1 * MIB, 1 * MIB, 200, 0.2, 30, 4 * MIB, 0, GIB // 4, 12)


class Bench:
    """The tools of a measurement: sizes, a fleet of brokers, a data directory that is deleted after each use."""

    def __init__(
        self, scale: Scale, directory: Path, fleet: Fleet, warmth: Warmth, wanted: Collection[str] | None = None
    ) -> None:
        """`wanted`: the keys of the rows to measure; None for all."""
        self.scale = scale
        self.directory = directory
        self.fleet = fleet
        self.warmth = warmth
        self._wanted = wanted
        self.other_checkout = False  # True while a step measures the broker of the other checkout
        self._made = 0
        self._kept: dict[str, tuple[Any, ExitStack]] = {}
        self.notes: dict[str, str] = {}
        self.curves: dict[str, Curve] = {}

    def wants(self, prefix: str) -> bool:
        """Return False if no row whose key begins with `prefix` is to be measured, so that this work can be saved."""
        return self._wanted is None or any(key.startswith(prefix) for key in self._wanted)

    def note(self, key: str, text: str) -> None:
        """Print this text under the table, once for each key."""
        self.notes[key] = text

    def point(self, curve: tuple[str, str, str, str], side: str, size: int, cost: float) -> None:
        """Add a point to the curve (key, label, unit, name of the things whose number is the size)."""
        key, label, unit, of = curve
        side = OTHER if self.other_checkout and side == KAFKAPY else side
        self.curves.setdefault(key, Curve(label, unit, of)).add(side, size, cost)

    @contextmanager
    def kept(self, key: str, make: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
        """Yield an object that takes long to start, and keep it for later measurements in this run, except after a
        failure in the block."""
        if self.other_checkout:
            key = f"{key} of the other checkout"
        if key not in self._kept:
            ending = ExitStack()
            self._kept[key] = ending.enter_context(make()), ending
        kept, ending = self._kept[key]
        try:
            yield kept
        except BaseException:
            del self._kept[key]
            ending.close()
            raise

    def close(self) -> None:
        """Close all kept objects."""
        while self._kept:
            _, (_, ending) = self._kept.popitem()
            ending.close()

    @contextmanager
    def data(self) -> Iterator[Path]:
        """Warm the memory and yield an empty directory, which is deleted when the block ends."""
        self._made += 1
        path = self.directory / f"data-{self._made}"
        path.mkdir()
        try:
            free = free_bytes(self.directory)
            if free < self.scale.disk:
                raise SystemExit(
                    f"perf: {self.directory} has {free / GIB:.1f} GiB free, but a measurement may need "
                    f"{self.scale.disk / GIB:.1f} GiB: choose another directory with --data DIR"
                )
            self.warmth.top_up()
            yield path
        finally:
            self.warmth.delete(path)

    @contextmanager
    def with_other_checkout(self) -> Iterator[None]:
        """Start kafkapy from the other checkout in the block (see Fleet)."""
        self.other_checkout = self.fleet.start_other = True
        try:
            yield
        finally:
            self.other_checkout = self.fleet.start_other = False

    @contextmanager
    def broker(self, kind: str, settings: Mapping[str, str] | None = None) -> Iterator[Broker]:
        """Run a broker on an empty data directory in the block."""
        with self.data() as path, self.fleet.running(kind, path, settings) as broker:
            yield broker


class Measurement(ABC):
    """A named group of rows that are measured together."""

    name: str
    about: str
    quick = True  # whether --quick includes it
    kafka_4 = False  # whether Apache Kafka 4 can be measured: not where ZooKeeper or a client of Kafka's is needed
    rows: tuple[Row, ...]

    def fetch(self) -> None:  # noqa: B027 (most need nothing)
        """Download what the measurement needs. `run` may have no network (--congestion)."""

    @abstractmethod
    def run(self, bench: Bench, kind: str) -> Figures:
        """Measure the broker `kind` once."""

    def limit(self, bench: Bench) -> Figures:
        """Return the physical limit of the rows that have one, measured in the same run with a bare loop."""
        return {}
