"""Latency from produce to ack with three replicas and acks=all, at a fixed rate, one record per request.

The requests take turns on several connections. On a single one, Apache Kafka handles a request only after the response
to the one before, so that at this rate its figures would be those of a queue that grows; kafkapy appends together what
has arrived meanwhile. The row "on one connection" shows that.
"""

from __future__ import annotations

from contextlib import ExitStack

from perf import frames
from perf.clusters import IDS, cluster
from perf.cpu import used
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.measurements.latency import RATE, SIZE, WINDOW
from perf.pacing import pace_in_turn
from perf.raw_client import RawClient
from perf.stats import percentile

CONNECTIONS = 10
SHARES = {"p50": (0.5, Goal(0.7)), "p99": (0.99, Goal(0.5)), "p99.9": (0.999, Goal(0.5))}
TOPIC = "latency"


class ReplicationLatency(Measurement):
    name = "replication_latency"
    quick = False
    about = f"three replicas, acks=all: produce to ack at {RATE:,}/s, one record of {SIZE} B per request"
    rows = (
        *(
            Row(f"replication.latency.{share}", f"ack at 1,000/s, 3 replicas, {share}", "ms", "lower", goal, 3)
            for share, (_, goal) in SHARES.items()
        ),
        Row("replication.latency.cpu", "CPU of all 3 brokers at 1,000/s", "% of a core", "lower", digits=1),
        Row("replication.latency.one", "ack at 1,000/s on one connection, p50", "ms", "lower", digits=3),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        seconds = bench.scale.paced_seconds
        frame = frames.produce(TOPIC, frames.batch(frames.plain_values(SIZE, 1)), frames.ACKS_ALL)
        with cluster(bench, kind) as running, ExitStack() as ending:
            running.create_topic(TOPIC, [IDS], min_insync_replicas="2")
            port = running.brokers[IDS[0]].port
            clients = [ending.enter_context(RawClient(port)) for _ in range(CONNECTIONS)]
            clients[0].stream(frame, bench.scale.requests // 4 // 10 * 10, WINDOW, 10)
            reply = clients[0].produce_once(frame)
            pace_in_turn(clients, frame, reply, RATE, seconds / 2)
            with used(*running.pids) as usage:
                latencies, lateness = pace_in_turn(clients, frame, reply, RATE, seconds)
            on_one, _ = clients[0].paced(frame, RATE, seconds / 2)
            running.check_in_sync(TOPIC, len(IDS))
        latencies.sort()
        lateness.sort()
        late = percentile(lateness, 0.99) * 1e6
        bench.note(
            f"replication.latency.{kind}", f"ack of {kind}, 3 replicas: 99 % of sends at most {late:.0f} µs late"
        )
        found = {f"replication.latency.{key}": percentile(latencies, share) * 1e3 for key, (share, _) in SHARES.items()}
        found["replication.latency.cpu"] = 100 * usage.cpu / usage.wall
        return found | {"replication.latency.one": percentile(sorted(on_one), 0.5) * 1e3}
