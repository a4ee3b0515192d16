"""Many consumers of one partition in one thread, each with one fetch in flight; the responses are discarded.

`fetch_load` runs them in a separate process, as load while something else is measured.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kafkapy.client.raw import fetching
from kafkapy.client.raw.fetching import Asks, places_in
from perf.frames import FetchFrame
from perf.processes import Child
from perf.raw_client import RawClient

__all__ = ["Asks", "places_in"]


def fetch(
    port: int,
    asks: Asks,
    answer: int,
    positions: int,
    consumers: int,
    count: int,
    *,
    apart: bool = False,
    host: str = "127.0.0.1",
) -> float:
    """Fetch as kafkapy.client.raw.fetching does, from a broker or a bare loop at this address."""
    with ExitStack() as ending:
        clients = [ending.enter_context(RawClient(port, host)) for _ in range(consumers)]
        return fetching.fetch(clients, asks, answer, positions, count, apart=apart)


def of_broker(topic: str, size: int, batches_an_answer: int, records_a_batch: int) -> tuple[Asks, int]:
    """Return the requests for `size` bytes from a broker, whose log has batches of equal length, and the length of a
    response."""
    frame = FetchFrame(topic, size)
    step = batches_an_answer * records_a_batch
    return lambda number: bytes(frame.at(number * step)), frame.head + size


def of_bare_loop(size: int) -> tuple[Asks, int]:
    return lambda number: struct.pack(">qq", number * size, size), size


@contextmanager
def fetch_load(
    port: int, topic: str, size: int, batches: int, records: int, positions: int, consumers: int, log: Path
) -> Iterator[Child]:
    """Run the consumers in a process; they are already fetching when the block begins."""
    numbers = map(str, (port, size, batches, records, positions, consumers))
    child = Child([sys.executable, "-m", "perf.fetch_load", topic, *numbers], log, keep_stdout=True)
    try:
        child.first_line("the consumers did not start")
        yield child
    finally:
        child.stop()


def main(topic: str, port: int, size: int, batches: int, records: int, positions: int, consumers: int) -> None:
    asks, answer = of_broker(topic, size, batches, records)
    fetch(port, asks, answer, positions, consumers, consumers)
    print("at work", flush=True)
    fetch(port, asks, answer, positions, consumers, sys.maxsize)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
