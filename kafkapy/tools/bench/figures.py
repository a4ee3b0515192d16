"""The figures of a benchmark: its result, its samples over time, and what limited its rate."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from kafkapy.tools.bench import board as at
from kafkapy.tools.bench.board import Board, Slot
from kafkapy.tools.bench.histogram import PERCENTILES, added, percentiles

SAMPLE_S = 1.0
MOST_SAMPLES = 600
BUSY = 0.9  # a client that uses more than this share of a CPU was the limit
_ALL_BUSY = 0.95
MB = 1e6


@dataclass(frozen=True)
class Measure:
    """The description of a benchmark for its output: a `title` such as "produce to flights", the `settings` by their
    names in JSON, the names of the durations, and the requested rate per second (`asked`; None: no limit)."""

    command: str
    title: str
    settings: dict[str, Any]
    first: str = "request to response"
    second: str = "record to acknowledgement"
    unit: str = "record"
    asked: float | None = None


@dataclass
class Latency:
    """Durations in milliseconds; `counts` is their histogram."""

    counts: list[int]
    average: float
    shortest: float = 0.0
    longest: float = 0.0

    def document(self) -> dict[str, float]:
        found = {f"p{percent:g}": value * 1e3 for percent, value in self.at(PERCENTILES)}
        ends = {"min": self.shortest, "avg": self.average}
        return {name: round(value, 4) for name, value in (ends | found | {"max": self.longest}).items()}

    def at(self, percents: Sequence[float]) -> list[tuple[float, float]]:
        """Return (percent, seconds) for each percentile, limited to the longest duration."""
        most = self.longest / 1e3
        return [
            (one, min(value, most)) for one, value in zip(percents, percentiles(self.counts, percents), strict=True)
        ]


@dataclass
class Sample:
    """The figures of a part of the run that ended `end` seconds after its start. Latencies are in seconds."""

    end: float
    seconds: float
    records: int
    bytes: int
    requests: int
    p50: float
    p99: float
    longest: float

    def document(self) -> dict[str, float]:
        return {
            "second": round(self.end, 3),
            "recordsPerSecond": round(self.records / self.seconds, 1),
            "megabytesPerSecond": round(self.bytes / MB / self.seconds, 3),
            "p50Ms": round(self.p50 * 1e3, 4),
            "p99Ms": round(self.p99 * 1e3, 4),
            "maxMs": round(self.longest * 1e3, 4),
        }


def joined(one: Sample, other: Sample) -> Sample:
    """Return one sample for two consecutive samples. Its percentiles are the higher ones of the two."""
    return Sample(
        other.end,
        one.seconds + other.seconds,
        one.records + other.records,
        one.bytes + other.bytes,
        one.requests + other.requests,
        max(one.p50, other.p50),
        max(one.p99, other.p99),
        max(one.longest, other.longest),
    )


class History:
    """Takes a sample each second. Samples are joined in pairs whenever there are more than MOST_SAMPLES.

    Args:
        show: Called with each sample.
    """

    def __init__(self, show: Callable[[Sample, Board], None]) -> None:
        self.samples: list[Sample] = []
        self._show = show
        self._machine = _Machine()
        self._began = self._last = 0.0
        self._before = (0, 0, 0)
        self._counts: list[int] = []

    def __call__(self, board: Board) -> None:
        now = time.monotonic()
        if not self._began:
            began = [slot.number(at.BEGAN) for slot in board.slots]
            if not all(began):
                return
            self._began = self._last = min(began) / 1e9
        if now - self._last >= SAMPLE_S:
            self._sample(board, now)

    def _sample(self, board: Board, now: float) -> None:
        figures = board.total(at.RECORDS), board.total(at.BYTES), board.total(at.REQUESTS)
        counts = added([slot.first for slot in board.slots])
        new = [count - before for count, before in zip(counts, self._counts or [0] * len(counts), strict=True)]
        p50, p99, longest = percentiles(new, (50, 99, 100))
        records, size, requests = (after - before for after, before in zip(figures, self._before, strict=True))
        sample = Sample(now - self._began, now - self._last, records, size, requests, p50, p99, longest)
        self._before, self._counts, self._last = figures, counts, now
        self.samples.append(sample)
        if len(self.samples) > MOST_SAMPLES:
            pairs = zip_longest(self.samples[::2], self.samples[1::2])
            self.samples = [one if other is None else joined(one, other) for one, other in pairs]
        self._show(sample, board)

    def finish(self, board: Board) -> None:
        """Take a last sample after the clients have ended, unless it would be of a very short time."""
        ended = max(slot.number(at.ENDED) for slot in board.slots) / 1e9
        self._began = self._began or min(slot.number(at.BEGAN) for slot in board.slots) / 1e9
        self._last = self._last or self._began
        if not self.samples or ended - self._last > SAMPLE_S / 2:
            self._sample(board, max(ended, self._last + 1e-6))

    def machine_share(self) -> float:
        """Return the share of the time in which the CPUs of this machine were busy since the object was created."""
        return self._machine.share()


class _Machine:
    """The busy time of all CPUs of this machine, from /proc/stat."""

    def __init__(self) -> None:
        self._before = self._read()

    @staticmethod
    def _read() -> tuple[int, int]:
        """Return (idle, all) in clock ticks."""
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return fields[3] + fields[4], sum(fields)

    def share(self) -> float:
        idle, total = (after - before for after, before in zip(self._read(), self._before, strict=True))
        return 1 - idle / total if total > 0 else 0.0


@dataclass
class Result:
    """The result of a benchmark."""

    records: int
    bytes: int
    requests: int
    seconds: float
    latency: Latency
    acknowledged: Latency | None
    clients: list[tuple[float, int]]
    """(share of a CPU, requests) of each client."""
    machine: float
    interrupted: bool
    timed_out: bool
    samples: list[Sample] = field(default_factory=list)

    @property
    def records_a_second(self) -> float:
        return self.records / self.seconds

    @property
    def busiest(self) -> float:
        """The share of a CPU that the busiest client used."""
        return max(share for share, _ in self.clients)

    @property
    def client_was_limit(self) -> bool:
        return self.busiest >= BUSY

    def document(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "bytes": self.bytes,
            "requests": self.requests,
            "seconds": round(self.seconds, 4),
            "recordsPerSecond": round(self.records_a_second, 1),
            "megabytesPerSecond": round(self.bytes / MB / self.seconds, 3),
            "requestsPerSecond": round(self.requests / self.seconds, 1),
            "latencyMs": self.latency.document(),
            **({"ackLatencyMs": self.acknowledged.document()} if self.acknowledged else {}),
            "clients": [{"cpuShare": round(share, 3), "requests": requests} for share, requests in self.clients],
            "clientCpuShare": round(self.busiest, 3),
            "machineCpuShare": round(self.machine, 3),
            "clientWasLimit": self.client_was_limit,
            "interrupted": self.interrupted,
            "timedOut": self.timed_out,
            "samples": [sample.document() for sample in self.samples],
        }


def is_complete(board: Board) -> bool:
    """Return True if all clients have ended, perhaps with an error, and have counted requests."""
    return board.total(at.REQUESTS) > 0 and all(slot.number(at.ENDED) for slot in board.slots)


def result_of(board: Board, history: History, interrupted: bool) -> Result:
    """Return the result of a benchmark whose clients have ended."""
    slots = board.slots
    history.finish(board)
    seconds = max(slot.number(at.ENDED) for slot in slots) - min(slot.number(at.BEGAN) for slot in slots)
    requests = sum(sum(slot.first) for slot in slots)
    longest = max(slot.number(at.LONGEST) for slot in slots)
    shortest = min(slot.number(at.SHORTEST) for slot in slots) if requests else 0
    counts = added([slot.first for slot in slots])
    acks = added([slot.second for slot in slots])
    acknowledged = None
    if sum(acks):
        average = board.total(at.SECOND_TOTAL) / 1e6 / sum(acks)
        most = max(slot.number(at.SECOND_LONGEST) for slot in slots) / 1e6
        acknowledged = Latency(acks, average, min(most, percentiles(acks, (0,))[0] * 1e3), most)
    return Result(
        records=board.total(at.RECORDS),
        bytes=board.total(at.BYTES),
        requests=board.total(at.REQUESTS),
        seconds=max(1e-9, seconds / 1e9),
        latency=Latency(counts, board.total(at.TOTAL) / 1e6 / max(1, requests), shortest / 1e6, longest / 1e6),
        acknowledged=acknowledged,
        clients=[_share(slot) for slot in slots],
        machine=history.machine_share(),
        interrupted=interrupted,
        timed_out=any(slot.number(at.WAITED) for slot in slots),
        samples=history.samples,
    )


def _share(slot: Slot) -> tuple[float, int]:
    seconds = (slot.number(at.ENDED) + slot.number(at.WAITED) - slot.number(at.BEGAN)) / 1e9
    return slot.number(at.CPU) / 1e9 / max(1e-9, seconds), slot.number(at.REQUESTS)


def limit_sentence(result: Result, asked: float | None) -> str:
    """Return a sentence about what limited the rate, or "" if that was the broker or the network. `asked` is the
    requested rate per second; None: as fast as possible."""
    too_slow = asked is not None and result.records_a_second < 0.95 * asked and not result.interrupted
    words = []
    if too_slow:
        words.append(f"Only {result.records_a_second:,.0f} of {asked:,.0f} a second were reached.")
    if result.client_was_limit and (too_slow or asked is None):
        words.append(
            f"The client was the limit, not the broker: its busiest process used {result.busiest:.0%} of a CPU. "
            f"More --threads (now {len(result.clients)}), larger batches, or another machine for the client may show "
            f"more."
        )
    elif result.machine >= _ALL_BUSY and (too_slow or asked is None):
        words.append(
            f"The CPUs of this machine were busy {result.machine:.0%} of the time, so a broker that runs here and the "
            f"client took them from each other."
        )
    return " ".join(words)
