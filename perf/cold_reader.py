"""A cold reader: reads a log once after the log was dropped from the page cache.

`python -m perf.cold_reader PORT LOG TOPIC BATCH RECORDS` reads a topic, whose batches have BATCH bytes and RECORDS
records each, from a broker; `python -m perf.cold_reader PORT LOG` reads the only file in LOG from a bare loop
(perf.bare). It prints `reading` when it begins, and at the end the bytes and the seconds.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkapy.tools.bench.page_cache import evict
from perf import frames
from perf.bare import CHUNK
from perf.processes import Child
from perf.raw_client import RawClient


class ColdReader:
    """A handle of the reader process, for the process that started it."""

    def __init__(self, child: Child) -> None:
        assert child.process.stdout is not None
        self._child = child
        self._stdout = child.process.stdout
        self.done = self._stdout.fileno()  # readable when everything was read

    def result(self) -> tuple[int, float]:
        """Wait for the end; return the bytes read and the seconds."""
        words = self._stdout.readline().split()
        if len(words) != 2:
            raise self._child.failure("the cold reader did not end")
        return int(words[0]), float(words[1])


@contextmanager
def cold_reader(words: list[str], output: Path) -> Iterator[ColdReader]:
    """Start a reader with these arguments; it is reading when the block begins. Its errors go to the file `output`."""
    child = Child([sys.executable, "-m", "perf.cold_reader", *words], output, keep_stdout=True)
    try:
        child.first_line("the cold reader did not start")
        yield ColdReader(child)
    finally:
        child.stop()


def read_topic(port: int, topic: str, batch_bytes: int, batch_records: int) -> None:
    fetch = frames.FetchFrame(topic)
    with RawClient(port) as client:
        end = client.end_offset(topic)
        print("reading", flush=True)
        seconds = client.fetch_all(fetch, batch_bytes, batch_records, end)
    print(end // batch_records * batch_bytes, seconds, flush=True)


def read_bare(port: int, log: Path) -> None:
    (file,) = log.glob("*.log")
    size = file.stat().st_size
    with RawClient(port) as client:
        print("reading", flush=True)
        began = time.perf_counter()
        for offset in range(0, size, CHUNK):
            client.socket.sendall(struct.pack(">qq", offset, min(CHUNK, size - offset)))
            client.discard(min(CHUNK, size - offset))
        print(size, time.perf_counter() - began, flush=True)


def drop(log: Path) -> int:
    """Drop the segments from the page cache; return how many bytes of them are still in it."""
    return sum(evict(path) for path in log.glob("*.log"))


if __name__ == "__main__":
    at, where, *words = sys.argv[1:]
    if words:
        read_topic(int(at), words[0], int(words[1]), int(words[2]))
    else:
        read_bare(int(at), Path(where))
