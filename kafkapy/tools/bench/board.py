"""Memory that the processes of a benchmark share: each client counts in its own slot, and the command reads all.

So the command can show figures while the clients work, and costs them nothing. Numbers have 64 bits, and each is
written by one process, so no lock is needed.
"""

from __future__ import annotations

import mmap
import os
import time

from kafkapy.tools.bench.histogram import BUCKETS, bucket_of

_WORD = 8
_STOP = 0  # index of the word before the slots, which is nonzero when the clients must stop
RECORDS, BYTES, REQUESTS, BEGAN, ENDED, CPU, TOTAL, SHORTEST, LONGEST, SECOND_TOTAL, SECOND_LONGEST, WAITED = range(12)
_COUNTERS = 16
_SLOT = _COUNTERS + 2 * BUCKETS
_LOOK_S = 0.05  # how often a client checks whether it must stop


class Slot:
    """The figures of one client. `first` is the histogram of the durations that the command measures, and `second`
    (only of `bench latency`) that of the times until the acknowledgement."""

    def __init__(self, words: memoryview, slot: int) -> None:
        at = 1 + slot * _SLOT
        self._stop = words[_STOP : _STOP + 1]
        self._numbers = words[at : at + _COUNTERS]
        self.first = words[at + _COUNTERS : at + _COUNTERS + BUCKETS]
        self.second = words[at + _COUNTERS + BUCKETS : at + _SLOT]
        self._parent = os.getppid()
        self._look_at = 0.0
        self._stopped = False

    def number(self, which: int) -> int:
        return self._numbers[which]

    def begin(self) -> None:
        """Record the time at which the client begins its work."""
        self._numbers[SHORTEST] = 1 << 62
        self._cpu = time.process_time_ns()
        self._numbers[BEGAN] = time.monotonic_ns()

    def end(self) -> None:
        """Record the time at which the client has received its last response."""
        self._numbers[ENDED] = time.monotonic_ns() - self._numbers[WAITED]
        self._numbers[CPU] = time.process_time_ns() - self._cpu

    def count(self, records: int, size: int, requests: int) -> None:
        numbers = self._numbers
        numbers[RECORDS] += records
        numbers[BYTES] += size
        numbers[REQUESTS] += requests

    def took(self, seconds: float) -> None:
        """Count a duration in `first`."""
        self.first[bucket_of(seconds)] += 1
        nanos = int(seconds * 1e9)
        numbers = self._numbers
        numbers[TOTAL] += nanos
        if nanos < numbers[SHORTEST]:
            numbers[SHORTEST] = nanos
        if nanos > numbers[LONGEST]:
            numbers[LONGEST] = nanos

    def acknowledged(self, seconds: float) -> None:
        """Count the time until an acknowledgement in `second`."""
        self.second[bucket_of(seconds)] += 1
        nanos = int(seconds * 1e9)
        numbers = self._numbers
        numbers[SECOND_TOTAL] += nanos
        if nanos > numbers[SECOND_LONGEST]:
            numbers[SECOND_LONGEST] = nanos

    def timed_out(self, seconds: float) -> None:
        """Record that no record came for `seconds`. If the client has read records before, this wait does not count as
        part of its work."""
        self._numbers[WAITED] = int(seconds * 1e9) if self._numbers[RECORDS] else 1

    def shall_end(self, now: float) -> bool:
        """Return True if this client must stop: the command has asked its clients to stop, or the command's process has
        ended. `now` is a time.perf_counter(). The result is looked up again after _LOOK_S seconds at the earliest."""
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            self._numbers[CPU] = time.process_time_ns() - self._cpu
            self._stopped = bool(self._stop[0]) or os.getppid() != self._parent
        return self._stopped


class Board:
    """The shared memory of `slots` clients.

    Args:
        fd: The descriptor of the memory, inherited from the command. None: create the memory.
    """

    def __init__(self, slots: int, fd: int | None = None) -> None:
        size = (1 + slots * _SLOT) * _WORD
        self.fd = os.memfd_create("kafkapy-bench") if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, size)
        self._memory = mmap.mmap(self.fd, size)
        self._words = memoryview(self._memory).cast("Q")
        self.slots = [Slot(self._words, slot) for slot in range(slots)]

    def stop(self) -> None:
        """Tell all clients to stop."""
        self._words[_STOP] = 1

    def total(self, which: int) -> int:
        return sum(slot.number(which) for slot in self.slots)
