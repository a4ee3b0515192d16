"""A cleaned segment in the place of those it was made of, so that a crash at any moment loses nothing.

    .cleaned       the cleaning was cut short: the start removes the file, the old segments are as they were
    .swap          the new segment is whole: the start puts it in the place of the segments that it covers
    old .deleted   the start removes them
    final name     done

Readers take no lock: they have the old list or the new one. Source: Kafka's LocalLog.replaceSegments.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkapy.log import names
from kafkapy.log.log_state import LogState
from kafkapy.log.segment import Segment


def swap_in(log: LogState, cleaned: Segment, old: Sequence[Segment]) -> None:
    """Raises OSError, KafkaError (the log is closed). The caller holds the log's upkeep."""
    files = log.env.files
    cleaned.rename(names.SWAP)
    files.sync_dir(log.directory)
    # A reader that has the old list, or gets the new one below, must not open a file by its name while that changes
    # hands: the new segment's log has the name of the first old one's. So all of them are open before.
    for segment in (cleaned, *old):
        segment.open_all()
    with log.lock:
        log.check_open()
        remaining = log.segments.without(old).with_added(cleaned)
        assert remaining.active is log.segments.active, f"{log.name}: the active segment is never cleaned"
        log.replace_segments_locked(remaining)
        merged = [segment.base_offset for segment in old if segment.base_offset != cleaned.base_offset]
        snapshots = [path for path in map(log.snapshots.mark_deleted, merged) if path is not None]
    for segment in old:
        segment.rename(names.DELETED)
    cleaned.rename("")
    files.sync_dir(log.directory)
    cleaned.let_go()

    def remove() -> None:
        for segment in old:
            segment.delete()
        for path in snapshots:
            files.unlink(path)

    log.env.later(f"delete-cleaned-segments of {log.name}", remove, log.config.file_delete_delay_ms)
