"""Making a log that is not there yet, in the first log directory that takes it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from kafkapy.errors import Errors, KafkaError
from kafkapy.log import names
from kafkapy.log.config import LogConfig
from kafkapy.log.files import Files
from kafkapy.log.log_dir import LogDir, TopicPartition
from kafkapy.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)


def make_log(
    log_dirs: Iterable[LogDir], files: Files, key: TopicPartition, topic_id: bytes | None, config: LogConfig
) -> PartitionLog:
    """Tries the directories in turn. Raises KafkaError: KAFKA_STORAGE_ERROR if none of them can take it."""
    reason = "no log directory is online"
    for log_dir in log_dirs:
        path = os.path.join(log_dir.env.log_dir, names.dir_name(*key))
        was_there = files.exists(path)
        try:
            if not was_there:
                log_dir.env.cleaner_offsets.remove(key)  # of one that went without our help
            return PartitionLog.load(log_dir.env, path, *key, config, topic_id=topic_id)
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
    """The log is made in another directory now, or later: the next start must not find it in two."""
    try:
        files.remove_tree(path)
    except OSError as error:
        _log.error("%s is half made and has to be removed by hand: %s", path, error)
