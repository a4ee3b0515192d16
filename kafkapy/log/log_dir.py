"""One of the directories in log.dirs: its lock, its checkpoints, the logs in it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kafkapy.log import checkpoints, clean_shutdown, names
from kafkapy.log.checkpoints import CheckpointError, OffsetCheckpoint
from kafkapy.log.dir_lock import DirLock
from kafkapy.log.environment import Environment
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.partition_log import PartitionLog

TopicPartition = tuple[str, int]
OpenLogs = Callable[[], Iterable[PartitionLog]]

_log = logging.getLogger(__name__)


class LogDir:
    """A directory that could be opened. `env.failure` tells whether it went offline since."""

    def __init__(self, env: Environment) -> None:
        """Makes the directory if it is not there and locks it; raises OSError, DirLocked."""
        path = env.log_dir
        files = env.files
        if not files.exists(path):
            _log.info("log directory %s is made", path)
            files.make_dir(path)
            files.sync_dir(os.path.dirname(path))
        self.path = Path(path)
        self.env = env
        self._lock = DirLock(path)
        # The periodic checkpoint and that of a deletion may come at the same time, and share a temporary file.
        self._writing = threading.Lock()
        self._recovery_points = OffsetCheckpoint(files, path, checkpoints.RECOVERY_POINTS)
        self._start_offsets = OffsetCheckpoint(files, path, checkpoints.LOG_START_OFFSETS)
        self._high_watermarks = OffsetCheckpoint(files, path, checkpoints.HIGH_WATERMARKS)
        self._checkpoints = (self._recovery_points, self._start_offsets, self._high_watermarks)
        self.open_logs = 0  # changed by the manager, under its lock
        self.listed = False  # begin_loading has been here: marker and checkpoints are ours to write
        self.was_clean = False
        self.all_loaded = False
        # Logs that are in the directory and not open: what the checkpoints say of them has to stay.
        self.not_loaded: set[TopicPartition] = set()
        self.not_recovered: set[TopicPartition] = set()  # those of them that cannot be loaded and were not closed
        self.recovery_points: dict[TopicPartition, int] = {}
        self.start_offsets: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}

    @property
    def online(self) -> bool:
        return self.env.failure is None

    def begin_loading(self) -> list[tuple[str, names.LogDirName]]:
        """Reads marker and checkpoints; returns the partitions' directories. Raises OSError.

        From here on a crash means recovery, whatever the stop before was.
        """
        self.was_clean = clean_shutdown.take_marker(self.env.files, self.env.log_dir)
        self.recovery_points = self._read(self._recovery_points, "recovery begins at the start of each log")
        self.start_offsets = self._read(self._start_offsets, "each log begins at its first segment")
        self.high_watermarks = self._read(self._high_watermarks, "high watermarks begin at the log start offsets")
        found = self.partition_dirs()
        self.not_loaded = {(name.topic, name.partition) for _, name in found if name.kind == names.LIVE_DIR}
        for checkpoint, read in zip(
            self._checkpoints, (self.recovery_points, self.start_offsets, self.high_watermarks), strict=True
        ):
            checkpoint.stale.update(key for key in read if key not in self.not_loaded)
        self.listed = True
        return found

    @property
    def is_clean(self) -> bool:
        """Whether every log that is not open may count as stopped cleanly, and all others are closed."""
        return (self.was_clean or self.all_loaded) and not self.not_recovered

    def forget(self, key: TopicPartition) -> None:
        """A log that is not open leaves the directory; the checkpoints speak of it until they are next written."""
        self.not_loaded.discard(key)
        self.not_recovered.discard(key)
        for checkpoint in self._checkpoints:
            checkpoint.stale.add(key)

    def is_in_checkpoints(self, key: TopicPartition) -> bool:
        """Whether they may still speak of a log that has left: they must not, when a new one takes its name."""
        with self._writing:  # one that is being written counts when it is there
            return any(key in checkpoint.stale for checkpoint in self._checkpoints)

    def partition_dirs(self) -> list[tuple[str, names.LogDirName]]:
        """(path, name taken apart) of every directory that is named as a partition's. Raises OSError."""
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

    # --- checkpoints: of the logs that are in this directory now, open (`logs` gives those) or not

    def write_recovery_points(self, logs: OpenLogs) -> None:
        """Each after what it promises has been synced: may wait for the disk a while."""
        self._write(
            self._recovery_points,
            self.recovery_points,
            lambda: {(log.topic, log.partition): log.flusher.point_to_note() for log in logs()},
        )

    def write_start_offsets(self, logs: OpenLogs) -> None:
        """Only those that the first segment's name does not tell."""
        self._write(
            self._start_offsets,
            self.start_offsets,
            lambda: {
                (log.topic, log.partition): log.log_start_offset
                for log in logs()
                if log.log_start_offset > log.segments.items[0].base_offset
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
        """A full disk is no reason to go offline: the old file stays, which costs a longer recovery at most."""
        try:
            # All is read under the lock, so that an older state never replaces a newer one: a log that was deleted
            # meanwhile must not come back into the file. First who is not open: a log that becomes ready is in both.
            with self._writing:
                stale, checkpoint.stale = checkpoint.stale, set()  # who leaves from here on may be in what is written
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
            _log.warning("%s", refusal.message)

    def mark_clean(self) -> None:
        """Raises OSError."""
        clean_shutdown.write_marker(self.env.files, self.env.log_dir)

    def release(self) -> None:
        self._lock.release()
