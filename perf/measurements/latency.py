"""Latency from produce to ack at a fixed rate, one record per request, acks=1.

The bare loop answers each frame without looking at it: no broker can be faster.
"""

from __future__ import annotations

import os
from contextlib import nullcontext

from perf import frames
from perf.bare import ANSWER, bare_loop
from perf.cpu import pinned, used
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient
from perf.stats import percentile

RATE = 1000
SIZE = 100
WINDOW = 100
SHARES = {"p50": (0.5, Goal(0.6)), "p99": (0.99, Goal(0.3)), "p99.9": (0.999, Goal(0.3))}
PLACES = {"pinned": "broker and client pinned to one core each", "free": "free placement"}
TOPIC = "latency"


class Latency(Measurement):
    name = "latency"
    kafka_4 = True
    about = (
        f"produce to ack at {RATE:,}/s, one record of {SIZE} B per request; pinned (one core each) and free placement"
    )
    rows = tuple(
        row
        for place in PLACES
        for row in (
            *(
                Row(f"latency.{place}.{share}", f"ack at 1,000/s, {place}, {share}", "ms", "lower", goal, digits=3)
                for share, (_, goal) in SHARES.items()
            ),
            Row(f"latency.{place}.cpu", f"broker CPU at 1,000/s, {place}", "% of a core", "lower", Goal(0.6), digits=1),
        )
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        frame = frames.produce(TOPIC, frames.batch(frames.plain_values(SIZE, 1)), 1)
        with bench.broker(kind) as broker, RawClient(broker.port) as client:
            client.create_topic(TOPIC)
            client.stream(frame, bench.scale.requests // 4 // 10 * 10, WINDOW, 10)
            reply = client.produce_once(frame)
            return self._at_each_place(bench, broker.pid, client, frame, reply)

    def limit(self, bench: Bench) -> Figures:
        frame = frames.produce(TOPIC, frames.batch(frames.plain_values(SIZE, 1)), 1)
        with bench.data() as path, bare_loop("echo", path / "bare") as (pid, port), RawClient(port) as client:
            return self._at_each_place(bench, pid, client, frame, len(ANSWER))

    def _at_each_place(self, bench: Bench, pid: int, client: RawClient, frame: bytes, reply: int) -> Figures:
        found: Figures = {}
        for place in PLACES:
            found |= self._at(bench, place, pid, client, frame, reply)
        return found

    def _at(self, bench: Bench, place: str, pid: int, client: RawClient, frame: bytes, reply: int) -> Figures:
        cores = sorted(os.sched_getaffinity(0))
        placed = pinned(pid, cores[:1], cores[-1:]) if place == "pinned" else nullcontext()
        seconds = bench.scale.acks / RATE
        with placed:
            client.pace(frame, reply, RATE, seconds / 10)
            with used(pid) as usage:
                latencies, lateness = client.pace(frame, reply, RATE, seconds)
        latencies.sort()
        lateness.sort()
        late = percentile(lateness, 0.99) * 1e6
        bench.note(f"latency.{place}", f"latency, {PLACES[place]}: the client sent 99 % at most {late:.0f} µs late")
        found = {f"latency.{place}.{key}": percentile(latencies, share) * 1e3 for key, (share, _) in SHARES.items()}
        found[f"latency.{place}.cpu"] = 100 * usage.cpu / usage.wall
        return found
