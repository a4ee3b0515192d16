"""Delete segments: rename the files to `.deleted` at once, and remove them after file.delete.delay.ms.

A start after a crash removes `.deleted` files. Readers that hold an open file can still read it. Source: Kafka's
LocalLog.deleteSegmentFiles.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kafkapy.log import names
from kafkapy.log.environment import Environment
from kafkapy.log.producers.producer_snapshots import SnapshotFiles
from kafkapy.log.segments.segment import Segment

_SHOWN = 10

_log = logging.getLogger(__name__)


def delete_segments(
    env: Environment, gone: Sequence[Segment], snapshots: SnapshotFiles, delay_ms: int, why: str
) -> None:
    """Delete the files of segments that are no longer in the list, and the snapshots at their base offsets.

    Raises OSError if a rename fails.
    """
    if not gone:
        return
    shown = ", ".join(map(repr, gone[:_SHOWN]))
    more = f" and {len(gone) - _SHOWN} more" if len(gone) > _SHOWN else ""
    _log.info("deleting %s%s: %s", shown, more, why)
    marked = []
    for segment in gone:
        segment.rename(names.DELETED)
        snapshot = snapshots.mark_deleted(segment.base_offset)
        if snapshot is not None:
            marked.append(snapshot)

    def remove() -> None:
        for segment in gone:
            segment.delete()
        for path in marked:
            env.files.unlink(path)

    env.later(f"delete-segments in {gone[0].directory}", remove, delay_ms)
