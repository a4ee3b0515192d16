"""Threads that read what is not in memory, some for each disk: a slow one holds up its own readers and nobody else."""

from __future__ import annotations

import os
import threading

from kafkapy.runtime.disk_pool import DiskPool

_NOWHERE = -1


class ReadPools:
    """A DiskPool of at most `threads` threads for each device, made when it is first read from."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._by_device: dict[int, DiskPool] = {}
        self._by_path: dict[str, DiskPool] = {}
        self._stopped = False

    def of_file(self, fd: int) -> DiskPool:
        """For an open file."""
        device = os.fstat(fd).st_dev
        return self._by_device.get(device) or self._make(device)

    def of_directory(self, path: str) -> DiskPool:
        """For what is below a log directory, which is looked at the first time only."""
        pool = self._by_path.get(path)
        if pool is None:
            try:
                device = os.stat(path).st_dev
            except OSError:  # whoever reads there finds out
                device = _NOWHERE
            pool = self._by_path[path] = self._make(device)
        return pool

    @property
    def depth(self) -> int:
        """How many calls wait or run."""
        return sum(pool.depth for pool in list(self._by_device.values()))

    def stop(self) -> None:
        """As DiskPool.stop, of all of them."""
        with self._lock:
            self._stopped = True
            pools = list(self._by_device.values())
        for pool in pools:
            pool.stop()

    def _make(self, device: int) -> DiskPool:
        with self._lock:
            pool = self._by_device.get(device)
            if pool is None:
                pool = self._by_device[device] = DiskPool(self._threads, f"read-{len(self._by_device)}")
                if self._stopped:
                    pool.stop()
            return pool
