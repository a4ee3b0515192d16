"""Requests on several connections, with several in flight on each: as fast as the broker answers, or at a fixed rate.

Requests are encoded in advance, and each call sends as many as there is room for. Responses are counted by their bytes,
and their error codes are checked together. So no Python object is made for a record, and a request costs little work.
"""

from __future__ import annotations

import select
import ssl
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import accumulate
from math import ceil, floor

from kafkapy.client.raw.connection import TIMEOUT, RawConnection
from kafkapy.tools.bench.board import Slot
from kafkapy.tools.bench.jobs import CLOSED
from kafkapy.tools.common.errors import ToolError

_BUFFER = 1 << 18
_SEND_AT_MOST = 1 << 20  # bytes in one call
_LOOK_S = 0.05
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Tape:
    """Encoded requests, which are sent again and again in the same order."""

    def __init__(self, frames: Sequence[bytes]) -> None:
        self._data = memoryview(b"".join(frames))
        self._ends = [0, *accumulate(map(len, frames))]
        self._next = 0

    def take(self, count: int) -> tuple[int, memoryview]:
        """Return the number (from 1 to `count`) and the bytes of the next requests."""
        first = self._next
        last = min(first + count, len(self._ends) - 1)
        begin = self._ends[first]
        while last > first + 1 and self._ends[last] - begin > _SEND_AT_MOST:
            last -= 1
        self._next = last if last < len(self._ends) - 1 else 0
        return last - first, self._data[begin : self._ends[last]]


def repeated(frames: Sequence[bytes], window: int) -> list[bytes]:
    """Return the requests, repeated until `window` of them can be sent in one call if they are short."""
    room = max(1, _SEND_AT_MOST // sum(map(len, frames)))
    return list(frames) * min(room, ceil(window / len(frames)))


class Lane:
    """One connection with requests in flight.

    Args:
        reply: The size in bytes of a response without an error; 0 if there are no responses (acks=0).
        are_good: Takes complete responses of that size, and returns False if one of them has an error.
        explain: Raises the error of a response.
    """

    def __init__(
        self,
        connection: RawConnection,
        frames: Sequence[bytes],
        window: int,
        reply: int,
        are_good: Callable[[memoryview], bool],
        explain: Callable[[bytes], None],
    ) -> None:
        self.connection = connection
        self.socket = connection.socket
        self.reply = reply
        self._tape = Tape(repeated(frames, window))
        self._window = window
        self._are_good = are_good
        self._explain = explain
        self._is_tls = isinstance(self.socket, ssl.SSLSocket)
        self._sent_at: deque[float] = deque()  # of each request without a response
        self._unsent = memoryview(b"")
        self._full_since: float | None = None  # since when a request is due but has no room in the window
        self._buffer = memoryview(bytearray(max(_BUFFER, 2 * reply)))
        self._filled = 0
        self.sent = 0

    @property
    def waits_to_send(self) -> bool:
        return len(self._unsent) > 0

    @property
    def is_idle(self) -> bool:
        """True if nothing is being sent and no response is outstanding."""
        return not self._unsent and not self._sent_at

    def send(self, due: int, now: float, schedule: tuple[float, float] | None) -> None:
        """Send up to `due` requests, as far as there is room.

        `schedule` is the time of the first request, and the requests per second. With it, the latency of a request that
        had to wait for room begins when the request was due, so that latencies include the stalls of a broker.
        """
        while due > 0 and not self._unsent:
            room = self._window - len(self._sent_at)
            if self.connection.session_ends:
                if self.is_idle:
                    self.connection.log_in_again()
                else:
                    room = 0
            if room <= 0:
                if self._full_since is None:
                    self._full_since = now
                return
            count, self._unsent = self._tape.take(min(room, due))
            if self._full_since is None or schedule is None:
                self._sent_at.extend([now] * count)
            else:
                first, rate = schedule
                for number in range(self.sent, self.sent + count):
                    self._sent_at.append(max(self._full_since, first + number / rate))
            self._full_since = None
            self.sent += count
            due -= count
            self.flush()

    def flush(self) -> None:
        """Send the rest of the last requests, as far as the socket has room."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except _WOULD_BLOCK:
            return

    def sent_whole(self) -> int:
        """Return how many requests were sent since the last call, if requests have no responses."""
        if self._unsent:
            return 0
        count = len(self._sent_at)
        self._sent_at.clear()
        return count

    def receive(self, took: Callable[[float], None]) -> int:
        """Receive what has arrived, and call `took` with the latency of each response. Return their number."""
        found = 0
        while True:
            try:
                got = self.socket.recv_into(self._buffer[self._filled :])
            except _WOULD_BLOCK:
                return found
            if not got:
                raise ToolError(CLOSED)
            now = time.perf_counter()
            self._filled += got
            count = self._filled // self.reply
            end = count * self.reply
            if count and (count > len(self._sent_at) or not self._are_good(self._buffer[:end])):
                self._fail()
            if not count and self._filled >= 4 and int.from_bytes(self._buffer[:4], "big") != self.reply - 4:
                self._fail()
            for _ in range(count):
                took(now - self._sent_at.popleft())
            rest = self._filled - end
            if rest and end:
                self._buffer[:rest] = bytes(self._buffer[end : self._filled])
            self._filled = rest
            found += count
            if not self._is_tls:  # TLS may have more bytes in memory, of which the kernel does not know
                return found

    def _fail(self) -> None:
        """Raise the error of the first response that has one, after receiving the rest of that response."""
        data = bytes(self._buffer[: self._filled])
        self.socket.settimeout(TIMEOUT)
        while True:
            size = int.from_bytes(data[:4], "big")
            while len(data) < 4 + size:
                more = self.socket.recv(_BUFFER)
                if not more:
                    raise ToolError(CLOSED)
                data += more
            self._explain(data[4 : 4 + size])
            data = data[4 + size :]
            if len(data) < 4:
                raise ToolError("the broker sent a response that belongs to no request")


class _Poller:
    """Finds the lanes on which bytes have arrived, or on which waiting bytes can be sent."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = {lane.socket.fileno(): lane for lane in lanes}
        self._writing = dict.fromkeys(lanes, False)  # whether a lane is registered for writing, too
        self._poller = select.epoll()
        for fd, lane in self._lanes.items():
            lane.socket.settimeout(0)
            self._poller.register(fd, select.EPOLLIN)

    def watch(self, lane: Lane) -> None:
        """Poll for room to send on the lane only while bytes wait to be sent."""
        if lane.waits_to_send != self._writing[lane]:
            self._writing[lane] = lane.waits_to_send
            events = select.EPOLLIN | (select.EPOLLOUT if lane.waits_to_send else 0)
            self._poller.modify(lane.socket.fileno(), events)

    def ready(self, wait: float, *, exactly: bool) -> list[tuple[Lane, int]]:
        """Return the lanes that are ready, with their events, after at most `wait` seconds. With `exactly`, `wait` is
        not rounded up to milliseconds, as epoll would."""
        if exactly:
            select.select([self._poller], [], [], wait)
            wait = 0
        return [(self._lanes[fd], event) for fd, event in self._poller.poll(wait)]

    def close(self) -> None:
        self._poller.close()


def drive(
    lanes: Sequence[Lane],
    slot: Slot,
    replied: Callable[[int], None],
    *,
    requests: int | None = None,
    rate: float | None = None,
) -> None:
    """Send requests on all lanes until `requests` were sent or `slot.shall_end`, and receive their responses.

    `replied` is called with the number of requests that were answered, or sent if they have no responses. `rate`:
    requests per second, in equal shares for all lanes; None: as fast as the windows of the lanes allow.
    """
    with closing(_Poller(lanes)) as poller:
        left = sys.maxsize if requests is None else requests
        heard = began = time.perf_counter()
        # The lanes take turns: lane k begins k / rate later than the first one.
        share = 0.0 if rate is None else rate / len(lanes)
        starts = {lane: began if rate is None else began + number / rate for number, lane in enumerate(lanes)}
        asked: Sequence[Lane] = lanes  # the lanes that may have room for requests
        while True:
            now = time.perf_counter()
            if slot.shall_end(now):
                left = 0
            wait = _LOOK_S
            for lane in asked:
                before = lane.sent
                if rate is None:
                    lane.send(left, now, None)
                else:
                    start = starts[lane]
                    lane.send(min(left, floor((now - start) * share) + 1 - before), now, (start, share))
                    wait = min(wait, max(0.0, start + lane.sent / share - now))
                left -= lane.sent - before
                if not lane.reply:
                    replied(lane.sent_whole())
                poller.watch(lane)
            if left <= 0 and all(lane.is_idle for lane in lanes):
                return
            more = [] if rate is not None else [lane for lane in asked if not lane.reply and not lane.waits_to_send]
            ready = poller.ready(0.0 if more else wait, exactly=rate is not None)
            now = time.perf_counter()
            for lane, event in ready:
                if event & select.EPOLLOUT:
                    lane.flush()
                if event & ~select.EPOLLOUT:
                    if not lane.reply:
                        raise ToolError(CLOSED)
                    replied(lane.receive(slot.took))
            asked = lanes if rate is not None else [*more, *(lane for lane, _ in ready)]
            if ready or all(lane.is_idle for lane in lanes):
                heard = now
            elif now - heard > TIMEOUT:
                raise ToolError(f"the broker has not answered for {TIMEOUT:.0f} s")
