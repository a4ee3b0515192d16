"""Divide partitions into splits of about equal size at batch boundaries, so that several readers can share a partition.

A split also records what its file looked like. Before the split is read, the cleaner may rewrite the file or merge it
with others, and retention may remove it. Then `found_again` finds the same offsets in the present files.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from kafkapy.log.offline.cuts import Cut, Extent, cuts_between, extent_of
from kafkapy.log.offline.ends import LogEnd, end_of
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.places import Place, Segment, places_in, siblings
from kafkapy.log.offline.stored_batches import LogReader
from kafkapy.log.offline.transactions import NO_TRANSACTIONS, Aborted, Transactions, transactions_since


class Split(NamedTuple):
    """A part of a segment file for one reader: the offsets from `start` to before `end`, in the bytes from `position`
    to `stop`.

    `crc` is the checksum of the batch at `position`. `size` is the size of the whole file, None for the last segment,
    which may grow. `aborted`: the transactions to leave out. Can be pickled.
    """

    path: Path
    topic: str | None
    partition: int | None
    base_offset: int
    kafka_07: bool
    start: int
    end: int
    position: int
    stop: int
    crc: int
    size: int | None
    committed: bool
    aborted: tuple[Aborted, ...]

    @property
    def bytes(self) -> int:
        """The number of bytes of the file that the split consists of."""
        return self.stop - self.position

    @property
    def name(self) -> str:
        """The name of the split's partition, for messages."""
        return str(self.path.parent) if self.topic is None else f"{self.topic}-{self.partition}"


def splits_of(place: Place, start: int, end: int, log_end: LogEnd, *, committed: bool = False) -> list[Split]:
    """Return splits for the records of a partition with start <= offset < end, one per segment.

    `log_end`: the result of `end_of` for the partition. `committed`: leave out aborted transactions, and stop at the
    last stable offset. Raises OfflineError, OSError.
    """
    transactions = NO_TRANSACTIONS
    end = min(end, log_end.offset)
    if committed and not place.kafka_07:
        transactions = transactions_since(place, start)
        end = min([end, *transactions.open.values()])
    growing = siblings(place)[-1].path
    found = []
    for segment, following in zip(place.segments, [*place.segments[1:], None], strict=True):
        limit = log_end.offset if following is None else following.base_offset
        if segment.base_offset >= end or limit <= start:
            continue
        size = None if segment.path == growing else segment.size
        first, last = max(start, segment.base_offset), min(end, limit)
        extent: Extent | None = Extent(0, segment.size, 0)
        if not place.kafka_07:
            room = log_end.position if size is None else size
            extent = extent_of(segment, first, last, room, whole=end >= limit)
        if extent is not None:
            where = segment.path, place.topic, place.partition, segment.base_offset, place.kafka_07
            found.append(Split(*where, first, last, *extent, size, committed, transactions.within(first, last)))
    return found


def divided(split: Split, max_bytes: int) -> list[Split]:
    """Divide a split into splits of about `max_bytes` at most. Raises OSError.

    A split of Kafka 0.7, which has no index, is returned as it is.
    """
    if split.kafka_07:
        return [split]
    inside = cuts_between(Segment(split.path, split.base_offset, split.stop), split.position, split.stop, max_bytes)
    first, last = Cut(split.position, split.start, split.crc), Cut(split.stop, split.end, 0)
    aborted = Transactions(list(split.aborted), {})
    return [
        split._replace(
            start=cut.offset,
            end=behind.offset,
            position=cut.position,
            stop=behind.position,
            crc=cut.crc,
            aborted=aborted.within(cut.offset, behind.offset),
        )
        for cut, behind in pairwise([first, *(cut for cut in inside if split.start < cut.offset < split.end), last])
    ]


def is_there(split: Split, log: LogReader) -> bool:
    """Return True if the file that `log` reads still has the same size and batches as when the split was made."""
    if log.size < split.stop or (split.size is not None and log.size != split.size):
        return False
    header = None if split.kafka_07 else log.header_at(split.position)
    return split.crc == (0 if header is None else header.crc)


def found_again(split: Split) -> list[Split]:
    """Return splits for the offsets of `split` in the segments that the partition has now.

    Raises OSError, and OfflineError if these offsets were deleted.
    """
    directory = split.path.parent
    place = next((one for one in places_in([directory]) if one.whole), None)
    if place is None or place.segments[0].base_offset > split.start:
        raise OfflineError(f"{split.path} was deleted, with offsets {split.start} to {split.end - 1} of {split.name}.")
    place = place._replace(topic=split.topic, partition=split.partition)
    return splits_of(place, split.start, split.end, end_of(place), committed=split.committed)
