"""The directory with the logs of Kafka 0.7 (`log.dir`): finds and creates logs, and keeps them flushed and short.

Directories of partitions appear with the first Produce. How many partitions a topic has is a setting: a directory
beyond that number is kept, but not served.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import threading
from collections.abc import Callable

from kafkapy.errors import KafkaError
from kafkapy.log.directories import clean_shutdown
from kafkapy.log.directories.creation import create_if_missing
from kafkapy.log.directories.dir_lock import DirLock
from kafkapy.log.directories.meta_properties import NAME as META_PROPERTIES
from kafkapy.log.environment import Environment
from kafkapy.log.log07.log import Log07
from kafkapy.log.log07.recovery import UnusableLog, create_log, open_log
from kafkapy.log.log07.retention import delete_old_segments
from kafkapy.log.log07.settings import SettingsOf
from kafkapy.log.names import LOG, offset_of
from kafkapy.log.offline.files_07 import partition_of_07
from kafkapy.log.retention import KafkaRetention
from kafkapy.runtime.logs import fields

_log = logging.getLogger(__name__)

_BAD_NAME = frozenset({errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ})


def later_files_in(path: str) -> str | None:
    """Return the path of a file that a broker of Kafka 0.8 or later, or kafkapy, has written in the directory `path`,
    None if there is none. Raises OSError."""
    for name in os.listdir(path):
        inside = os.path.join(path, name)
        if name == META_PROPERTIES:
            return inside
        if os.path.isdir(inside) and partition_of_07(name) is not None:
            for file in os.listdir(inside):
                if file.endswith(LOG) and offset_of(file) is not None:
                    return os.path.join(inside, file)
    return None


class LogDir07:
    """An open and locked directory of Kafka 0.7 logs. Any thread may use it.

    The constructor raises OSError, and DirLocked if another broker uses the directory.
    """

    def __init__(self, env: Environment, settings_of: SettingsOf, count_of: Callable[[str], int]) -> None:
        """`count_of(topic)` returns the number of partitions of a topic."""
        self.env = env
        self.count_of = count_of
        self.on_new_topic: Callable[[str], None] = lambda topic: None
        self._settings_of = settings_of
        self._logs: dict[str, dict[int, Log07]] = {}
        self._unusable: dict[tuple[str, int], str] = {}
        self._creating = threading.Lock()
        self._loaded = False
        create_if_missing(env.files, env.log_dir)
        self._lock = DirLock(env.log_dir)

    # --- start and stop

    def load(self) -> None:
        """Open all logs. After a crash, repair the newest segment of each. A log that cannot be used is logged, and its
        partition is not served. Raises OSError."""
        files, path = self.env.files, self.env.log_dir
        is_clean = clean_shutdown.take_marker(files, path)
        found: dict[tuple[str, int], str] = {}
        for entry in files.entries(path, sizes_of=()):
            key = partition_of_07(entry.name) if entry.is_dir else None
            if key is None:
                if entry.is_dir:
                    _log.warning("%s is not the directory of a partition: ignored", os.path.join(path, entry.name))
                continue
            if key in found:  # my_topic_0 beside my_topic-0
                _log.warning("%s and %s are the same partition: the second is kept, not served", found[key], entry.name)
                continue
            found[key] = entry.name
        for (topic, partition), name in found.items():
            directory = os.path.join(path, name)
            try:
                log = open_log(directory, topic, partition, self._settings_of(topic), self.env, recover=not is_clean)
            except UnusableLog as error:
                self._unusable[topic, partition] = str(error)
                _log.error("partition %d of topic %s is offline: %s", partition, topic, error)
                self._logs.setdefault(topic, {})
                continue
            self._logs.setdefault(topic, {})[partition] = log
            if partition >= self.count_of(topic):
                _log.warning(
                    "%s is kept, not served: topic %s has %d partitions", directory, topic, self.count_of(topic)
                )
        self._loaded = is_clean or not self._unusable
        _log.info("loaded logs of Kafka 0.7", extra=fields(directory=path, logs=len(self.logs()), clean=is_clean))

    def close(self, *, clean: bool = True) -> None:
        """Flush and close all logs, and release the lock. If `clean` and all logs were flushed, write the marker that
        saves the next start the recovery."""
        is_clean = clean and self._loaded and self.env.failure is None
        for log in self.logs() if self.env.failure is None else ():
            try:
                log.close()
            except Exception as error:
                is_clean = False
                _log.error("%s was not closed: %s", log.name, error)
        if is_clean:
            try:
                clean_shutdown.write_marker(self.env.files, self.env.log_dir)
            except OSError as error:
                _log.error("the clean-shutdown marker cannot be written in %s: %s", self.env.log_dir, error)
        self._lock.release()

    # --- logs

    def topics(self) -> list[str]:
        """Return the topics that have directories."""
        return list(self._logs)

    def logs(self) -> list[Log07]:
        return [log for partitions in list(self._logs.values()) for log in list(partitions.values())]

    def get(self, topic: str, partition: int) -> Log07 | None:
        """Return the log of a partition, None if there is none yet. Raises UnusableLog, and LogDirFailure once the
        directory has failed."""
        log = self._logs.get(topic, {}).get(partition)
        if log is None or self.env.failure is not None:
            self.env.check()
            if (topic, partition) in self._unusable:
                raise UnusableLog(self._unusable[topic, partition])
        return log

    def create(self, topic: str, partition: int) -> Log07:
        """Return the log of a partition, which is created if it does not exist. Raises as `get` does, OSError if the
        file system does not allow the topic's name, LogDirFailure, and KafkaError for a shortage."""
        with self._creating:
            log = self.get(topic, partition)
            if log is not None:
                return log
            directory = os.path.join(self.env.log_dir, f"{topic}-{partition}")
            try:
                log = create_log(directory, topic, partition, self._settings_of(topic), self.env)
            except OSError as error:
                if error.errno in _BAD_NAME:
                    raise
                raise self.env.disk_error(f"creating {directory}", error) from error
            is_new = topic not in self._logs
            self._logs.setdefault(topic, {})[partition] = log
        _log.info("created a log of Kafka 0.7", extra=fields(topic=topic, partition=partition))
        if is_new:
            self.on_new_topic(topic)
        return log

    def random_partition(self, topic: str) -> int:
        return random.randrange(self.count_of(topic))

    # --- periodic tasks

    def flush_due(self) -> None:
        """Flush each log whose last flush was longer ago than its flush interval."""
        for log in self.logs():
            if log.has_unflushed and log.ms_since_flush >= log.settings.flush_ms:
                self.env.later(f"flush {log.name}", log.flush)

    def delete_old(self) -> int:
        """Delete segments of all logs by age and size, and return their number."""
        policy = self.env.retention or KafkaRetention()
        total = 0
        for log in self.logs():
            if self.env.failure is not None:
                break
            try:
                total += delete_old_segments(log, policy)
            except KafkaError as error:  # a failure of the directory, or a shortage, which are reported already
                _log.debug("%s: %s", log.name, error.message)
        return total
