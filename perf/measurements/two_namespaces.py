"""One hot consumer in another network namespace than the broker, over a pair of veth devices.

Unlike loopback, a packet passes through two devices and two routing tables, and the client and the broker have network
stacks of their own, as containers have. The same fetches as in `zero_copy`, from kafkapy and from the bare loops. Needs
root and the command `ip`. Apache Kafka is left out: it would need a ZooKeeper in its namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from perf import frames
from perf.bare import bare_loop
from perf.cpu import used
from perf.fetch_load import Asks, fetch, of_bare_loop, of_broker, places_in
from perf.measurement import BARE, GIB, KAFKAPY, MIB, Bench, Figures, Goal, Measurement, Row
from perf.measurements.zero_copy import BATCH, KIB, MODES, SIZE, TOPIC
from perf.network import FAR, NoNamespaces, two_namespaces
from perf.raw_client import RawClient

SIZES = {64 * KIB: "64 KiB", 256 * KIB: "256 KiB", MIB: "1 MiB", 8 * MIB: "8 MiB"}
SHARE = 4  # the bytes are those of other streams divided by this
_T = TypeVar("_T")


def _key(mode: str, size: int, what: str) -> str:
    return f"two-namespaces.{mode}.{size}.{what}"


def _rows() -> Iterator[Row]:
    for size, words in SIZES.items():
        for mode in MODES:
            yield Row(
                _key(mode, size, "rate"),
                f"responses of {words} over veth, {mode}",
                "MB/s",
                "higher",
                Goal(0.75 if size == 64 * KIB else 0.9, BARE),
            )
            yield Row(_key(mode, size, "cpu"), f"CPU per GiB, {words} over veth, {mode}", "s", "lower", digits=3)


class TwoNamespaces(Measurement):
    name = "two_namespaces"
    about = "fetches of 64 KiB to 8 MiB between two network namespaces, with sendfile and with copying (needs root)"
    quick = False
    rows = tuple(_rows())

    def run(self, bench: Bench, kind: str) -> Figures:
        if kind != KAFKAPY:
            return {}
        return _or_note(bench, _of_broker)

    def limit(self, bench: Bench) -> Figures:
        return _or_note(bench, _of_bare_loops)


def _or_note(bench: Bench, measure: Callable[[Bench], Figures]) -> Figures:
    """Return the figures, or none, with a note, where network namespaces cannot be created."""
    try:
        return measure(bench)
    except NoNamespaces as error:
        bench.note("two-namespaces", f"two_namespaces was left out: {error}")
        return {}


def _of_broker(bench: Bench) -> Figures:
    found: Figures = {}
    values = frames.plain_values(SIZE, frames.records_that_fill(SIZE, BATCH))
    records = frames.batch(values)
    count = max(2 * max(SIZES), bench.scale.stream // SHARE) // len(records) // 50 * 50
    with bench.data() as data:
        with bench.fleet.running(KAFKAPY, data) as broker, RawClient(broker.port) as client:
            client.create_topic(TOPIC)
            client.stream(frames.produce(TOPIC, records, 1), count, 100, 50)
            end = client.end_offset(TOPIC)
        for mode, switch in MODES.items():
            settings = {"listeners": f"PLAINTEXT://{FAR}:0", "kafkapy.zero.copy.enable": switch}
            with two_namespaces() as (near, far), _there(far, bench.fleet.running(KAFKAPY, data, settings)) as broker:
                near.submit(_wait, broker.port).result()
                for size in SIZES:
                    batches = size // len(records)
                    places = places_in(end // len(values), batches)
                    load = broker.port, *of_broker(TOPIC, size, batches, len(values)), places
                    found |= _figures(bench, near, load, broker.pid, mode, size)
    return found


def _of_bare_loops(bench: Bench) -> Figures:
    found: Figures = {}
    with bench.data() as path:
        file = path / "bare"
        file.write_bytes(bytes(max(max(SIZES), bench.scale.stream // SHARE)))
        length = file.stat().st_size
        for mode in MODES:
            for size in SIZES:
                with two_namespaces() as (near, far), _there(far, bare_loop(mode, file, FAR)) as (pid, port):
                    load = port, *of_bare_loop(size), length // size
                    found |= _figures(bench, near, load, pid, mode, size)
    return found


@contextmanager
def _there(side: Executor, context: AbstractContextManager[_T]) -> Iterator[_T]:
    """Enter and exit the context on the thread of this executor, so that its processes are in the namespace."""
    entered: _T = side.submit(context.__enter__).result()
    try:
        yield entered
    finally:
        side.submit(context.__exit__, None, None, None).result()


def _wait(port: int) -> None:
    with RawClient(port, FAR) as client:
        client.wait_for_topic(TOPIC, create=False)


def _figures(bench: Bench, near: Executor, load: tuple[int, Asks, int, int], pid: int, mode: str, size: int) -> Figures:
    port, asks, answer, places = load
    count = max(2, bench.scale.stream // SHARE // max(size, 64 * KIB))
    near.submit(fetch, port, asks, answer, places, 1, max(1, count // 8), host=FAR).result()
    with used(pid) as usage:
        seconds = near.submit(fetch, port, asks, answer, places, 1, count, host=FAR).result()
    return {
        _key(mode, size, "rate"): count * size / 1e6 / seconds,
        _key(mode, size, "cpu"): usage.cpu / (count * size / GIB),
    }
