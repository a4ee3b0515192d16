"""Functions for the measurements of many partitions, connections, segments, topics and sessions."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from perf.cpu import tree
from perf.raw_client import TIMEOUT, RawClient

TOGETHER = 50  # requests sent in one call


def own_memory(pid: int) -> int:
    """Return the anonymous memory (RssAnon) of the tree of `pid` in bytes: without pages of files."""
    total = 0
    for member in tree(pid):
        found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{member}/status").read_text())
        total += int(found[1]) * 1024 if found else 0
    return total


def open_files(pid: int) -> int:
    return sum(len(os.listdir(f"/proc/{member}/fd")) for member in tree(pid))


def wait_for(done: Callable[[], bool], what: str, every: float = 0.01) -> None:
    """Wait until `done` returns True, polling every `every` seconds, so that polling costs little CPU time.

    Raise RuntimeError with `what` after two time-outs.
    """
    deadline = time.monotonic() + 2 * TIMEOUT
    while not done():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} after {2 * TIMEOUT:.0f} s")
        time.sleep(every)


def ask_all(client: RawClient, requests: Sequence[bytes]) -> Iterable[bytes]:
    """Send the requests, TOGETHER at a time, and yield the responses."""
    for at in range(0, len(requests), TOGETHER):
        some = requests[at : at + TOGETHER]
        client.socket.sendall(b"".join(some))
        for _ in some:
            yield client.read_frame()
