"""Choose which adjacent segments a cleaning merges into one (Kafka's Cleaner.groupSegmentsBySize)."""

from __future__ import annotations

from collections.abc import Sequence

from kafkapy.log.config import LogConfig
from kafkapy.log.segments.segment import MAX_RELATIVE_OFFSET, Segment


def group_segments(segments: Sequence[Segment], config: LogConfig, first_uncleanable: int) -> list[list[Segment]]:
    """Return groups of adjacent segments, each at most segment.bytes and segment.index.bytes in all, or a single
    segment.

    Merging keeps a log from ending up with ever smaller segments. All offsets of a group must fit into index entries
    relative to the base offset of the group's first segment. The base offset of the next segment serves as the upper
    bound of a segment's offsets. The offsets of an empty segment do not count.
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
