"""Which neighbouring segments become one (Kafka's Cleaner.groupSegmentsBySize)."""

from __future__ import annotations

from collections.abc import Sequence

from kafkapy.log.config import LogConfig
from kafkapy.log.segment import MAX_RELATIVE_OFFSET, Segment


def group_segments(segments: Sequence[Segment], config: LogConfig, first_uncleanable: int) -> list[list[Segment]]:
    """Runs of segments that together have at most segment.bytes and segment.index.bytes.

    So the segments of a log do not become ever smaller. The offsets of a run fit into index entries of its first
    segment; where the next segment begins is taken for where one ends. An empty segment adds nothing to that.
    """
    groups: list[list[Segment]] = []
    size = offsets = times = 0
    for at, segment in enumerate(segments):
        following = segments[at + 1].base_offset if at + 1 < len(segments) else first_uncleanable
        offset_bytes = segment.offset_index.count * segment.offset_index.width
        time_bytes = segment.time_index.count * segment.time_index.width
        if groups and (
            size + segment.size <= config.segment_bytes
            and offsets + offset_bytes <= config.segment_index_bytes
            and times + time_bytes <= config.segment_index_bytes
            and (segment.size == 0 or following - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = offsets = times = 0
        size += segment.size
        offsets += offset_bytes
        times += time_bytes
    return groups
