"""One of the directories in log.dirs: its lock, its checkpoints, and which logs it contains."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kafkapy.log import names
from kafkapy.log.directories import checkpoints, clean_shutdown
from kafkapy.log.directories.checkpoints import CheckpointError, OffsetCheckpoint
from kafkapy.log.directories.creation import create_if_missing
from kafkapy.log.directories.dir_lock import DirLock
from kafkapy.log.environment import Environment
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.partition_log import PartitionLog

TopicPartition = tuple[str, int]
OpenLogs = Callable[[], Iterable[PartitionLog]]

_log = logging.getLogger(__name__)


class LogDir:
    """A log directory that was opened and locked. `env.failure` is the error that has taken it offline since,
    or None.
    """

    def __init__(self, env: Environment) -> None:
        """Create the directory if it does not exist, and lock it. Raises OSError, and DirLocked if another broker uses
        it.
        """
        path = env.log_dir
        files = env.files
        create_if_missing(files, path)
        self.path = Path(path)
        self.env = env
        self._lock = DirLock(path)
        # The periodic checkpoint and the one at a deletion may run at the same time, and use the same temporary file.
        self._writing = threading.Lock()
        self._recovery_points = OffsetCheckpoint(files, path, checkpoints.RECOVERY_POINTS)
        self._start_offsets = OffsetCheckpoint(files, path, checkpoints.LOG_START_OFFSETS)
        self._high_watermarks = OffsetCheckpoint(files, path, checkpoints.HIGH_WATERMARKS)
        self._checkpoints = (self._recovery_points, self._start_offsets, self._high_watermarks)
        self.open_logs = 0  # changed by the manager, under its lock
        self.listed = False  # begin_loading was called, so this broker may write marker and checkpoints
        self.was_clean = False
        self.all_loaded = False
        # Logs in the directory that are not open. Their entries in the checkpoints must be preserved.
        self.not_loaded: set[TopicPartition] = set()
        # logs on disk that are not open and were not closed cleanly
        self.not_recovered: set[TopicPartition] = set()
        self.recovery_points: dict[TopicPartition, int] = {}
        self.start_offsets: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}

    @property
    def online(self) -> bool:
        return self.env.failure is None

    def begin_loading(self) -> list[tuple[str, names.LogDirName]]:
        """Read the clean-shutdown marker and the checkpoints; return (path, parsed name) of each partition directory.

        The marker is removed: from now on a crash means recovery, even if the last shutdown was clean. Raises OSError.
        """
        self.was_clean = clean_shutdown.take_marker(self.env.files, self.env.log_dir)
        self.recovery_points = self._read(self._recovery_points, "recovery begins at the start of each log")
        self.start_offsets = self._read(self._start_offsets, "each log begins at its first segment")
        self.high_watermarks = self._read(self._high_watermarks, "high watermarks begin at the log start offsets")
        found = self.partition_dirs()
        served = (names.LIVE_DIR, names.FUTURE_DIR)
        self.not_loaded = {(name.topic, name.partition) for _, name in found if name.kind in served}
        for checkpoint, read in zip(
            self._checkpoints, (self.recovery_points, self.start_offsets, self.high_watermarks), strict=True
        ):
            checkpoint.stale.update(key for key in read if key not in self.not_loaded)
        self.listed = True
        return found

    @property
    def is_clean(self) -> bool:
        """Return True if the clean-shutdown marker may be written: every log that is not open was closed cleanly.

        Close all open logs before.
        """
        return (self.was_clean or self.all_loaded) and not self.not_recovered

    def forget(self, key: TopicPartition) -> None:
        """Remove a log that is not open from the sets of unloaded logs, because its directory is renamed or deleted.

        The checkpoint files still contain the log until they are next written.
        """
        self.not_loaded.discard(key)
        self.not_recovered.discard(key)
        for checkpoint in self._checkpoints:
            checkpoint.stale.add(key)

    def is_in_checkpoints(self, key: TopicPartition) -> bool:
        """Return True if a checkpoint file may still contain an offset of the removed log `key`.

        A new log of that name must not be created before the file is written again.
        """
        with self._writing:  # wait for a write in progress, which may remove the entry
            return any(key in checkpoint.stale for checkpoint in self._checkpoints)

    def partition_dirs(self) -> list[tuple[str, names.LogDirName]]:
        """Return (path, parsed name) of every directory in the log directory that is named like a partition's. Raises
        OSError.
        """
        found = []
        for entry in self.env.files.entries(self.env.log_dir, sizes_of=()):
            name = names.parse_dir_name(entry.name) if entry.is_dir else None
            if name is not None:
                found.append((os.path.join(self.env.log_dir, entry.name), name))
        return found

    def _read(self, checkpoint: OffsetCheckpoint, instead: str) -> dict[TopicPartition, int]:
        try:
            return checkpoint.read()
        except CheckpointError as reason:
            _log.warning("%s; %s", reason, instead)
            return {}

    # --- checkpoints: they contain all logs in this directory, open (which `logs` returns) or not

    def write_recovery_points(self, logs: OpenLogs) -> None:
        """Write the recovery points of all logs to their checkpoint file. `logs` returns the open logs of this
        directory.

        Each log first syncs the indexes and snapshots below its recovery point, which may take a while. Raises
        LogDirFailure.
        """
        self._write(
            self._recovery_points,
            self.recovery_points,
            lambda: {(log.topic, log.partition): log.flusher.synced_recovery_point() for log in logs()},
        )

    def write_start_offsets(self, logs: OpenLogs) -> None:
        """Write the log start offsets that are above the base offset of the log's first segment to their checkpoint
        file.

        `logs` returns the open logs of this directory. Raises LogDirFailure.
        """
        self._write(
            self._start_offsets,
            self.start_offsets,
            lambda: {
                (log.topic, log.partition): log.log_start_offset
                for log in logs()
                if log.log_start_offset > log.segments.base_offsets[0]
            },
        )

    def write_high_watermarks(self, logs: OpenLogs) -> None:
        self._write(
            self._high_watermarks,
            self.high_watermarks,
            lambda: {(log.topic, log.partition): log.high_watermark for log in logs()},
        )

    def _write(
        self,
        checkpoint: OffsetCheckpoint,
        read: Mapping[TopicPartition, int],
        offsets: Callable[[], dict[TopicPartition, int]],
    ) -> None:
        """Write the offsets of the open logs, which `offsets` returns, and those of logs that are not open to a
        checkpoint file.

        `read` has the offsets that were in the file at the start. Raises LogDirFailure for a disk error, except a full
        disk: then the old file stays, which only makes the next recovery longer.
        """
        try:
            # Offsets are read under the lock, so that an older state never replaces a newer one: else a log that is
            # deleted during the write could get back into the file. Logs that are not open are read first, so that a
            # log that finishes loading in between is in both sets, and not in neither.
            with self._writing:
                # a log that is removed after this line may be in this write, and is added to the new set
                stale, checkpoint.stale = checkpoint.stale, set()
                try:
                    kept = {key: offset for key, offset in read.items() if key in self.not_loaded}
                    checkpoint.write({**kept, **offsets()})
                except BaseException:
                    checkpoint.stale |= stale
                    raise
        except OSError as error:
            refusal = self.env.disk_error(f"writing {checkpoint.path}", error)
            if isinstance(refusal, LogDirFailure):
                raise refusal from error
            _log.debug("%s", refusal.message)  # the shortage itself is already reported
            checkpoint.refused = True
        else:
            # The few bytes of a checkpoint often fit where records do not. So a write only says that the shortage may
            # be over if the write before it was refused.
            if checkpoint.refused:
                checkpoint.refused = False
                self.env.shortage.written()

    def sync_all(self) -> bool:
        """Sync everything in this directory, and in the rest of its file system, with one system call. Return False if
        that cannot be done, or has failed: then the files must be synced one by one.

        The lock file was opened before all logs, so a write that has failed since then is not missed.
        """
        try:
            return self.env.files.sync_all(self._lock.fd)
        except OSError as error:
            # The failed write may be that of another program. If this broker made it, syncing its file fails, too.
            _log.warning("%s: the file system cannot be synced as a whole: %s", self.path, error)
            return False

    def shares_file_system(self, directory: str) -> bool:
        """Return True if `sync_all` syncs what is in `directory`, a log's. A link or a mount point may lead to another
        file system.
        """
        try:
            return os.stat(directory).st_dev == os.fstat(self._lock.fd).st_dev
        except OSError:  # the sync of its files reports the error
            return False

    def mark_clean(self) -> None:
        """Write the clean-shutdown marker in this directory. Raises OSError."""
        clean_shutdown.write_marker(self.env.files, self.env.log_dir)

    def release(self) -> None:
        self._lock.release()
