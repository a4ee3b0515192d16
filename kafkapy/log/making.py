"""Create a log in the first log directory that has room for it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from kafkapy.errors import Errors, KafkaError
from kafkapy.log import names
from kafkapy.log.config import LogConfig
from kafkapy.log.directories.log_dir import LogDir, TopicPartition
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.storage.files import Files

_log = logging.getLogger(__name__)


def make_log(
    log_dirs: Iterable[LogDir], files: Files, key: TopicPartition, topic_id: bytes | None, config: LogConfig
) -> PartitionLog:
    """Create a log in the first directory that has room. Raises KafkaError KAFKA_STORAGE_ERROR if none has."""
    reason = "no log directory is online"
    for log_dir in log_dirs:
        path = os.path.join(log_dir.env.log_dir, names.dir_name(*key))
        was_there = files.exists(path)
        try:
            if not was_there:
                log_dir.env.cleaner_offsets.remove(key)  # may be left from a log that was deleted by hand
            # A directory that appeared after the start is recovered: the clean-shutdown marker, which is read at the
            # start, does not cover it.
            return PartitionLog.load(log_dir.env, path, *key, config, clean=not was_there, topic_id=topic_id)
        except OSError as error:
            reason = log_dir.env.disk_error(f"making {path}", error).message
        except KafkaError as refusal:
            if refusal.code != Errors.KAFKA_STORAGE_ERROR:
                raise
            reason = refusal.message
        if was_there:
            break
        _remove_half_made(files, path)
    raise KafkaError(Errors.KAFKA_STORAGE_ERROR, reason)


def _remove_half_made(files: Files, path: str) -> None:
    """Remove the directory, because the log will be created elsewhere. A start fails if a log is in two directories."""
    try:
        files.remove_tree(path)
    except OSError as error:
        _log.error("%s is half made and has to be removed by hand: %s", path, error)
