"""Opening all logs of one log directory, several at a time (Kafka's LogManager.loadLogs)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from kafkapy.errors import KafkaError
from kafkapy.log import names
from kafkapy.log.config import LogConfig
from kafkapy.log.log_dir import LogDir, TopicPartition
from kafkapy.log.names import LogDirName
from kafkapy.log.parallel import run_all
from kafkapy.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)


def load_dir(
    log_dir: LogDir,
    config_of: Callable[[str], LogConfig],
    threads: int,
    *,
    opened: Callable[[PartitionLog], None],
    refused: Callable[[TopicPartition, KafkaError], None],
    doomed: Callable[[str], None],
) -> None:
    """Calls `opened`, `refused` or (for a directory that is marked for deletion) `doomed` for each partition.

    A disk error takes the directory offline and ends its loading.
    """
    try:
        found = log_dir.begin_loading()
    except OSError as error:
        log_dir.env.failed("loading it", error)
        return
    if found:
        state = "stopped cleanly" if log_dir.was_clean else "not stopped cleanly: recovering"
        _log.info("%s: partitions: %d, %s", log_dir.path, len(found), state)

    not_recovered: list[str] = []

    def load(path: str, name: LogDirName) -> None:
        if name.kind == names.DELETE_DIR:
            doomed(path)
        elif name.kind != names.LIVE_DIR:
            _log.warning("%s is left alone", path)
        elif log_dir.online:
            try:
                opened(_load_log(log_dir, path, name, config_of(name.topic)))
            except OSError as error:
                log_dir.env.failed(f"loading {path}", error)
            except KafkaError as error:
                _log.error("%s is not served: %s", path, error.message)
                refused((name.topic, name.partition), error)
                if not log_dir.was_clean:
                    not_recovered.append(path)

    run_all([partial(load, path, name) for path, name in found], threads, f"recovery of {log_dir.path}")
    # A log that was not recovered now has to be next time: then the directory may not count as stopped cleanly.
    log_dir.all_loaded = log_dir.online and not not_recovered


def _load_log(log_dir: LogDir, path: str, name: LogDirName, config: LogConfig) -> PartitionLog:
    key = (name.topic, name.partition)
    began = time.monotonic()
    log = PartitionLog.load(
        log_dir.env,
        path,
        *key,
        config,
        clean=log_dir.was_clean,
        log_start_offset=log_dir.start_offsets.get(key, 0),
        recovery_point=log_dir.recovery_points.get(key, 0),
    )
    if not log_dir.was_clean:
        ms = (time.monotonic() - began) * 1000
        _log.info("%s: recovered offsets %d to %d in %.1f ms", log.name, log.log_start_offset, log.log_end_offset, ms)
    log.set_high_watermark(log_dir.high_watermarks.get(key, log.log_start_offset))
    return log
