"""Many consumers of one partition at once, each with one fetch on the way, in one thread; what comes is discarded.

As a process of its own (`fetch_load`) it is load beside something else, until it is stopped.
"""

from __future__ import annotations

import itertools
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from perf.closed_loop import ask_in_turn
from perf.frames import FetchFrame
from perf.processes import Child
from perf.raw_client import RawClient

Asks = Callable[[int], bytes]  # the bytes that ask for what begins at a position


def fetch(
    port: int, asks: Asks, answer: int, positions: int, consumers: int, count: int, *, apart: bool = False
) -> float:
    """`count` answers of `answer` bytes each, heads included, from `positions` places in turn; returns seconds.

    `count` is at least `consumers`. Each takes the next place, or if they read `apart` the next of its own part.
    """
    with ExitStack() as ending:
        clients = [ending.enter_context(RawClient(port)) for _ in range(consumers)]
        share = max(1, positions // consumers) if apart else positions
        numbers = [itertools.count() for _ in clients] if apart else [itertools.count()] * consumers

        def frame_of(client: int) -> bytes:
            return asks((client * share + next(numbers[client]) % share) % positions)

        seconds, _ = ask_in_turn(clients, frame_of, count, [answer] * consumers)
        return seconds


def places_in(batches: int, batches_an_answer: int) -> int:
    """How many answers a log of so many batches has room for, whatever the last one holds; at least one."""
    return max(1, (batches - batches_an_answer - 1) // batches_an_answer)


def of_broker(topic: str, size: int, batches_an_answer: int, records_a_batch: int) -> tuple[Asks, int]:
    """How to ask a broker for `size` bytes, and how long its answer is, for a log of batches of one length."""
    frame = FetchFrame(topic, size)
    step = batches_an_answer * records_a_batch
    return lambda number: bytes(frame.at(number * step)), frame.head + size


def of_bare_loop(size: int) -> tuple[Asks, int]:
    return lambda number: struct.pack(">qq", number * size, size), size


@contextmanager
def fetch_load(
    port: int, topic: str, size: int, batches: int, records: int, positions: int, consumers: int, log: Path
) -> Iterator[Child]:
    """The consumers of a broker as a process, at work when the block begins."""
    numbers = map(str, (port, size, batches, records, positions, consumers))
    child = Child([sys.executable, "-m", "perf.fetch_load", topic, *numbers], log, keep_stdout=True)
    try:
        assert child.process.stdout is not None
        if not child.process.stdout.readline():
            child.process.wait()
            raise child.failure("the consumers did not start")
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
