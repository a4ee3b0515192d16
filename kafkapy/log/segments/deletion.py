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
    """Delete the files of segments that have left their log's list, and the producer snapshots at their base offsets.

    The files are renamed at once, and removed after `delay_ms`. `why` is the reason for the log message. Raises OSError
    if a rename fails.
    """
    remove_later(env, gone, mark_deleted(gone, snapshots, why), delay_ms)


def mark_deleted(gone: Sequence[Segment], snapshots: SnapshotFiles, why: str) -> list[str]:
    """Rename the files of these segments and the producer snapshots at their base offsets to `.deleted`.

    Return the new paths of the snapshots. `why` is the reason for the log message. Raises OSError.
    """
    if not gone:
        return []
    shown = ", ".join(map(repr, gone[:_SHOWN]))
    more = f" and {len(gone) - _SHOWN} more" if len(gone) > _SHOWN else ""
    _log.info("deleting %s%s: %s", shown, more, why)
    marked = []
    for segment in gone:
        segment.rename(names.DELETED)
        snapshot = snapshots.mark_deleted(segment.base_offset)
        if snapshot is not None:
            marked.append(snapshot)
    return marked


def remove_later(env: Environment, gone: Sequence[Segment], snapshots: Sequence[str], delay_ms: int) -> None:
    """Remove the already renamed files of the segments `gone`, and the files `snapshots`, after `delay_ms`.

    Without a delay, another thread may remove them before this returns. The segments must have been removed from their
    log's list: a reader or a flush that does not find the file of a listed segment takes the log directory offline.
    """
    if not gone:
        return

    def remove() -> None:
        for segment in gone:
            segment.delete()
        for path in snapshots:
            env.files.unlink(path)

    env.later(f"delete-segments in {gone[0].directory}", remove, delay_ms)
