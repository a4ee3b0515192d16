"""Removing records: whole segments from the front (retention), any number from the end (truncation).

All of it runs under the log's lock and raises OSError. Readers are never waited for: they have the list of
segments as it was, and what they have open stays readable. Source: Kafka's UnifiedLog and LocalLog.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkapy.log.producer_rebuild import rebuild_producer_state
from kafkapy.log.retention import RetentionPolicy, Rule
from kafkapy.log.segment import Segment
from kafkapy.log.segment_deletion import delete_segments
from kafkapy.log.segment_list import SegmentList

if TYPE_CHECKING:
    from kafkapy.log.log_state import LogState

_log = logging.getLogger(__name__)


def delete_old_segments(log: LogState, policy: RetentionPolicy) -> int:
    """Asks the policy, one rule after the other; returns how many segments went."""
    return sum(_delete(log, _deletable(log, rule), rule.reason) for rule in policy.rules(log, log.clock.time_ms()))


def _deletable(log: LogState, rule: Rule) -> list[Segment]:
    """From the oldest on, without those that reach the high watermark, and never an empty active segment."""
    found = []
    items = log.segments.items
    for at, segment in enumerate(items):
        following = items[at + 1].base_offset if at + 1 < len(items) else None
        upper = following if following is not None else log.log_end_offset
        if upper > log.high_watermark or (following is None and segment.size == 0):
            break
        if not rule.breached(segment, following):
            break
        found.append(segment)
    return found


def _delete(log: LogState, gone: list[Segment], why: str) -> int:
    if not gone:
        return 0
    if len(gone) == len(log.segments):
        log.roll_locked()  # there is always an active segment
    following = log.segments.after(gone[-1])
    assert following is not None
    # First the start, then the list, then the names: a reader finds the records, or is told they are gone.
    log.move_start_locked(following.base_offset)
    log.segments = log.segments.without(gone)
    delete_segments(log.env, gone, log.snapshots, log.config.file_delete_delay_ms, f"{log.name}: {why}")
    return len(gone)


def truncate_to(log: LogState, offset: int) -> bool:
    """Removes the batches that reach `offset` and later ones; whether there were any."""
    if offset < 0:
        raise ValueError(f"{log.name} cannot be truncated to {offset}")
    if offset >= log.log_end_offset:
        log.leader_epochs.truncate_from_end(log.log_end_offset)
        return False
    _log.info("%s: truncating from %d to %d", log.name, log.log_end_offset, offset)
    if offset < log.segments.items[0].base_offset:
        truncate_fully(log, offset)
        return True
    gone = [segment for segment in log.segments if segment.base_offset > offset]
    kept = log.segments.without(gone)
    # First the end, then the file: nobody finds what is about to be cut off.
    cut = kept.active.locate(offset, kept.active.size)
    log.set_segments_locked(kept, offset, cut[0] if cut is not None else kept.active.size)
    # The later segments before: a crash in between must not leave them behind one that is cut, a gap nobody notices.
    delete_segments(log.env, gone, log.snapshots, log.config.file_delete_delay_ms, f"{log.name} truncated to {offset}")
    kept.active.truncate_to(offset)
    # At once: after a power cut nothing of it may be found behind, or beside, what is appended from now on.
    kept.active.sync_records()
    log.env.files.sync_dir(log.directory)
    log.leader_epochs.truncate_from_end(offset)
    log.log_start_offset = min(log.log_start_offset, offset)
    _rebuild_producers(log)
    return True


def truncate_fully(log: LogState, offset: int) -> None:
    """Removes everything and goes on, empty, at `offset`."""
    gone = log.segments.items
    # A new segment may need the name of an old one, so the names change before the list does: until then nobody who
    # has the old list must open a file by its name.
    for segment in gone:
        segment.pin_all()
    delete_segments(log.env, gone, log.snapshots, log.config.file_delete_delay_ms, f"{log.name} begins anew")
    new = Segment.create(log.env.files, log.directory, offset, log.config, log.clock)
    log.leader_epochs.clear()
    log.snapshots.delete_all()
    log.env.files.sync_dir(log.directory)
    log.producers.clear(offset)
    log.log_start_offset = offset
    log.set_segments_locked(SegmentList([new]), offset, 0)
    log.high_watermark = offset
    log.recovery_point = offset
    _rebuild_producers(log)


def _rebuild_producers(log: LogState) -> None:
    rebuild_producer_state(
        log.producers,
        log.snapshots,
        log.segments,
        log.log_start_offset,
        log.log_end_offset,
        log.clock.time_ms(),
    )
