"""The time of a rebalance, from the first join to the last assignment, and the latency of a producer meanwhile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from perf import frames
from perf.brokers import Broker
from perf.cpu import used
from perf.group_members import GroupMembers
from perf.machine import ROOT
from perf.measurement import FULL, Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient
from perf.stats import percentile

SIZES = (10, 100, 1000)
RATE = 500
SIZE = 100
TOPIC = "beside"
BESIDE = 1000
EVERY_S = 1.0
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


class Rebalance(Measurement):
    name = "rebalance"
    kafka_4 = True
    about = (
        "first join to last assignment in a stable group, all members with new metadata; and produce to ack at "
        f"{RATE:,}/s, alone and while a group of {BESIDE:,} rebalances every {EVERY_S:g} s"
    )
    rows = (
        *(
            Row(f"rebalance.{size}", f"rebalance of {size:,} members, median", "ms", "lower", Goal(1 / 1.5), digits=1)
            for size in SIZES
        ),
        Row("rebalance.cpu", f"broker CPU for a rebalance of {SIZES[-1]:,} members", "ms", "lower", digits=0),
        *(
            Row(f"rebalance.{when}.{share}", f"ack at {RATE}/s, {what}, {share}", "ms", "lower", digits=3)
            for when, what in (("alone", "no rebalance"), ("beside", f"{BESIDE:,} members rebalance"))
            for share in SHARES
        ),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        is_full = bench.scale.name == FULL.name
        with bench.broker(kind, SETTINGS) as broker:
            for size in SIZES:
                with GroupMembers(broker.port, f"group-{size}", size) as members:
                    for _ in range(20 if is_full else 3):  # until a JVM has compiled its hot code
                        members.rebalance()
                    count = 15 if is_full else 5
                    with used(broker.pid) as usage:
                        took = sorted(members.rebalance() for _ in range(count))
                found["rebalance.cpu"] = usage.cpu / count * 1e3  # of the last and largest group
                found[f"rebalance.{size}"] = percentile(took, 0.5) * 1e3
            found |= self._beside(bench, broker)
        return found

    def _beside(self, bench: Bench, broker: Broker) -> Figures:
        seconds = bench.scale.paced_seconds
        frame = frames.produce(TOPIC, frames.batch(frames.plain_values(SIZE, 1)), 1)
        found: Figures = {}
        with RawClient(broker.port) as client:
            client.create_topic(TOPIC)
            client.paced(frame, RATE, seconds / 4)
            for when in ("alone", "beside"):
                if when == "beside":
                    with _rebalancing(bench, broker) as rounds:
                        latencies = sorted(client.paced(frame, RATE, seconds)[0])
                    bench.note(f"rebalance.{broker.kind}", f"{broker.kind}, during produce: {rounds[0]}")
                else:
                    latencies = sorted(client.paced(frame, RATE, seconds)[0])
                for share, part in SHARES.items():
                    found[f"rebalance.{when}.{share}"] = percentile(latencies, part) * 1e3
        return found


@contextmanager
def _rebalancing(bench: Bench, broker: Broker) -> Iterator[list[str]]:
    """Run a process with a group that rebalances; at the end of the block the list has one sentence about it."""
    lines: list[str] = []
    command = [sys.executable, "-m", "perf.group_members", str(broker.port), str(BESIDE), str(EVERY_S)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdin is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"{' '.join(command)} could not form its group")
            yield lines
            process.stdin.close()
            count, seconds = process.stdout.readline().split()
            each = float(seconds) / max(1, int(count)) * 1e3
            lines.append(f"{count} rebalances of {BESIDE:,} members, {each:.0f} ms each on average")
        except BaseException:
            process.kill()
            raise
