"""Replace a log by its future log, so that a crash at any point leaves one whole log.

The PartitionLog object stays, and only its files become those of the future log (`PartitionLog.put_locked`). So
everything that refers to the log, such as its partition, fetch sessions and coordinators, stays valid.

What a crash after each step leaves (kafkapy.log.loading.found says what the next start does):

1. The future log has the file MOVED_IN: it is still a future log, and the copy is continued.
2. The future log's directory has the partition's name, like the old one: the one with MOVED_IN becomes a future log
   again. No record was appended to it that the old log lacks, because the log's lock is held.
3. The old directory is marked for deletion: the new one is the log. The start removes the other, and MOVED_IN.

Kafka has the steps 2 and 3 too, but no MOVED_IN: after a crash between them it does not start. Source:
LogManager.replaceCurrentWithFutureLog, UnifiedLog.renameDir.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from kafkapy.errors import Errors, KafkaError
from kafkapy.log import names
from kafkapy.log.moves.copying import copy_piece
from kafkapy.log.partition_log import PartitionLog, Place

_log = logging.getLogger(__name__)


def prepare(future: PartitionLog) -> None:
    """Flush a future log that has nearly caught up, and mark its directory, so that `swap` has little to do.

    Raises LogDirFailure, or a Shortage.
    """
    future.flush()
    mark = os.path.join(future.directory, names.MOVED_IN)

    def write() -> None:
        future.env.files.write(mark, b"")
        future.env.files.sync_dir(future.directory)

    future.changed("marking", write)


def swap(log: PartitionLog, future: PartitionLog, old_directory: str, piece: int) -> None:
    """Copy what is missing, and let `log` use the files of `future`. The old files are then in `old_directory`.

    No record can be appended meanwhile, and no flush or cleaning runs; appends wait for a moment. If this raises, the
    log is as before. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION if one of the logs was closed, and LogDirFailure or a
    Shortage of either directory.
    """
    with log.upkeep.interrupting(), future.upkeep.interrupting(), log.flusher.paused(), log.lock:
        log.check_open()
        if log.future is not future:
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"{log.name} is not moved to {future.env.log_dir}")
        while copy_piece(log, future, piece) is not None:
            pass
        future.flush()
        old = log.place()
        with future.flusher.paused(), future.lock:
            future.check_open()
            _move_files(log, future, old, old_directory)
            future.closed = future.abandoned = True  # its pending background work is dropped
        log.future = None
    for segment in old.segments:
        segment.retire()
        segment.part()
    old.leader_epochs.close()


def _move_files(log: PartitionLog, future: PartitionLog, before: Place, old_directory: str) -> None:
    """Rename both directories, and let the log use the new files before its old ones, `before`, lose their names."""
    env, temporary = future.env, future.directory
    new_directory = os.path.join(env.log_dir, log.name)
    try:
        future.leader_epochs.replace(log.leader_epochs.entries)
        _rename_future(future, new_directory)
    except OSError as error:
        refusal = env.disk_error(f"moving {log.name} to {env.log_dir}", error)
        _undo(future, temporary)
        raise refusal from error
    log.put_locked(future.place())
    try:
        before.env.files.rename(before.directory, old_directory)
    except OSError as error:
        log.put_locked(before)
        refusal = before.env.disk_error(f"moving {log.name} out of {before.env.log_dir}", error)
        _undo(future, temporary)
        raise refusal from error
    _sync_old(log, before)


def _sync_old(log: PartitionLog, before: Place) -> None:
    """Make the new name of the log's old directory durable, before a record is appended to the new files."""
    try:
        before.env.files.sync_dir(before.env.log_dir)
    except OSError as error:
        # The old name may come back after a power cut. Then the next start must not think that the new directory has no
        # more records than the old one. Without MOVED_IN it refuses to choose.
        with suppress(OSError):
            log.env.files.unlink(os.path.join(log.directory, names.MOVED_IN))
            log.env.files.sync_dir(log.directory)
        _log.error("%s", before.env.disk_error(f"moving {log.name} out of {before.env.log_dir}", error).message)


def _rename_future(future: PartitionLog, directory: str) -> None:
    files = future.env.files
    future.leader_epochs.rename(directory, lambda: files.rename(future.directory, directory))
    future.directory = future.snapshots.directory = directory
    for segment in future.segments:
        segment.directory = directory
        segment.release()  # the next use opens the file by its new name, which error messages show
    files.sync_dir(future.env.log_dir)


def _undo(future: PartitionLog, directory: str) -> None:
    """Rename a future log that could not replace its log back to `directory`.

    If that fails, raises LogDirFailure, and the next start renames it.
    """
    try:
        if future.directory != directory:
            _rename_future(future, directory)
    except OSError as error:
        raise future.env.failed(f"renaming {future.directory}", error) from error
