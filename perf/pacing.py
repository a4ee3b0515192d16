"""Requests at a fixed rate on several connections in turn, whatever their responses do."""

from __future__ import annotations

import gc
import select
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from perf.raw_client import TIMEOUT, RawClient, Refused


def pace_in_turn(
    clients: Sequence[RawClient], frame: bytes, reply: int, rate: float, seconds: float
) -> tuple[list[float], list[float]]:
    """Send `rate` frames per second in all, one connection after the other; each frame has a response of `reply` bytes.
    Return latencies and delays of the sends, in seconds, as RawClient.pace does.
    """
    acks, lateness = pace_each(clients, [frame] * len(clients), reply, rate, seconds)
    return [ack.latency for each in acks for ack in each], lateness


class Ack(NamedTuple):
    """When a request was sent (perf_counter), and the seconds until its response was read."""

    sent: float
    latency: float


def pace_each(
    clients: Sequence[RawClient], frames: Sequence[bytes], reply: int, rate: float, seconds: float
) -> tuple[list[list[Ack]], list[float]]:
    """Do what `pace_in_turn` does, with frames[k] for client k. Return the acks of each client, and the delays of all
    sends, in seconds."""
    count = int(rate * seconds)
    turns = [client.socket.fileno() for client in clients]
    of_fd = {fd: (client, frame) for fd, client, frame in zip(turns, clients, frames, strict=True)}
    sent_at: dict[int, deque[float]] = {fd: deque() for fd in turns}
    partial = dict.fromkeys(turns, 0)
    acks: dict[int, list[Ack]] = {fd: [] for fd in turns}
    buffer = memoryview(bytearray(1 << 16))
    received = 0
    lateness: list[float] = []
    poller = select.epoll()
    gc.disable()  # pauses of the client must not count as latency of the broker
    try:
        for fd in turns:
            poller.register(fd, select.EPOLLIN)
        began = time.perf_counter()
        while received < count:
            now = time.perf_counter()
            due = began + len(lateness) / rate
            if len(lateness) < count and now >= due:
                fd = turns[len(lateness) % len(turns)]
                client, frame = of_fd[fd]
                client.socket.sendall(frame)
                sent_at[fd].append(now)
                lateness.append(now - due)
                continue
            ready = poller.poll(due - now if len(lateness) < count else TIMEOUT)
            if not ready and len(lateness) == count:
                raise Refused(f"no response for {TIMEOUT:.0f} s")
            for fd, _ in ready:
                got = of_fd[fd][0].socket.recv_into(buffer)
                if not got:
                    raise ConnectionError("the broker closed a connection")
                partial[fd] += got
                now = time.perf_counter()
                while partial[fd] >= reply:
                    partial[fd] -= reply
                    sent = sent_at[fd].popleft()
                    acks[fd].append(Ack(sent, now - sent))
                    received += 1
    finally:
        gc.enable()
        poller.close()
    return [acks[fd] for fd in turns], lateness
