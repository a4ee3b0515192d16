"""One record per request, pipelined on one connection: the cost of a request with almost no data."""

from __future__ import annotations

from perf import frames, shares
from perf.cpu import used
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient, Refused

SIZE = 100
WINDOW = 100
TOGETHER = 10
TOPIC = "requests"


class Requests(Measurement):
    name = "requests"
    kafka_4 = True
    about = f"one record of {SIZE} B per request, one connection, {WINDOW} in flight, acks=1, raw client"
    rows = (
        Row(
            "requests.rate",
            "one record per request, pipelined",
            "requests/s",
            "higher",
            Goal(3.0),
            client="requests.busiest",
        ),
        Row("requests.cpu", "broker CPU per 100,000 requests", "s", "lower", Goal(0.3), digits=2),
        shares.busiest("requests", "one record per request, pipelined"),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        frame = frames.produce(TOPIC, frames.batch(frames.plain_values(SIZE, 1)), 1)
        count = bench.scale.requests // TOGETHER * TOGETHER
        warm = count // 4 // TOGETHER * TOGETHER
        with bench.broker(kind) as broker, RawClient(broker.port) as client:
            client.create_topic(TOPIC)
            client.stream(frame, warm, WINDOW, TOGETHER)
            with used(broker.pid) as usage, shares.this_thread() as thread:
                seconds = client.stream(frame, count, WINDOW, TOGETHER)
            if client.end_offset(TOPIC) != warm + count + 2:
                raise Refused(f"{TOPIC} ends at {client.end_offset(TOPIC)}, not at {warm + count + 2}")
        return {
            "requests.rate": count / seconds,
            "requests.cpu": usage.cpu * 100_000 / count,
            "requests.busiest": thread.percent,
        }
