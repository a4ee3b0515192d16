"""What the measurements of many partitions, connections, segments, topics and sessions have in common."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from perf.cpu import tree
from perf.raw_client import TIMEOUT, RawClient

TOGETHER = 50  # requests that are sent at a time


def own_memory(pid: int) -> int:
    """Bytes that the tree of `pid` has taken for itself (RssAnon): without pages of files, which all share."""
    total = 0
    for member in tree(pid):
        found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{member}/status").read_text())
        total += int(found[1]) * 1024 if found else 0
    return total


def open_files(pid: int) -> int:
    return sum(len(os.listdir(f"/proc/{member}/fd")) for member in tree(pid))


def open_sockets(pid: int) -> int:
    found = 0
    for member in tree(pid):
        for fd in os.listdir(f"/proc/{member}/fd"):
            try:
                found += os.readlink(f"/proc/{member}/fd/{fd}").startswith("socket:")
            except FileNotFoundError:  # closed meanwhile
                continue
    return found


def wait_for(done: Callable[[], bool], what: str, every: float = 0.01) -> None:
    """Asks rarely, so that the asking is no load."""
    deadline = time.monotonic() + 2 * TIMEOUT
    while not done():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} after {2 * TIMEOUT:.0f} s")
        time.sleep(every)


def ask_all(client: RawClient, requests: Sequence[bytes]) -> Iterable[bytes]:
    """Sends them, some at a time, and gives the answers."""
    for at in range(0, len(requests), TOGETHER):
        some = requests[at : at + TOGETHER]
        client.socket.sendall(b"".join(some))
        for _ in some:
            yield client.read_frame()
