"""Find the logs in the log directories when the broker starts, and repair what an interrupted move has left.

A log may be in one log directory and its future log in another. After a crash while the future log replaced the log,
both may have the partition's name. Then the one with the file MOVED_IN is the copy, and becomes a future log again,
because the other one has at least the same records. See kafkapy.log.moves.swapping.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kafkapy.log import names
from kafkapy.log.directories.log_dir import LogDir, TopicPartition

Place = tuple[LogDir, str]  # a log directory, and the path of a partition's directory in it

_log = logging.getLogger(__name__)


class LogInTwoDirectories(RuntimeError):
    """Raised if two log directories have a log of the same partition, and it is unknown which one is the copy."""


class FoundLogs(NamedTuple):
    """The logs to load: for each readable log directory the paths of its logs, and the places of future logs."""

    logs: list[tuple[LogDir, dict[TopicPartition, str]]]
    futures: dict[TopicPartition, Place]


def find_logs(log_dirs: Iterable[LogDir], remove_later: Callable[[LogDir, str], object]) -> FoundLogs:
    """List the log directories. Directories that are marked for deletion are removed with `remove_later`.

    Raises LogInTwoDirectories if a log is in two directories, and not exactly one of them is marked as the copy; Kafka
    does not start then either. A directory that cannot be read goes offline.
    """
    found = FoundLogs([], {})
    places: dict[TopicPartition, Place] = {}
    futures: list[tuple[TopicPartition, Place]] = []
    for log_dir in log_dirs:
        try:
            listed = log_dir.begin_loading()
            for path, name in listed:
                key, place = (name.topic, name.partition), (log_dir, path)
                if name.kind == names.DELETE_DIR:
                    remove_later(log_dir, path)
                elif name.kind == names.FUTURE_DIR:
                    futures.append((key, place))
                elif name.kind != names.LIVE_DIR:
                    _log.warning("%s is not the directory of a log, and is ignored", path)
                elif key in places:
                    places[key], copy = _without_copy(key, places[key], place)
                    futures.append((key, copy))
                else:
                    places[key] = place
        except OSError as error:
            log_dir.env.failed("loading it", error)
            continue
        found.logs.append((log_dir, {}))
    by_dir = {id(log_dir): logs for log_dir, logs in found.logs}
    for key, (log_dir, path) in places.items():
        if id(log_dir) in by_dir:
            by_dir[id(log_dir)][key] = path
    for key, (log_dir, path) in futures:
        _take_future(found, key, log_dir, path, key in places and id(places[key][0]) in by_dir, remove_later)
    return found


def _without_copy(key: TopicPartition, one: Place, other: Place) -> tuple[Place, Place]:
    """Rename the copy of a log that was found in two places, so that it is a future log again.

    Return (place of the log, new place of the copy). Raises OSError if the copy cannot be renamed, and
    LogInTwoDirectories unless exactly one of the places is marked as the copy.
    """
    copies = [(log_dir, path) for log_dir, path in (one, other) if _is_moved_in(log_dir, path)]
    if len(copies) != 1:
        raise LogInTwoDirectories(
            f"{names.dir_name(*key)} is in two directories, {one[1]} and {other[1]}: move one of them elsewhere, "
            "usually the one with fewer records"
        )
    log_dir, path = copies[0]
    renamed = os.path.join(log_dir.env.log_dir, names.future_dir_name(*key))
    log_dir.env.files.rename(path, renamed)
    log_dir.env.files.sync_dir(log_dir.env.log_dir)
    _log.info("%s was about to take the place of another log, and is %s again", path, renamed)
    return (other if copies[0] == one else one), (log_dir, renamed)


def _is_moved_in(log_dir: LogDir, path: str) -> bool:
    return log_dir.env.files.exists(os.path.join(path, names.MOVED_IN))


def _take_future(
    found: FoundLogs,
    key: TopicPartition,
    log_dir: LogDir,
    path: str,
    has_log: bool,
    remove_later: Callable[[LogDir, str], object],
) -> None:
    if not has_log:  # the log may be in a directory that is offline, or was removed by hand
        _log.warning("%s is ignored: the log that it is a copy of is in no log directory", path)
        log_dir.forget(key)
        if not log_dir.was_clean:
            log_dir.not_recovered.add(key)
    elif key in found.futures:
        _log.warning("%s is removed: %s is a copy of the same log", path, found.futures[key][1])
        remove_later(log_dir, path)
    else:
        found.futures[key] = log_dir, path
        if not log_dir.was_clean:
            log_dir.not_recovered.add(key)  # until it is loaded, so that the directory does not count as clean
