"""Reads a topic that is not in memory again and again: `python -m perf.cold_reader PORT TOPIC LOG BATCH RECORDS`.

Before each pass the segments of the partition in the directory LOG are dropped from memory. It prints `reading` when it
begins, then `MB/s SHARE` for each pass until it is ended: the rate, and the share of the pages that could not be
dropped. All batches have BATCH bytes and RECORDS records.
"""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kafkapy._ext import residency
from perf import frames
from perf.raw_client import RawClient

PATIENCE = 50  # calls: whole files go at the first one, nearly always


def main(port: int, topic: str, log: Path, batch_bytes: int, batch_records: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    fetch = frames.FetchFrame(topic)
    # Dropping is no load: whoever else wants a processor goes first.
    aside = ThreadPoolExecutor(1, initializer=os.nice, initargs=(19,))  # of that thread alone, on Linux
    with RawClient(port) as client:
        end = client.end_offset(topic)
        size = end // batch_records * batch_bytes
        left = aside.submit(drop, log).result()  # which waits until all is written
        print("reading", flush=True)
        while True:
            seconds = client.fetch_all(fetch, batch_bytes, batch_records, end)
            print(f"{size / 1e6 / seconds:.1f} {left / size:.4f}", flush=True)
            left = aside.submit(drop, log).result()


def drop(log: Path) -> int:
    """How many bytes of the segments are still in memory."""
    return sum(evict(path) for path in log.glob("*.log"))


def evict(path: Path) -> int:
    """Writes the file out and drops its pages; how many bytes are still in memory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        left = 1 if size else 0
        os.fsync(fd)
        for _ in range(PATIENCE if size else 0):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            left = residency.resident_pages(fd, 0, size)
            if not left:
                break
        return int(left * os.sysconf("SC_PAGESIZE"))
    finally:
        os.close(fd)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
