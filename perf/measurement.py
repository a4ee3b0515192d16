"""What a measurement is: rows of the table, and a function that fills them for one broker once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from perf.brokers import Broker, Fleet
from perf.curves import Curve
from perf.machine import free_bytes
from perf.warm import Warmth

Figures = dict[str, float]  # row key -> what was measured, in the row's unit

KAFKA, KAFKAPY, BARE = "kafka", "kafkapy", "bare"
OTHER = "other"  # the broker of another checkout of kafkapy, measured exactly as KAFKAPY is
MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Goal:
    """`bound` times the figure of `side`, or `bound` itself when `side` is None."""

    bound: float
    side: str | None = KAFKA

    def text(self, row: Row) -> str:
        sign = "≥" if row.better == "higher" else "≤"
        if self.side is None:
            return f"{sign} {row.show(self.bound)} {row.unit}"
        return f"{sign} {self.bound:.3g} ×" + (" bare" if self.side == BARE else "")


@dataclass(frozen=True)
class Row:
    """One line of the table; `digits` after the point."""

    key: str
    label: str
    unit: str
    better: Literal["higher", "lower"]
    goal: Goal | None = None
    digits: int = 0

    def show(self, figure: float) -> str:
        return f"{figure:,.{self.digits}f}"


@dataclass(frozen=True)
class Scale:
    """How much work a measurement does; bytes are payload bytes."""

    name: str
    stream: int  # through the raw client, for each kind of record
    client: int  # through librdkafka and Java
    warm: int  # before each stream, so that a JVM has compiled what it will
    requests: int  # of one record each
    paced_seconds: float
    segment: int  # to recover
    memory_limit: int | None  # of what is read to warm the memory
    disk: int  # free bytes that a measurement may need
    most: int  # the largest number of partitions, segments and topics; half as many connections

    def sizes(self, most: int | None = None) -> list[int]:
        """1, 10, 100 and so on, up to `most` itself."""
        most = most or self.most
        return [10**power for power in range(len(str(most))) if 10**power < most] + [most]


FULL = Scale("full", 1 * GIB, 1 * GIB, 512 * MIB, 100_000, 8.0, 1 * GIB, None, 14 * GIB, 10_000)
QUICK = Scale("quick", 256 * MIB, 96 * MIB, 64 * MIB, 10_000, 2.0, 256 * MIB, 4 * GIB, 3 * GIB, 300)
TINY = Scale("tiny", 4 * MIB, 1 * MIB, 1 * MIB, 200, 0.2, 4 * MIB, 0, GIB // 4, 12)


class Bench:
    """What measurements work with: sizes, a fleet of brokers, a directory for data that is deleted after each use."""

    def __init__(self, scale: Scale, directory: Path, fleet: Fleet, warmth: Warmth) -> None:
        self.scale = scale
        self.directory = directory
        self.fleet = fleet
        self._warmth = warmth
        self.other_checkout = False  # whether the step that runs measures the broker of the other checkout
        self._made = 0
        self._kept: dict[str, tuple[Any, ExitStack]] = {}
        self.notes: dict[str, str] = {}
        self.curves: dict[str, Curve] = {}

    def note(self, key: str, text: str) -> None:
        """Printed under the table, once for each key."""
        self.notes[key] = text

    def point(self, curve: tuple[str, str, str, str], side: str, size: int, cost: float) -> None:
        """One more point of the curve (key, label, unit, what there are more and more of)."""
        key, label, unit, of = curve
        side = OTHER if self.other_checkout and side == KAFKAPY else side
        self.curves.setdefault(key, Curve(label, unit, of)).add(side, size, cost)

    @contextmanager
    def kept(self, key: str, make: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
        """What takes long to start, and is kept for the measurements and runs that follow; not after a failure."""
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
        """Ends what was kept."""
        while self._kept:
            _, (_, ending) = self._kept.popitem()
            ending.close()

    @contextmanager
    def data(self) -> Iterator[Path]:
        """A fresh directory, deleted with everything in it when the block ends; memory is warm when it begins."""
        self._made += 1
        path = self.directory / f"data-{self._made}"
        path.mkdir()
        try:
            free = free_bytes(self.directory)
            if free < self.scale.disk:
                raise SystemExit(
                    f"perf: {self.directory} has {free / GIB:.1f} GiB free, a measurement may need "
                    f"{self.scale.disk / GIB:.1f} GiB: give another place by --data DIR"
                )
            self._warmth.top_up()
            yield path
        finally:
            self._warmth.delete(path)

    @contextmanager
    def with_other_checkout(self) -> Iterator[None]:
        """In the block a kafkapy that is started is that of the other checkout (see Fleet)."""
        self.other_checkout = self.fleet.start_other = True
        try:
            yield
        finally:
            self.other_checkout = self.fleet.start_other = False

    @contextmanager
    def broker(self, kind: str, settings: Mapping[str, str] | None = None) -> Iterator[Broker]:
        """A fresh broker on a fresh data directory."""
        with self.data() as path, self.fleet.running(kind, path, settings) as broker:
            yield broker


class Measurement(ABC):
    """A named group of rows that are measured together."""

    name: str
    about: str
    quick = True  # whether --quick runs it when it is not named
    rows: tuple[Row, ...]

    def fetch(self) -> None:  # noqa: B027 (most need nothing)
        """Gets what it needs from the net, once; in `run` there may be none."""

    @abstractmethod
    def run(self, bench: Bench, kind: str) -> Figures:
        """Measures the broker `kind` once."""

    def limit(self, bench: Bench) -> Figures:
        """The physical limit of those rows that have one, measured in the same run by a loop that is no broker."""
        return {}
