"""Replace segments by the cleaned segment that was made from them, so that a crash at any moment loses nothing.

The files pass through these states. A start after a crash acts on the state it finds:

    .cleaned       the new segment may be incomplete: the start removes it, and the old segments are unchanged
    .swap          the new segment is complete: the start replaces the segments that it covers
    old .deleted   the old segments were replaced: the start removes them
    final name     the replacement is finished

Readers take no lock. They use either the old or the new list of segments. Source: Kafka's LocalLog.replaceSegments.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from kafkapy.log import names
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.segments.segment import Segment


def swap_in(log: PartitionLog, cleaned: Segment, old: Sequence[Segment]) -> None:
    """Replace the segments in `old` by the segment `cleaned`. The caller holds the log's `upkeep` lock.

    Raises LogDirFailure if renaming files fails. Also raises OSError, or KafkaError if the log is closed; then the log
    is unchanged.
    """
    try:
        _prepare(log, cleaned, old)
        with log.lock:
            log.check_open()
            remaining = log.segments.without(old).with_added(cleaned)
            log.replace_segments_locked(remaining)
    except BaseException:
        for segment in (cleaned, *old):
            segment.release()
        remove_cleaned(log, cleaned.base_offset)
        raise
    try:
        removed = _rename(log, cleaned, old)
    # even a shortage takes the directory offline: the file names would no longer match the list
    except OSError as error:
        raise log.env.failed(f"swapping in segments of {log.name}", error) from error
    cleaned.release()

    def remove() -> None:
        for segment in old:
            segment.delete()
        for path in removed:
            log.env.files.unlink(path)

    log.env.later(f"delete-cleaned-segments of {log.name}", remove, log.config.file_delete_delay_ms)


def _prepare(log: PartitionLog, cleaned: Segment, old: Sequence[Segment]) -> None:
    cleaned.rename(names.SWAP)
    log.env.files.sync_dir(log.directory)
    # The new .log file gets the name of the first old one. A reader that opened a file by its name during the renames
    # could get the file of another segment. So all files are opened before the renames, and stay open.
    for segment in (cleaned, *old):
        segment.pin_all()


def remove_cleaned(log: PartitionLog, base_offset: int) -> None:
    """Remove the `.cleaned` and `.swap` files of a new segment whose cleaning has failed.

    The next start would let a `.swap` file replace records that the log has gained meanwhile, and would take a
    `.cleaned` file as a sign that later `.swap` files are incomplete.
    """
    for kind in (names.LOG, *names.INDEXES):
        for suffix in (names.CLEANED, names.SWAP):
            log.env.files.unlink(os.path.join(log.directory, names.file_name(base_offset, kind) + suffix))


def _rename(log: PartitionLog, cleaned: Segment, old: Sequence[Segment]) -> list[str]:
    """Rename the files of the old segments to `.deleted`, then those of the new segment to their final names.

    Return the new paths of the producer snapshots of old segments, which are renamed to `.deleted` as well.
    """
    with log.lock:
        merged = [segment.base_offset for segment in old if segment.base_offset != cleaned.base_offset]
        snapshots = [path for path in map(log.snapshots.mark_deleted, merged) if path is not None]
    for segment in old:
        segment.rename(names.DELETED)
    # Sync between the two renames: after a power cut the new segment must not have its final name while some of the old
    # segments still have theirs.
    log.env.files.sync_dir(log.directory)
    cleaned.rename("")
    log.env.files.sync_dir(log.directory)
    return snapshots
