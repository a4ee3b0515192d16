"""Remove records from a log: whole segments at its start (retention), or any records at its end (truncation).

The functions are called with the log's lock held and raise OSError. They do not wait for readers: a reader keeps using
the old list of segments, and its open files stay readable. Source: Kafka's UnifiedLog and LocalLog.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkapy.log import names
from kafkapy.log.failures import is_shortage
from kafkapy.log.producers.producer_rebuild import rebuild_producer_state, take_snapshot
from kafkapy.log.retention.policy import RetentionPolicy, Rule
from kafkapy.log.segments.deletion import delete_segments, mark_deleted, remove_later
from kafkapy.log.segments.segment import Segment
from kafkapy.log.segments.segment_list import SegmentList

if TYPE_CHECKING:
    from kafkapy.log.partition_log import PartitionLog
    from kafkapy.log.producers.producer_snapshots import SnapshotFiles
    from kafkapy.log.producers.producer_state import ProducerState

_log = logging.getLogger(__name__)


def delete_old_segments(log: PartitionLog, policy: RetentionPolicy) -> int:
    """Delete the segments that the policy's rules select, and return the number of deleted segments."""
    return sum(_delete(log, _deletable(log, rule), rule.reason) for rule in policy.rules(log, log.clock.time_ms()))


def _deletable(log: PartitionLog, rule: Rule) -> list[Segment]:
    """Return the oldest segments of the log that the rule selects.

    Never includes a segment with records above the high watermark, nor an empty active segment.
    """
    found = []
    bases = log.segments.base_offsets
    for at, segment in enumerate(log.segments):
        following = bases[at + 1] if at + 1 < len(bases) else None
        upper = following if following is not None else log.log_end_offset
        if upper > log.high_watermark or (following is None and segment.size == 0):
            break
        if not rule.breached(segment, following):
            break
        found.append(segment)
    return found


def _delete(log: PartitionLog, gone: list[Segment], why: str) -> int:
    if not gone:
        return 0
    if len(gone) == len(log.segments):
        log.roll_locked()  # there is always an active segment
    log.remove_first_locked(gone)
    delete_segments(log.env, gone, log.snapshots, log.config.file_delete_delay_ms, f"{log.name}: {why}")
    return len(gone)


def truncate_to(log: PartitionLog, offset: int) -> bool:
    """Remove the batch that contains `offset` and all later batches of the log. Return True if there were any.

    Raises ValueError if `offset` is negative, and OSError if the log is unchanged. Once the first change was made, any
    error takes the log directory offline and is raised as LogDirFailure, even a shortage: records that were half
    removed may neither be read nor be appended to.
    """
    if offset < 0:
        raise ValueError(f"{log.name} cannot be truncated to {offset}")
    if offset >= log.log_end_offset:
        log.leader_epochs.truncate_from_end(log.log_end_offset)
        return False
    _log.info("%s: truncating from %d to %d", log.name, log.log_end_offset, offset)
    if offset < log.segments.base_offsets[0]:
        truncate_fully(log, offset)
        return True
    gone = [segment for segment in log.segments if segment.base_offset > offset]
    kept = log.segments.without(gone)
    # First what a shortage is most likely to stop: a full disk, or no file descriptor left.
    log.leader_epochs.try_truncation(offset)
    if not gone:
        kept.active.make_active()
    cut = kept.active.locate(offset, kept.active.size)
    position = cut[0] if cut is not None else kept.active.size
    try:
        _cut_end(log, gone, kept, offset, position)
    except Exception as error:
        raise log.env.failed(f"truncating {log.name} to {offset}", error) from error
    return True


def _cut_end(log: PartitionLog, gone: list[Segment], kept: SegmentList, offset: int, position: int) -> None:
    """Remove the segments `gone`, and cut the last of those `kept` at byte `position`, where the log is to end."""
    # The log's end moves before the file is cut, so that no reader finds a batch that is about to be cut off.
    log.cut_end_locked(kept, offset, position)
    # Later segments are deleted before this one is cut. After a crash in between, the log is just longer; the other way
    # round, a later segment could follow a segment that was cut, and nothing would detect the gap.
    delete_segments(log.env, gone, log.snapshots, log.config.file_delete_delay_ms, f"{log.name} truncated to {offset}")
    kept.active.cut(offset, position)
    # Synced at once: after a power cut no removed record may reappear after or between those that are appended next.
    kept.active.sync_records()
    log.env.files.sync_dir(log.directory)
    log.leader_epochs.truncate_from_end(offset)
    _rebuild_producers(log)


def truncate_fully(log: PartitionLog, offset: int) -> None:
    """Remove all records of the log. The empty log begins at `offset`. Raises errors as `truncate_to` does."""
    gone = log.segments.items
    try:
        log.leader_epochs.try_truncation(0)
        # The new segment may get the name of an old one, so the old files are renamed before the list changes. A reader
        # that still has the old list could then open the new file by that name. So all files are opened and pinned now.
        for segment in gone:
            segment.pin_all()
        # Until then it has a name that the next start after a crash removes.
        new = Segment.create(log.env.files, log.directory, offset, log.config, log.clock, suffix=names.CLEANED)
    except BaseException:
        for segment in gone:
            segment.release()
        raise
    try:
        _replace_all(log, gone, new)
    except Exception as error:
        raise log.env.failed(f"emptying {log.name}", error) from error


def _replace_all(log: PartitionLog, gone: Sequence[Segment], new: Segment) -> None:
    marked = mark_deleted(gone, log.snapshots, f"{log.name} is emptied")
    new.rename("")
    new.release()  # the next use opens the file by its final name, which error messages show
    log.leader_epochs.clear()
    log.snapshots.delete_all()
    log.env.files.sync_dir(log.directory)
    log.restart_locked(new)
    log.producers.clear(new.base_offset)  # after the high watermark is moved, on which the last stable offset depends
    remove_later(log.env, gone, marked, log.config.file_delete_delay_ms)
    _rebuild_producers(log)


def undo_append(log: PartitionLog, *, producers: bool) -> None:
    """Remove what an append that failed halfway, for instance for lack of memory, has written after the log end offset.

    Otherwise the next append would write its records, with the same offsets, after those of the failed append.
    `producers`: the append may have changed the producer state, which is rebuilt. Raises LogDirFailure if undoing
    fails.
    """
    offset, segment, position = log.end
    try:
        log.replace_segments_locked(SegmentList(log.segments.items))  # a new list has no cached positions
        segment.cut(offset, position)
        if producers:
            log.producers.end_offset = -1  # forces a rebuild: the state must not count as that of the log's end
            _rebuild_producers(log)
    except Exception as error:
        raise log.env.failed(f"undoing an append to {log.name}", error) from error


def _rebuild_producers(log: PartitionLog) -> None:
    def take_if_possible(state: ProducerState, snapshots: SnapshotFiles) -> None:
        """Take a snapshot unless there is no space for it: then the start after a crash has to read more of the log."""
        try:
            take_snapshot(state, snapshots)
        except OSError as error:
            if not is_shortage(error):
                raise
            log.env.refuse(f"a producer snapshot of {log.name}", error)
            with suppress(OSError):
                log.env.files.unlink(snapshots.path(state.end_offset))

    with log.producers.rebuilding():
        rebuild_producer_state(
            log.producers,
            log.snapshots,
            log.segments,
            log.log_start_offset,
            log.log_end_offset,
            log.clock.time_ms(),
            take=take_if_possible,
        )
        # A replay takes every transaction for one whose end is not replicated yet, and the high watermark may never
        # move again.
        with log.producers.lock:
            log.producers.high_watermark_moved(log.high_watermark)
