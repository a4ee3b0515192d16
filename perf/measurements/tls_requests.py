"""One record a request over TLS: pipelined, and the latency at a fixed rate beside that without TLS."""

from __future__ import annotations

import os
from collections.abc import Mapping

from perf import frames
from perf.cpu import pinned, used
from perf.measurement import KAFKAPY, Bench, Figures, Goal, Measurement, Row
from perf.measurements.tls import secured
from perf.raw_client import RawClient, Refused
from perf.stats import percentile
from perf.tls import TlsClient, client_context, settings

SIZE = 100
WINDOW = 100
TOGETHER = 10
RATE = 1000
TOPIC = "tls-requests"
SHARES = {"p50": 0.5, "p99": 0.99}
TLS, PLAIN = "tls", "plain"


class TlsRequests(Measurement):
    name = "tls_requests"
    about = f"one record of {SIZE} B per request over TLS 1.3: {WINDOW} in flight, and at {RATE:,}/s, pinned"
    rows = (
        Row("tls-requests.rate", "one record per request, TLS, pipelined", "requests/s", "higher", Goal(2.0)),
        Row("tls-requests.cpu", "broker CPU per 100,000 requests, TLS", "s", "lower", digits=2),
        *(
            Row(f"tls-requests.{share}.{how}", f"ack at 1,000/s, {how}, {share}", "ms", "lower", digits=3)
            for share in SHARES
            for how in (PLAIN, TLS)
        ),
        Row("tls-requests.p99.times", "p99 at 1,000/s, TLS", "× plain", "lower", Goal(1.3, None), digits=2),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        for how in (PLAIN, TLS) if kind == KAFKAPY else (TLS,):
            found |= _measure(bench, kind, how, settings(secured()) if how == TLS else {})
        if kind == KAFKAPY:
            found["tls-requests.p99.times"] = found["tls-requests.p99.tls"] / found["tls-requests.p99.plain"]
        return found


def _measure(bench: Bench, kind: str, how: str, broker_settings: Mapping[str, str]) -> Figures:
    frame = frames.produce(TOPIC, frames.batch(frames.plain_values(SIZE, 1)), 1)
    count = bench.scale.requests // TOGETHER * TOGETHER
    warm = count // 4 // TOGETHER * TOGETHER
    cores = sorted(os.sched_getaffinity(0))
    found: Figures = {}
    with bench.broker(kind, broker_settings) as broker:
        client = TlsClient(broker.port, client_context(secured())) if how == TLS else RawClient(broker.port)
        with client:
            client.create_topic(TOPIC)
            client.stream(frame, warm, WINDOW, TOGETHER)
            if how == TLS:
                with used(broker.pid) as usage:
                    seconds = client.stream(frame, count, WINDOW, TOGETHER)
                if client.end_offset(TOPIC) != warm + count + 2:
                    raise Refused(f"{TOPIC} ends at {client.end_offset(TOPIC)}, not at {warm + count + 2}")
                found["tls-requests.rate"] = count / seconds
                found["tls-requests.cpu"] = usage.cpu * 100_000 / count
            with pinned(broker.pid, cores[:1], cores[-1:]):
                client.paced(frame, RATE, bench.scale.paced_seconds / 4)
                latencies, _ = client.paced(frame, RATE, bench.scale.paced_seconds)
    latencies.sort()
    for share, part in SHARES.items():
        found[f"tls-requests.{share}.{how}"] = percentile(latencies, part) * 1e3
    return found
