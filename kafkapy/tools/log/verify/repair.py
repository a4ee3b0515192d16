"""The repair of `kafkapy log verify --repair`: runs the broker's own recovery, as after a crash, on a partition's
directory.

The log is truncated after its last valid batch before the first damage, and later segments are deleted. Files that can
be rebuilt from the log (indexes, snapshots, leader epochs) are deleted if they are wrong, and rebuilt. Nothing valid
before the first damage is lost.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkapy.errors import KafkaError
from kafkapy.log import leader_epochs, names
from kafkapy.log.config import LogConfig
from kafkapy.log.directories import checkpoints
from kafkapy.log.directories.checkpoints import CheckpointError, OffsetCheckpoint
from kafkapy.log.directories.dir_lock import NAME as LOCK
from kafkapy.log.directories.dir_lock import DirLock, DirLocked
from kafkapy.log.environment import Environment
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.storage.files import Files
from kafkapy.runtime.clock import SystemClock
from kafkapy.server.adoption.tree import give_to_owner
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.log.verify.partition import segments_in
from kafkapy.tools.log.verify.small_files import CHECKPOINTS

# The broker expires producers after a day without writes; a repair keeps them.
_FOREVER_MS = 1 << 62


class _Afterwards:
    """A scheduler that collects the calls which recovery schedules. `run` makes them, when recovery holds no lock any
    more."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()

    def schedule(
        self, name: str, fn: Callable[[], object], delay_s: float = 0.0, period_s: float | None = None
    ) -> object:
        self._waiting.append(fn)
        return None

    def run(self) -> None:
        while self._waiting:
            self._waiting.popleft()()


@contextmanager
def locked(log_dir: Path) -> Iterator[None]:
    """Context manager that holds the lock of a log directory. Raises ToolError if a broker holds the lock."""
    path = log_dir / LOCK
    there = path.exists()
    try:
        lock = DirLock(str(log_dir))
    except DirLocked as error:
        raise ToolError(f"{log_dir} is in use by a broker: stop it before a repair.") from error
    try:
        yield
    finally:
        lock.release()
        if not there:
            path.unlink(missing_ok=True)


def repair(directory: Path, damaged: Collection[Path]) -> str:
    """Recover the log in a partition's directory. Return a sentence about the result. The caller must hold the lock of
    the log directory.

    `damaged` has the files in the directory that have problems. Segments before the first damaged one are not changed.
    Raises ToolError, OSError.
    """
    parsed = names.parse_dir_name(directory.name)
    if parsed is None or parsed.kind != names.LIVE_DIR:
        raise ToolError(f"{directory} cannot be repaired: it is not named TOPIC-PARTITION.")
    if not segments_in(directory):
        raise ToolError(f"{directory} cannot be repaired: it has no segments of Kafka 0.8 or later.")
    log_dir = directory.parent
    before = {path.name: path.stat().st_size for _, path in segments_in(directory)}
    for path in damaged:
        if path.suffix in (*names.INDEXES, names.SNAPSHOT) or path.name == leader_epochs.NAME:
            path.unlink(missing_ok=True)
    logging.getLogger("kafkapy").addHandler(
        logging.NullHandler()
    )  # the sentence returned replaces recovery's log lines
    afterwards = _Afterwards()
    env = Environment(str(log_dir), Files(), SystemClock(), afterwards, producer_expiration_ms=_FOREVER_MS)
    try:
        log = PartitionLog.load(
            env,
            str(directory),
            parsed.topic,
            parsed.partition,
            LogConfig({"file.delete.delay.ms": 0}),
            clean=False,
            recovery_point=min(map(_reaches_back_to, damaged), default=0),
            log_start_offset=_log_start_offset(env.files, log_dir, parsed.topic, parsed.partition),
        )
        afterwards.run()
        log.close()
        afterwards.run()
    except KafkaError as error:
        raise ToolError(f"{directory} cannot be repaired: {error.message}") from error
    finally:
        for path in directory.iterdir():  # new files belong to root if root runs this, and the broker must write them
            give_to_owner(path, directory)
    _lower_checkpoints(env.files, log_dir, parsed.topic, parsed.partition, log.log_end_offset)
    after = {path.name: path.stat().st_size for _, path in segments_in(directory)}
    return _summary(directory, before, after, log.log_end_offset)


def _lower_checkpoints(files: Files, log_dir: Path, topic: str, partition: int, end: int) -> None:
    """Lower the partition's offsets in checkpoints to the log end offset `end` if they are larger, as the broker does
    at start."""
    for name in CHECKPOINTS:
        checkpoint = OffsetCheckpoint(files, str(log_dir), name)
        try:
            offsets = checkpoint.read()
        except CheckpointError:
            continue
        if offsets.get((topic, partition), 0) > end:
            checkpoint.write({**offsets, (topic, partition): end})
            give_to_owner(log_dir / name, log_dir)


def _reaches_back_to(path: Path) -> int:
    """Return the offset from which the log must be read to rebuild or truncate the damaged file."""
    offset = names.offset_of(path.name)
    if offset is None:
        return 0
    return max(0, offset - 1) if path.suffix == names.SNAPSHOT else offset


def _log_start_offset(files: Files, log_dir: Path, topic: str, partition: int) -> int:
    try:
        return OffsetCheckpoint(files, str(log_dir), checkpoints.LOG_START_OFFSETS).read().get((topic, partition), 0)
    except CheckpointError:
        return 0


def _summary(directory: Path, before: dict[str, int], after: dict[str, int], end: int) -> str:
    done = [
        f"{name} was cut from {size} to {after[name]} bytes"
        for name, size in before.items()
        if name in after and after[name] < size
    ]
    gone = [name for name in before if name not in after]
    if gone:
        done.append(f"{len(gone)} later segments were deleted (from {gone[0]} on)")
    done.append("its indexes and snapshots were rebuilt from the first damage on")
    return f"{directory}: {', '.join(done)}; the log ends at offset {end}."
