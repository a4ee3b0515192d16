"""Thread pools for reads from disk, one for each disk, so that a slow disk delays only its own readers."""

from __future__ import annotations

import os
import threading

from kafkapy.runtime.disk_pool import DiskPool

_NO_DEVICE = -1


class ReadPools:
    """The thread pools for disk reads: a DiskPool of at most `threads` threads for each device, created on first
    use."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._by_device: dict[int, DiskPool] = {}
        self._by_path: dict[str, DiskPool] = {}
        self._stopped = False

    def of_file(self, fd: int) -> DiskPool:
        """Return the pool for the device of an open file; `fd` is its descriptor."""
        device = os.fstat(fd).st_dev
        return self._by_device.get(device) or self._make(device)

    def of_directory(self, path: str) -> DiskPool:
        """Return the pool for the device that has the log directory `path`. The device is looked up once for each
        path."""
        pool = self._by_path.get(path)
        if pool is None:
            try:
                device = os.stat(path).st_dev
            except OSError:  # the read itself will report the error
                device = _NO_DEVICE
            pool = self._by_path[path] = self._make(device)
        return pool

    @property
    def depth(self) -> int:
        """The number of calls in all pools that are waiting or running."""
        return sum(pool.depth for pool in list(self._by_device.values()))

    def stop(self) -> None:
        """Stop all pools, and wait for the calls that were submitted before."""
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
