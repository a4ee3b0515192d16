"""A cold reader: reads a log that is not in the page cache, again and again.

`python -m perf.cold_reader PORT LOG TOPIC BATCH RECORDS` reads a topic, whose batches have BATCH bytes and RECORDS
records each, from a broker; `python -m perf.cold_reader PORT LOG` reads the only file in LOG from a bare loop
(perf.bare). Before each pass it drops the segments in the directory LOG from the page cache. It prints `reading` when
it begins, then `MB/s SHARE` after each pass: the rate, and the share of the pages that could not be dropped.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kafkapy.tools.bench.page_cache import evict
from perf import frames
from perf.bare import CHUNK
from perf.raw_client import RawClient


def read_topic(port: int, log: Path, topic: str, batch_bytes: int, batch_records: int) -> None:
    fetch = frames.FetchFrame(topic)
    with RawClient(port) as client:
        end = client.end_offset(topic)
        size = end // batch_records * batch_bytes
        _again_and_again(log, size, lambda: client.fetch_all(fetch, batch_bytes, batch_records, end))


def read_bare(port: int, log: Path) -> None:
    (file,) = log.glob("*.log")
    size = file.stat().st_size
    with RawClient(port) as client:

        def once() -> float:
            began = time.perf_counter()
            for offset in range(0, size, CHUNK):
                client.socket.sendall(struct.pack(">qq", offset, min(CHUNK, size - offset)))
                client.discard(min(CHUNK, size - offset))
            return time.perf_counter() - began

        _again_and_again(log, size, once)


def _again_and_again(log: Path, size: int, once: Callable[[], float]) -> None:
    """Drop the log from the page cache and read it, until this process is ended; `once` reads it, returns seconds."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    # Dropping pages is not part of the load, so it has the lowest priority. On Linux, os.nice changes only this thread.
    aside = ThreadPoolExecutor(1, initializer=os.nice, initargs=(19,))
    left = aside.submit(drop, log).result()  # it waits until everything is written
    print("reading", flush=True)
    while True:
        seconds = once()
        print(f"{size / 1e6 / seconds:.1f} {left / size:.4f}", flush=True)
        left = aside.submit(drop, log).result()


def drop(log: Path) -> int:
    """Drop the segments from the page cache; return how many bytes of them are still in it."""
    return sum(evict(path) for path in log.glob("*.log"))


if __name__ == "__main__":
    at, where, *words = sys.argv[1:]
    if words:
        read_topic(int(at), Path(where), words[0], int(words[1]), int(words[2]))
    else:
        read_bare(int(at), Path(where))
