"""A cleaned segment in the place of those it was made of, so that a crash at any moment loses nothing.

    .cleaned       the cleaning was cut short: the start removes the file, the old segments are as they were
    .swap          the new segment is whole: the start puts it in the place of the segments that it covers
    old .deleted   the start removes them
    final name     done

Readers take no lock: they have the old list or the new one. Source: Kafka's LocalLog.replaceSegments.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from kafkapy.log import names
from kafkapy.log.log_state import LogState
from kafkapy.log.segment import Segment


def swap_in(log: LogState, cleaned: Segment, old: Sequence[Segment]) -> None:
    """Raises OSError, KafkaError (the log is closed), and then nothing was done; or LogDirFailure.

    The caller holds the log's upkeep.
    """
    try:
        _prepare(log, cleaned, old)
        with log.lock:
            log.check_open()
            remaining = log.segments.without(old).with_added(cleaned)
            assert remaining.active is log.segments.active, f"{log.name}: the active segment is never cleaned"
            log.replace_segments_locked(remaining)
    except BaseException:
        cleaned.let_go()
        remove_cleaned(log, cleaned.base_offset)
        raise
    try:
        removed = _rename(log, cleaned, old)
    except OSError as error:  # not even for a shortage: files and list would not be of one mind
        raise log.env.failed(f"swapping in segments of {log.name}", error) from error
    cleaned.let_go()

    def remove() -> None:
        for segment in old:
            segment.delete()
        for path in removed:
            log.env.files.unlink(path)

    log.env.later(f"delete-cleaned-segments of {log.name}", remove, log.config.file_delete_delay_ms)


def _prepare(log: LogState, cleaned: Segment, old: Sequence[Segment]) -> None:
    cleaned.rename(names.SWAP)
    log.env.files.sync_dir(log.directory)
    # A reader that has the old list, or gets the new one, must not open a file by its name while that changes hands:
    # the new segment's log has the name of the first old one's. So all of them are open before, and stay so.
    for segment in (cleaned, *old):
        segment.pin_all()


def remove_cleaned(log: LogState, base_offset: int) -> None:
    """Removes a new segment that does not come into its place, or not all of it.

    The next start would put a `.swap` in the place of what the log has become until then, and would take a `.cleaned`
    for a sign that a later `.swap` is not whole.
    """
    for kind in (names.LOG, *names.INDEXES):
        for suffix in (names.CLEANED, names.SWAP):
            log.env.files.unlink(os.path.join(log.directory, names.file_name(base_offset, kind) + suffix))


def _rename(log: LogState, cleaned: Segment, old: Sequence[Segment]) -> list[str]:
    """Returns the paths of the snapshots that go with the old segments."""
    with log.lock:
        merged = [segment.base_offset for segment in old if segment.base_offset != cleaned.base_offset]
        snapshots = [path for path in map(log.snapshots.mark_deleted, merged) if path is not None]
    for segment in old:
        segment.rename(names.DELETED)
    # Between the two: a power cut must not leave the new one under its name beside some that it was made of.
    log.env.files.sync_dir(log.directory)
    cleaned.rename("")
    log.env.files.sync_dir(log.directory)
    return snapshots
