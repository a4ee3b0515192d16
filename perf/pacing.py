"""Requests at a fixed rate on several connections in turn, whatever their responses do."""

from __future__ import annotations

import gc
import select
import time
from collections import deque
from collections.abc import Sequence

from perf.raw_client import TIMEOUT, RawClient, Refused


def pace_in_turn(
    clients: Sequence[RawClient], frame: bytes, reply: int, rate: float, seconds: float
) -> tuple[list[float], list[float]]:
    """Send `rate` frames per second in all, one connection after the other; each frame has a response of `reply` bytes.
    Return latencies and delays of the sends, in seconds, as RawClient.pace does.
    """
    count = int(rate * seconds)
    by_fd = {client.socket.fileno(): client for client in clients}
    sent_at: dict[int, deque[float]] = {fd: deque() for fd in by_fd}
    partial = dict.fromkeys(by_fd, 0)
    turns = list(by_fd)
    buffer = memoryview(bytearray(1 << 16))
    latencies: list[float] = []
    lateness: list[float] = []
    poller = select.epoll()
    gc.disable()  # pauses of the client must not count as latency of the broker
    try:
        for fd in by_fd:
            poller.register(fd, select.EPOLLIN)
        began = time.perf_counter()
        while len(latencies) < count:
            now = time.perf_counter()
            due = began + len(lateness) / rate
            if len(lateness) < count and now >= due:
                fd = turns[len(lateness) % len(turns)]
                by_fd[fd].socket.sendall(frame)
                sent_at[fd].append(now)
                lateness.append(now - due)
                continue
            ready = poller.poll(due - now if len(lateness) < count else TIMEOUT)
            if not ready and len(lateness) == count:
                raise Refused(f"no response for {TIMEOUT:.0f} s")
            for fd, _ in ready:
                got = by_fd[fd].socket.recv_into(buffer)
                if not got:
                    raise ConnectionError("the broker closed a connection")
                partial[fd] += got
                now = time.perf_counter()
                while partial[fd] >= reply:
                    partial[fd] -= reply
                    latencies.append(now - sent_at[fd].popleft())
    finally:
        gc.enable()
        poller.close()
    return latencies, lateness
