"""The short way to load a log that was closed and has been left alone, as nearly all are at a start.

Its twin is the Loader, which knows what to do about everything else: whatever is not as a clean stop leaves it, this
leaves to the Loader, and it changes nothing in the directory. Looked at is the same: the listing and all sizes, the
indexes of the last segment, its end, the producers' snapshot there, the leader epochs.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkapy.log import leader_epochs, names, partition_metadata
from kafkapy.log.checkpoints import CheckpointError
from kafkapy.log.config import LogConfig
from kafkapy.log.environment import Environment
from kafkapy.log.files import Entry
from kafkapy.log.leader_epochs import LeaderEpochCache
from kafkapy.log.loaded_log import LoadedLog
from kafkapy.log.producer_snapshots import SnapshotError, SnapshotFiles
from kafkapy.log.producer_state import ProducerState
from kafkapy.log.segment import Segment
from kafkapy.log.segment_list import SegmentList

_SEGMENT = frozenset({names.LOG, names.OFFSET_INDEX, names.TIME_INDEX})
_OTHERS = frozenset({leader_epochs.NAME, partition_metadata.NAME})
_DIGITS = len(names.file_name(0, ""))

Found = dict[int, dict[str, Entry]]  # base offset -> suffix -> file
Snapshots = dict[int, "bytes | None"]  # offset -> content, where that is known


def load_sound(
    env: Environment, directory: str, entries: Mapping[str, Entry], config: LogConfig, log_start_offset: int
) -> LoadedLog | None:
    """The log, if the directory holds what a clean stop leaves, and nothing else; None if the Loader has to look.

    `entries` are in the order of their names. Raises OSError.
    """
    found = _sorted_out(entries)
    if found is None or config.record_magic < 2:
        return None
    files, snapshots_at = found
    segments = [Segment(env.files, directory, base, config, env.clock) for base in files]
    for segment in segments:
        segment.open(files[segment.base_offset])
    active = segments[-1]
    try:
        end = _end_of(active)
    finally:
        active.let_go()
    log_start = max(log_start_offset, segments[0].base_offset)
    if end is None or end < log_start_offset:
        return None
    producers, snapshots = ProducerState(env.producer_expiration_ms), SnapshotFiles(env.files, directory)
    epochs = LeaderEpochCache(env.files, directory, env.later)
    try:
        if (noted := entries.get(leader_epochs.NAME)) is not None:
            epochs.load(noted.content)
        if snapshots_at:
            offsets = list(snapshots_at)
            if offsets[-1] != end or offsets[0] <= log_start or any(one not in files for one in offsets[:-1]):
                return None
            producers.load(snapshots.read(end, snapshots_at[end]), end, env.clock.time_ms())
            snapshots.offsets, snapshots.taken_at = offsets, end
        elif end:
            return None
    except (CheckpointError, SnapshotError):
        return None
    epochs.truncate_from_end(end + 1)  # as the Loader does after a clean stop
    epochs.truncate_from_start(log_start_offset)
    return LoadedLog(SegmentList(segments), epochs, producers, snapshots, log_start, end, end, True)


def _sorted_out(entries: Mapping[str, Entry]) -> tuple[Found, Snapshots] | None:
    """The files of segments, and snapshots; None if there is anything else, or something is missing."""
    found: Found = {}
    snapshots: Snapshots = {}
    for name, entry in entries.items():
        offset, suffix = name[:_DIGITS], name[_DIGITS:]
        if suffix == names.SNAPSHOT and _is_offset(offset):
            snapshots[int(offset)] = entry.content
        elif suffix in _SEGMENT and _is_offset(offset):
            found.setdefault(int(offset), {})[suffix] = entry
        elif name not in _OTHERS:
            return None
    whole = found and all(len(one) == len(_SEGMENT) for one in found.values())
    return (found, snapshots) if whole else None


def _is_offset(text: str) -> bool:
    return text.isascii() and text.isdigit() and text <= _LAST


_LAST = names.file_name(names.MAX_OFFSET, "")


def _end_of(active: Segment) -> int | None:
    """The offset behind the last record, if all is well with the end of the log."""
    if active.damage() is not None:
        return None
    tail = active.tail()
    return max(tail.next_offset, active.base_offset) if tail.stopped_by is None else None
