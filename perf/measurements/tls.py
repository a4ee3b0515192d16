"""Produce and consume over TLS 1.3 with AES-256-GCM: throughput, and the broker's CPU.

A kafkapy broker is also measured without TLS and without zero-copy, because encryption needs a copy: the goal for the
CPU is that of this copying path and 1.6 times what `openssl speed` needs for the same bytes. Where the kernel has TLS
(`modprobe tls`), it is measured with kernel TLS, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from kafkapy.testing.secured import Secured
from perf import frames, shares
from perf.brokers import Broker
from perf.cpu import used
from perf.measurement import GIB, KAFKAPY, Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient, Refused
from perf.tls import TlsClient, client_context, kernel_has_tls, openssl_seconds, settings

SIZES = {1024: ("1k", "1 KiB"), 100: ("100b", "100 B")}
BATCH = 64 * 1024
WINDOW = 5
COPY, OPENSSL, KERNEL = "copy", "openssl", "kernel"
MODES = {COPY: "plain, by copying", OPENSSL: "TLS by OpenSSL", KERNEL: "TLS by the kernel"}
WHAT = ("produce", "consume")
SHARE = 1.6  # of what openssl speed needs
SHORTER = 2  # the bytes are those of other streams divided by this: there are many rows


def _modes() -> list[str]:
    return [COPY, OPENSSL, *([KERNEL] if kernel_has_tls() else [])]


def _rows() -> Iterator[Row]:
    for what in WHAT:
        for key, label in SIZES.values():
            for mode in _modes():
                name = f"tls.{what}.{key}.{mode}"
                goal = Goal(1.2) if mode == OPENSSL else None
                words = f"{what} {label}, {MODES[mode]}"
                yield Row(f"{name}.rate", words, "MB/s", "higher", goal, client=f"{name}.busiest")
                yield shares.busiest(name, words)
                yield Row(f"{name}.cpu", f"broker CPU per GiB, {words}", "s", "lower", digits=2)
            label = f"CPU of TLS above the plain copying path, {what} {label}"
            yield Row(f"tls.{what}.{key}.cost", label, "× openssl speed", "lower", Goal(SHARE, None), digits=2)
    yield Row("tls.openssl-speed", "openssl speed, aes-256-gcm, 16 KiB: CPU per GiB", "s", "lower", digits=2)


@functools.cache
def secured() -> Secured:
    return Secured(tls=True, users=None)


class Tls(Measurement):
    name = "tls"
    about = "produce and consume over TLS 1.3, AES-256-GCM, raw client: plain by copying, by OpenSSL, by the kernel"
    quick = False
    rows = tuple(_rows())

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        for mode in _modes():
            if kind != KAFKAPY and mode != OPENSSL:
                continue
            with bench.broker(kind, _settings(mode)) as broker:
                for size, (key, _) in SIZES.items():
                    found |= _measure(bench, broker, mode, size, key)
        if kind == KAFKAPY:
            found |= _costs(found)
        return found


def _settings(mode: str) -> dict[str, str]:
    if mode == COPY:
        return {"kafkapy.zero.copy.enable": "false"}
    return settings(secured(), {"kafkapy.ktls.enable": "true"} if mode == KERNEL else {})


def _measure(bench: Bench, broker: Broker, mode: str, size: int, key: str) -> Figures:
    connect: Callable[[], RawClient]
    if mode == COPY:
        connect = functools.partial(RawClient, broker.port)
    else:
        connect = functools.partial(TlsClient, broker.port, client_context(secured()))
    topic = f"tls-{key}"
    values = frames.plain_values(size, frames.records_that_fill(size, BATCH))
    records = frames.batch(values)
    frame, payload = frames.produce(topic, records, 1), size * len(values)
    count = max(WINDOW, bench.scale.stream // SHORTER // payload)
    warm = max(WINDOW, bench.scale.warm // SHORTER // payload)
    with connect() as client:
        client.create_topic(topic)
        client.stream(frame, warm, WINDOW)
        with used(broker.pid) as producing, shares.this_thread() as producer:
            seconds = client.stream(frame, count, WINDOW)
        end = client.end_offset(topic)
        if end != (warm + count + 2) * len(values):
            raise Refused(f"{topic} ends at {end}, not at {(warm + count + 2) * len(values)}: some produce failed")
        fetch = frames.FetchFrame(topic)
        client.fetch_all(fetch, len(records), len(values), warm * len(values))
        with used(broker.pid) as consuming, shares.this_thread() as consumer:
            fetching = client.fetch_all(fetch, len(records), len(values), end)
    produced, consumed = count * payload, end * size
    return {
        f"tls.produce.{key}.{mode}.rate": produced / 1e6 / seconds,
        f"tls.produce.{key}.{mode}.busiest": producer.percent,
        f"tls.produce.{key}.{mode}.cpu": producing.cpu / (produced / GIB),
        f"tls.consume.{key}.{mode}.rate": consumed / 1e6 / fetching,
        f"tls.consume.{key}.{mode}.busiest": consumer.percent,
        f"tls.consume.{key}.{mode}.cpu": consuming.cpu / (consumed / GIB),
    }


def _costs(found: Figures) -> Figures:
    """Return how many times `openssl speed` TLS costs. Can be negative where the load of the machine changes."""
    speed = openssl_seconds()
    costs = {"tls.openssl-speed": speed}
    for what in WHAT:
        for key, _ in SIZES.values():
            above = found[f"tls.{what}.{key}.{OPENSSL}.cpu"] - found[f"tls.{what}.{key}.{COPY}.cpu"]
            costs[f"tls.{what}.{key}.cost"] = max(0.0, above / speed)
    return costs
