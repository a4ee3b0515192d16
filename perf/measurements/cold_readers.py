"""How much a consumer that reads from disk slows down a producer: acks at a fixed rate, idle and with such a reader.

The log is dropped from the page cache before the reader begins, and never while acks are timed: the reader reads all of
it, the producer ends with it, the log is dropped again, and so on, until there are enough acks.

How long acks wait depends on the memory into which the log is read, so there are two states. "Memory full": memory is
full of the clean pages of another file, which the kernel has to evict first, as on a machine that has run for a while.
What is still free then is in pieces that are too small for the large pages of files. "Memory free": the same, but just
before, more of that other file was removed than the log needs, so the host has not taken the pages back yet.

The bare loop is two processes that share only the machine: one writes each small frame and sends an answer, the other
sends a file that is not in memory.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

from perf import frames
from perf.bare import ANSWER, CHUNK, bare_loop
from perf.cold_reader import cold_reader, drop
from perf.cpu import Usage, used
from perf.machine import memory_info
from perf.measurement import GIB, MIB, Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient
from perf.stats import percentile

RATE = 1000
SIZE = 100
RECORD = 1024
BATCH = 64 * 1024
COLD = "cold"
HOT = "hot"
SHARES = {"p99": 0.99, "p99.9": 0.999}
STATES = {"full": "memory full", "free": "memory free"}
GOALS = {"p99": Goal(1.5, None), "p99.9": Goal(2.0, None), "rate": Goal(2.0), "cpu": Goal(0.5)}  # with full memory
ROOM = GIB  # freed in addition to the log's size
LEAST = 512 * MIB  # stays free in full memory: with less, the kernel frees some by itself
PASSES = 25  # at most, if they are short


def _rows(state: str, words: str) -> tuple[Row, ...]:
    goals = GOALS if state == "full" else {}
    key = f"cold_readers.{state}"
    rows = []
    for share in SHARES:
        rows += [
            Row(f"{key}.{share}", f"ack at {RATE:,}/s beside a cold reader, {words}, {share}", "ms", "lower", digits=3),
            Row(f"{key}.times.{share}", f"beside / idle, {words}, {share}", "x", "lower", goals.get(share), digits=2),
        ]
    rows.append(Row(f"{key}.rate", f"the cold reader, {words}", "MB/s", "higher", goals.get("rate")))
    rows.append(Row(f"{key}.cpu", f"its CPU in the broker, {words}", "s per GiB", "lower", goals.get("cpu"), digits=2))
    return tuple(rows)


@dataclass(frozen=True)
class Load:
    """A producer with one small frame per request, and the arguments of perf.cold_reader for the log in `log`."""

    client: RawClient
    frame: bytes
    reply: int  # bytes
    pids: tuple[int, ...]  # of the broker, or of the bare loops
    log: Path
    words: tuple[str, ...]
    output: Path

    def acks(self, seconds: float, until: int | None = None) -> list[float]:
        return self.client.pace(self.frame, self.reply, RATE, seconds, until)[0]


class ColdReaders(Measurement):
    name = "cold_readers"
    kafka_4 = True
    quick = False  # takes minutes
    about = f"produce to ack at {RATE:,}/s, idle and with a consumer that reads from disk; in full and in free memory"
    rows = (
        *(Row(f"cold_readers.idle.{share}", f"ack at {RATE:,}/s, idle, {share}", "ms", "lower", digits=3)
          for share in SHARES),
        *(row for state, words in STATES.items() for row in _rows(state, words)),
    )  # fmt: skip

    def run(self, bench: Bench, kind: str) -> Figures:
        values = frames.plain_values(RECORD, frames.records_that_fill(RECORD, BATCH))
        records = frames.batch(values)
        frame = frames.produce(HOT, frames.batch(frames.plain_values(SIZE, 1)), 1)
        with bench.broker(kind) as broker, RawClient(broker.port) as client:
            client.create_topic(COLD)
            client.create_topic(HOT)
            client.stream(frames.produce(COLD, records, 1), 4 * bench.scale.stream // len(records) // 5 * 5, 5)
            log = broker.log_directory / f"{COLD}-0"
            words = str(broker.port), str(log), COLD, str(len(records)), str(len(values))
            reply = client.produce_once(frame)
            output = broker.data / "cold_reader.out"
            return _measure(bench, kind, Load(client, frame, reply, (broker.pid,), log, words, output))

    def limit(self, bench: Bench) -> Figures:
        frame = frames.produce(HOT, frames.batch(frames.plain_values(SIZE, 1)), 1)
        with bench.data() as path:
            cold = path / f"{COLD}.log"
            with cold.open("wb") as output:
                for _ in range(4 * bench.scale.stream // CHUNK):
                    output.write(bytes(CHUNK))
            with (
                bare_loop("append", path / HOT) as (pid, port),
                bare_loop("sendfile", cold) as (cold_pid, cold_port),
                RawClient(port) as client,
            ):
                words = str(cold_port), str(path)
                load = Load(client, frame, len(ANSWER), (pid, cold_pid), path, words, path / "cold_reader.out")
                return _measure(bench, "bare", load)


def _measure(bench: Bench, side: str, load: Load) -> Figures:
    wanted = bench.scale.acks
    load.acks(wanted / RATE / 4)  # warm
    with used(*load.pids) as usage:
        idle = sorted(load.acks(wanted / RATE))
    found = {f"cold_readers.idle.{share}": percentile(idle, part) * 1e3 for share, part in SHARES.items()}
    for state in STATES:
        acks, figures = _beside(bench, side, load, state, usage)
        key = f"cold_readers.{state}"
        found |= {f"{key}.{what}": figure for what, figure in figures.items()}
        for share, part in SHARES.items():
            milliseconds = percentile(acks, part) * 1e3
            found[f"{key}.{share}"] = milliseconds
            found[f"{key}.times.{share}"] = milliseconds / found[f"cold_readers.idle.{share}"]
    return found


def _beside(bench: Bench, side: str, load: Load, state: str, idle: Usage) -> tuple[list[float], Figures]:
    """Return the ordered latencies of acks beside readers, and the rate and the CPU of a reader. The CPU time
    of acks without a reader (`idle`) is subtracted from that of the reader."""
    acks: list[float] = []
    rates, costs, free, kept = [], [], [], 0
    while len(acks) < bench.scale.acks and len(rates) < PASSES:
        kept += drop(load.log)
        _prepare(bench, load.log, state)
        free.append(memory_info()["MemFree"] / GIB)
        with cold_reader([*load.words], load.output) as reader, used(*load.pids) as usage:
            acks += load.acks(bench.scale.acks / RATE, reader.done)
            size, seconds = reader.result()
        rates.append(size / 1e6 / seconds)
        costs.append(max(0.0, usage.cpu - idle.cpu / idle.wall * usage.wall) / (size / GIB))
    bench.note(
        f"cold_readers.{side}.{state}",
        f"cold_readers, {side}, {STATES[state]}: {len(acks):,} acks in {len(rates)} passes of the reader, before which "
        f"{min(free):.1f} to {max(free):.1f} GiB were free and {kept / MIB:.0f} MiB could not be dropped",
    )
    return sorted(acks), {"rate": statistics.median(rates), "cpu": statistics.median(costs)}


def _prepare(bench: Bench, log: Path, state: str) -> None:
    bench.warmth.top_up(LEAST)
    if state == "free":
        bench.warmth.free(sum(path.stat().st_size for path in log.glob("*.log")) + ROOM)
