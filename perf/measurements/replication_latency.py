"""Latency from produce to ack with three replicas and acks=all, at a fixed rate, one record per request."""

from __future__ import annotations

from perf import frames
from perf.clusters import IDS, cluster
from perf.cpu import used
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.measurements.latency import RATE, SIZE, WINDOW
from perf.raw_client import RawClient
from perf.stats import percentile

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
        Row("replication.latency.cpu", "CPU of all brokers at 1,000/s, 3 replicas", "% of a core", "lower", digits=1),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        frame = frames.produce(TOPIC, frames.batch(frames.plain_values(SIZE, 1)), frames.ACKS_ALL)
        with cluster(bench, kind) as running:
            running.create_topic(TOPIC, [IDS], min_insync_replicas="2")
            with RawClient(running.brokers[IDS[0]].port) as client:
                client.stream(frame, bench.scale.requests // 4 // 10 * 10, WINDOW, 10)
                client.paced(frame, RATE, bench.scale.paced_seconds / 2)
                with used(*running.pids) as usage:
                    latencies, lateness = client.paced(frame, RATE, bench.scale.paced_seconds)
            running.check_in_sync(TOPIC, len(IDS))
        latencies.sort()
        lateness.sort()
        late = percentile(lateness, 0.99) * 1e6
        bench.note(f"replication.latency.{kind}", f"ack with 3 replicas: 99 % of sends at most {late:.0f} µs late")
        found = {f"replication.latency.{key}": percentile(latencies, share) * 1e3 for key, (share, _) in SHARES.items()}
        return found | {"replication.latency.cpu": 100 * usage.cpu / usage.wall}
