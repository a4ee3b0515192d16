"""A disk of which one operation fails, and logs in two directories of which one is on that disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kafkapy.errors import KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.log.manager import LogManager
from kafkapy.log.partition_log import AppendResult, PartitionLog
from kafkapy.log.storage.files import Buffer, Entry, Files
from kafkapy.record.file_region import FileHandle
from kafkapy.runtime.clock import ManualClock
from tests.harness.power_cut import UnsyncedFiles
from tests.log.support import NOW, ManualScheduler, idempotent, values_of

T = TypeVar("T")

CONFIG = LogConfig(
    {"segment.bytes": 700, "index.interval.bytes": 100, "segment.index.bytes": 2400, "flush.messages": 4}
)


class FailingDisk(UnsyncedFiles):
    """Files of which operation number `fail_at` fails, counted from 1 among those of `kinds` in the directory `where`.

    Kinds: write, create, open, truncate, rename, unlink, sync, read. With `torn`, a failing write leaves the first half
    of its bytes. With `short`, the write does not fail but writes half of its bytes and returns their number; with an
    `error`, the next write fails.
    """

    def __init__(self, where: Path, error: int | None, kinds: set[str], *, torn: bool = False, short: bool = False):
        self.where = str(where) + os.sep
        self.error = error
        self.kinds = kinds
        self.torn = torn
        self.short = short
        self.fail_at = 0
        self.count = 0
        self.failed: str | None = None  # the failed operation
        self.after: list[str] = []  # operations in the directory after the failed one

    def _fails(self, kind: str, path: str) -> bool:
        if not (path + os.sep).startswith(self.where):
            return False
        if self.failed is not None:
            self.after.append(kind)
        if kind not in self.kinds or self.failed is not None:
            return False
        self.count += 1
        return self.count == self.fail_at

    def _do(self, kind: str, path: str, action: Callable[[], T]) -> T:
        if self._fails(kind, path):
            raise self._failure(f"{kind} of {path}")
        return action()

    def _failure(self, what: str) -> OSError:
        assert self.error is not None
        self.failed = what
        return OSError(self.error, os.strerror(self.error))

    def pwritev(self, file: FileHandle, buffers: Sequence[Buffer], position: int) -> int:
        if not self._fails("write", str(file.path)):
            return super().pwritev(file, buffers, position)
        data = b"".join(buffers)
        if self.short:
            if self.error is not None:
                self.fail_at += 1
            return super().pwritev(file, [data[: max(len(data) // 2, 1)]], position)
        if self.torn:
            super().pwritev(file, [data[: len(data) // 2]], position)
        raise self._failure(f"write of {file.path}")

    def open(self, path: str, *, create: bool = False) -> FileHandle:
        return self._do("create" if create else "open", path, lambda: Files.open(self, path, create=create))

    def truncate(self, file: FileHandle, size: int) -> None:
        self._do("truncate", str(file.path), lambda: Files.truncate(self, file, size))

    def sync(self, file: FileHandle) -> None:
        self._do("sync", str(file.path), lambda: None)

    def sync_dir(self, path: str) -> None:
        self._do("sync", path, lambda: None)

    def rename(self, old: str, new: str) -> None:
        self._do("rename", old, lambda: Files.rename(self, old, new))

    def unlink(self, path: str) -> bool:
        return self._do("unlink", path, lambda: Files.unlink(self, path))

    def entries(self, path: str, sizes_of: tuple[str, ...] = ("",)) -> list[Entry]:
        return self._do("read", path, lambda: Files.entries(self, path, sizes_of))

    def look(self, path: str) -> dict[str, Entry]:
        return self._do("read", path, lambda: Files.look(self, path))

    def read(self, path: str) -> bytes:
        return self._do("read", path, lambda: Files.read(self, path))

    def pread(self, file: FileHandle, size: int, position: int) -> bytes:
        return self._do("read", str(file.path), lambda: Files.pread(self, file, size, position))

    def locate(self, file: FileHandle, *arguments: Any) -> Any:
        return self._do("read", str(file.path), lambda: Files.locate(self, file, *arguments))

    def locate_timestamp(self, file: FileHandle, *arguments: Any) -> Any:
        return self._do("read", str(file.path), lambda: Files.locate_timestamp(self, file, *arguments))

    def floor_entry(self, file: FileHandle, *arguments: Any) -> Any:
        return self._do("read", str(file.path), lambda: Files.floor_entry(self, file, *arguments))

    def ceiling_position(self, file: FileHandle, *arguments: Any) -> Any:
        return self._do("read", str(file.path), lambda: Files.ceiling_position(self, file, *arguments))

    def scan(self, file: FileHandle, *arguments: Any) -> Any:
        return self._do("read", str(file.path), lambda: Files.scan(self, file, *arguments))


class Pair:
    """A log in each of two directories, `bad` and `good`. `acknowledged` is {topic: {offset: value}}."""

    def __init__(self, directory: Path, files: Files) -> None:
        self.directory = directory
        self.acknowledged: dict[str, dict[int, bytes]] = {"bad": {}, "good": {}}
        self.sent: dict[str, int] = {"bad": 0, "good": 0}
        self.start: dict[str, int] = {"bad": 0, "good": 0}
        self.refused: list[KafkaError] = []
        self._clock = ManualClock(NOW)
        self._scheduler = ManualScheduler()
        self.manager = self._open(files)
        for topic in ("bad", "good"):
            self.manager.create(topic, 0, topic.encode().ljust(16), CONFIG, is_new=True)
            self.log(topic).assign_leader_epoch(0)
        assert self.log("bad").directory.startswith(str(directory / "bad"))

    def _open(self, files: Files) -> LogManager:
        directories = [self.directory / "bad", self.directory / "good"]
        manager = LogManager(directories, CONFIG, clock=self._clock, scheduler=self._scheduler, files=files)
        manager.load(lambda topic: CONFIG)
        return manager

    def log(self, topic: str) -> PartitionLog:
        log = self.manager.get(topic, 0)
        assert log is not None
        return log

    def is_online(self, topic: str) -> bool:
        return dict(self.manager.directories())[self.directory / topic] is None

    def live(self) -> None:
        """Append, roll, flush, checkpoint, read and delete. Continue after each refusal, as a broker does."""
        for number in range(4):
            for topic in ("bad", "good"):
                log = self.log(topic)
                for size in (1, 3, 2):
                    self._try(lambda topic=topic, size=size: self._append(topic, size))  # type: ignore[misc]
                self._try(log.flush)
                self._try(lambda log=log: values_of(log, max_bytes=300))  # type: ignore[misc]
                self._try(lambda log=log: log.offset_for_timestamp(NOW))  # type: ignore[misc]
                self._try(lambda log=log, number=number: log.assign_leader_epoch(number + 1))  # type: ignore[misc]
            self.manager.checkpoint()
            self._scheduler.run_all()
            if number == 2:
                for topic in ("bad", "good"):
                    self._try(lambda topic=topic: self._delete(topic))  # type: ignore[misc]

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except KafkaError as error:
            self.refused.append(error)

    def _append(self, topic: str, count: int) -> None:
        log = self.log(topic)
        first = self.sent[topic]
        values = [b"%d" % number for number in range(first, first + count)]
        sets = [idempotent(value, sequence=first + at) for at, value in enumerate(values)]
        verdicts = log.append(sets, max(log.leader_epochs.latest_epoch, 0))
        assert isinstance(verdicts, list)
        for value, verdict in zip(values, verdicts, strict=True):
            if isinstance(verdict, AppendResult):
                assert verdict.base_offset not in self.acknowledged[topic]
                self.acknowledged[topic][verdict.base_offset] = value
                self.sent[topic] += 1
            else:
                self.refused.append(verdict)
        log.set_high_watermark(log.log_end_offset)

    def _delete(self, topic: str) -> None:
        log = self.log(topic)
        self.start[topic] = 6
        log.delete_records(6)
        log.delete_old_segments()

    def expected(self, topic: str) -> list[tuple[int, bytes]]:
        """Return the records that were acknowledged and not deleted."""
        start = self.start[topic]
        return sorted((offset, value) for offset, value in self.acknowledged[topic].items() if offset >= start)

    def found(self, topic: str) -> list[tuple[int, bytes]]:
        return [(offset, value) for offset, value in values_of(self.log(topic)) if offset >= self.start[topic]]

    def restart_on_good_disks(self) -> None:
        """Close the logs as a broker does, and open them on disks that work."""
        self.manager.close()
        self._scheduler.tasks.clear()
        self.manager = self._open(UnsyncedFiles())


def faults() -> dict[str, tuple[int | None, set[str], dict[str, bool]]]:
    """Return the faults by name: (error, operations that may fail, options of failing writes)."""
    changes = {"write", "create", "truncate", "rename"}
    return {
        "full disk": (errno.ENOSPC, changes, {}),
        "full disk, torn writes": (errno.ENOSPC, {"write"}, {"torn": True}),
        "short writes": (None, {"write"}, {"short": True}),
        "short writes, then a full disk": (errno.ENOSPC, {"write"}, {"short": True}),
        "too many open files": (errno.EMFILE, {"open", "create"}, {}),
        "failed syncs": (errno.EIO, {"sync"}, {}),
        "failed syncs for want of room": (errno.ENOSPC, {"sync"}, {}),
        "failed writes": (errno.EIO, changes | {"unlink"}, {"torn": True}),
        "failed reads": (errno.EIO, {"read", "open"}, {}),
    }
