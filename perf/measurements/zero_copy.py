"""Compares copying with zero-copy: the same fetches with sendfile and with read and send, in brokers and in bare loops.

Each response has `size` bytes of a log. One run compares the broker with kafkapy.zero.copy.enable on and off, a bare
loop with sendfile and one with read and send, and Apache Kafka, which has only sendfile.

The log is in the page cache, except in two states. "Cold": it was just dropped from the page cache and is read once.
"Little memory": it is read twice by a broker whose page cache has room for half of it. In these states each consumer
reads its own part of the log (in one row, all of it), and a row has the share that came from disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from kafkapy.tools.bench.page_cache import bring_in, read_from_disk
from perf import frames
from perf.bare import bare_loop
from perf.brokers import Broker
from perf.cold_reader import drop
from perf.cpu import used
from perf.fetch_load import Asks, fetch, fetch_load, of_bare_loop, of_broker, places_in
from perf.measurement import BARE, GIB, KAFKAPY, MIB, Bench, Figures, Goal, Measurement, Row
from perf.page_cache import little_memory
from perf.raw_client import RawClient
from perf.stats import percentile

KIB = 1024
SIZES = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 8 * MIB)
CONSUMERS = (8, 64)  # in addition to one, at 1 MiB
FEW = (1, 8)  # cold and with little memory
PASSES = {"cold": 1, "little memory": 2}
TOGETHER = "cold, the same records"  # each of the most consumers reads all of the log
FROM_DISK = (*itertools.product(PASSES, FEW), (TOGETHER, FEW[-1]))  # (state, number of consumers)
ONE = 1
MODES = {"sendfile": "true", "copy": "false"}
BATCH = 4 * KIB  # no batch is longer than the smallest response
SIZE = 999  # of a record: four of them and the header of a batch fit into BATCH
TOPIC = "copies"
LEAST = 64 * MIB  # least memory of a broker for files
SHARE = 2  # the bytes are those of other streams divided by this: there are many sizes, and one segment must have all
BESIDE_RATE = 500
BESIDE = {"beside": "", "beside, little memory": " and little memory"}


def _named(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def _loads() -> Iterator[tuple[int, int]]:
    """Yield (size of a response, number of consumers)."""
    for size in SIZES:
        yield size, ONE
    for consumers in CONSUMERS:
        yield MIB, consumers


def _key(mode: str, size: int, consumers: int, what: str) -> str:
    return f"zero-copy.{mode}.{consumers}.{size}.{what}"


def _rows() -> Iterator[Row]:
    for size, consumers in _loads():
        for mode in MODES:
            what = f"{_named(size)}, {mode}" + (f", {consumers} consumers" if consumers > 1 else "")
            yield Row(
                _key(mode, size, consumers, "rate"), f"responses of {what}", "MB/s", "higher",
                Goal(0.75 if size == 64 * KIB else 0.9, BARE) if consumers == 1 and size >= 64 * KIB else None,
            )  # fmt: skip
            yield Row(_key(mode, size, consumers, "cpu"), f"CPU per GiB, {what}", "s", "lower", digits=3)
            yield Row(_key(mode, size, consumers, "system"), f"of it in the kernel, {what}", "s", "lower", digits=3)
    for (state, consumers), mode in itertools.product(FROM_DISK, MODES):
        what = f"1 MiB, {state}, {mode}" + (f", {consumers} consumers" if consumers > 1 else "")
        key = f"zero-copy.{state}.{mode}.{consumers}"
        yield Row(f"{key}.rate", f"responses of {what}", "MB/s", "higher")
        yield Row(f"{key}.cpu", f"CPU per GiB, {what}", "s", "lower", digits=3)
        yield Row(f"{key}.system", f"of it in the kernel, {what}", "s", "lower", digits=3)
        yield Row(f"{key}.missed", f"read from disk, {what}", "% of the bytes sent", "lower")
    for (key, beside), mode in itertools.product(BESIDE.items(), MODES):
        yield Row(
            f"zero-copy.{key}.{mode}", f"p99 of produce at {BESIDE_RATE}/s with 8 consumers of 1 MiB{beside}, {mode}",
            "ms", "lower", digits=3,
        )  # fmt: skip


def loads_in_words() -> Iterator[tuple[str, str]]:
    """Yield each load in words, and the beginning of its row keys, with a placeholder {mode}."""
    for size, consumers in _loads():
        many = f", {consumers} consumers" if consumers > 1 else ""
        yield f"{_named(size)}{many}", f"zero-copy.{{mode}}.{consumers}.{size}"
    for state, consumers in FROM_DISK:
        many = f", {consumers} consumers" if consumers > 1 else ""
        yield f"1 MiB{many}, {state}", f"zero-copy.{state}.{{mode}}.{consumers}"


class ZeroCopy(Measurement):
    name = "zero_copy"
    kafka_4 = True
    about = "fetches of 4 KiB to 8 MiB with sendfile and with copying, 1 to 64 consumers; hot, cold, with little memory"
    quick = False
    rows = tuple(_rows())

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        values = frames.plain_values(SIZE, frames.records_that_fill(SIZE, BATCH))
        records = frames.batch(values)
        log_bytes = max(2 * SIZES[-1], bench.scale.stream // SHARE)
        with bench.data() as data:
            with bench.fleet.running(kind, data) as broker, RawClient(broker.port) as client:
                client.create_topic(TOPIC)
                many = frames.produce(TOPIC, records, 1)
                client.stream(many, max(100, log_bytes // len(records)) // 50 * 50, 100, 50)
                end = client.end_offset(TOPIC)
            for mode, switch in MODES.items() if kind == KAFKAPY else [("sendfile", "")]:
                settings = {"kafkapy.zero.copy.enable": switch} if switch else {}
                with bench.fleet.running(kind, data, settings) as broker:
                    found |= _measure(bench, broker, mode, len(records), len(values), end)
        return found

    def limit(self, bench: Bench) -> Figures:
        found: Figures = {}
        with bench.data() as path:
            file = path / "bare"
            file.write_bytes(bytes(max(SIZES[-1], bench.scale.stream // SHARE)))
            length = file.stat().st_size
            for mode in MODES:
                for size in SIZES:
                    asks, answer = of_bare_loop(size)
                    with bare_loop(mode, file) as (pid, port):
                        load = port, asks, answer, length // size
                        found |= _figures(bench, load, pid, mode, size, ONE)
        return found


def _measure(bench: Bench, broker: Broker, mode: str, batch_bytes: int, batch_records: int, end: int) -> Figures:
    found: Figures = {}
    log = broker.log_directory / f"{TOPIC}-0"
    with RawClient(broker.port) as client:
        client.wait_for_topic(TOPIC, create=False)
    for size, consumers in _loads():
        # Repeat this for each load: pages that the kernel has dropped would be read and dropped again in every pass.
        for file in log.glob("*.log"):
            bring_in(file)
        batches = max(1, size // batch_bytes)
        places = places_in(end // batch_records, batches)
        asks, answer = of_broker(TOPIC, size, batches, batch_records)
        found |= _figures(bench, (broker.port, asks, answer, places), broker.pid, mode, size, consumers)
    batches = MIB // batch_bytes
    places = places_in(end // batch_records, batches)
    asks, answer = of_broker(TOPIC, MIB, batches, batch_records)
    load = broker.port, asks, answer, places
    with RawClient(broker.port) as producer:
        if mode == "sendfile":
            producer.create_topic("beside")
        with fetch_load(broker.port, TOPIC, MIB, batches, batch_records, places, 8, broker.data / f"{mode}.load"):
            found[f"zero-copy.beside.{mode}"] = _p99(bench, producer)
        found |= _from_disk(load, broker, log, mode, "cold")
        found |= _from_disk(load, broker, log, mode, TOGETHER)
        length = sum(path.stat().st_size for path in log.glob("*.log"))
        with little_memory(broker.pid, max(length // 2, LEAST), broker.data) as how:
            bench.note("zero-copy", f"zero_copy, little memory: {how}, the log has {length // MIB} MiB")
            found |= _from_disk(load, broker, log, mode, "little memory")
            with fetch_load(broker.port, TOPIC, MIB, batches, batch_records, places, 8, broker.data / f"{mode}.load"):
                found[f"zero-copy.beside, little memory.{mode}"] = _p99(bench, producer)
    return found


def _p99(bench: Bench, producer: RawClient) -> float:
    frame = frames.produce("beside", frames.batch(frames.plain_values(100, 1)), 1)
    latencies, _ = producer.paced(frame, BESIDE_RATE, bench.scale.paced_seconds / 3)
    return percentile(sorted(latencies), 0.99) * 1e3


def _from_disk(load: tuple[int, Asks, int, int], broker: Broker, log: Path, mode: str, state: str) -> Figures:
    """Read the log PASSES times with few consumers. Each reads its own part, or in the state TOGETHER all of it."""
    found: Figures = {}
    port, asks, answer, places = load
    for consumers in (few for each, few in FROM_DISK if each == state):
        copies = consumers if state == TOGETHER else 1
        count = max(consumers, PASSES.get(state, copies) * (places // consumers) * consumers)
        drop(log)
        before = read_from_disk()
        with used(broker.pid) as usage:
            seconds = fetch(
                port, lambda number: asks(number % places), answer, copies * places, consumers, count, apart=True
            )
        key, sent = f"zero-copy.{state}.{mode}.{consumers}", count * answer
        found |= {
            f"{key}.rate": sent / 1e6 / seconds,
            f"{key}.cpu": usage.cpu / (sent / GIB),
            f"{key}.system": usage.system / (sent / GIB),
            f"{key}.missed": 100 * (read_from_disk() - before) / sent,
        }
    return found


def _figures(bench: Bench, load: tuple[int, Asks, int, int], pid: int, mode: str, size: int, consumers: int) -> Figures:
    port, asks, answer, places = load
    count = max(2 * consumers, bench.scale.stream // SHARE // max(size, 64 * KIB))
    fetch(port, asks, answer, places, consumers, max(consumers, count // 8))
    with used(pid) as usage:
        seconds = fetch(port, asks, answer, places, consumers, count)
    gib = count * size / GIB
    return {
        _key(mode, size, consumers, "rate"): count * size / 1e6 / seconds,
        _key(mode, size, consumers, "cpu"): usage.cpu / gib,
        _key(mode, size, consumers, "system"): usage.system / gib,
    }
