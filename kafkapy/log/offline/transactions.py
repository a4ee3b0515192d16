"""Find the aborted and open transactions of a partition, from its transaction indexes and producer snapshots if
possible.

A segment's aborted transactions are in its .txnindex, which is missing if there are none. The producer snapshot at the
end of a segment lists the transactions that were open there. Both are trusted for a sealed segment that still has its
offset index, as in Kafka's LogLoader. Every other segment is scanned, and so is the last one, to which a broker may be
writing. Without a snapshot at the first segment, transactions that were open there are not known.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from kafkapy._ext.stored_records import DamagedBatch
from kafkapy._ext.transactions import TransactionScan
from kafkapy.log.names import OFFSET_INDEX, SNAPSHOT, TXN_INDEX
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.index_files import ABORTED_ENTRY, aborted_transactions, producer_entries
from kafkapy.log.offline.places import Place, Segment, siblings
from kafkapy.record.blocks import SegmentBlocks
from kafkapy.record.columns import decompress_records

Aborted = tuple[int, int, int]  # producer id, first offset, offset of the abort marker


class Transactions(NamedTuple):
    """Aborted and open transactions of a partition.

    `aborted` is in the order of the abort markers; `open` maps producer ids to the first offsets of their transactions.
    """

    aborted: list[Aborted]
    open: dict[int, int]

    def within(self, start: int, end: int) -> tuple[Aborted, ...]:
        """Return the aborted transactions that overlap the offsets from `start` to before `end`."""
        first = bisect_left(self.aborted, start, key=lambda one: one[2])
        return tuple(one for one in self.aborted[first:] if one[1] < end)


NO_TRANSACTIONS = Transactions([], {})


def transactions_since(place: Place, start: int) -> Transactions:
    """Return the aborted transactions of a partition whose marker is at `start` or later, and the open transactions.

    Damage is ignored here, because reading the records reports it. Raises OfflineError for a file that cannot be read.
    """
    segments = siblings(place)
    first, began = _known_begin(segments, start)
    aborted: list[Aborted] = []
    for segment, following in zip(segments[first:], [*segments[first + 1 :], None], strict=True):
        known = None if following is None else _from_index(segment, following)
        found = known or _scanned(segment, began)
        aborted += found.aborted
        began = found.open
    return Transactions([one for one in aborted if one[2] >= start], began)


def _known_begin(segments: list[Segment], start: int) -> tuple[int, dict[int, int]]:
    """Return the index of the last segment that begins at `start` or before and has a producer snapshot, and a dict.

    The dict has the transactions that are open at the start of that segment: producer id to first offset. If there is
    no such segment, returns (0, {}).
    """
    for number in reversed(range(len(segments))):
        if segments[number].base_offset <= start:
            began = _open_before(segments[number])
            if began is not None:
                return number, began
    return 0, {}


def _open_before(segment: Segment) -> dict[int, int] | None:
    """Return the transactions that were open at the start of the segment: producer id to first offset.

    None if the segment has no valid producer snapshot.
    """
    try:
        producers = producer_entries(segment.path.with_suffix(SNAPSHOT))
    except (OSError, OfflineError):
        return None
    return {one.producer_id: one.current_txn_first_offset for one in producers if one.current_txn_first_offset >= 0}


def _from_index(segment: Segment, following: Segment) -> Transactions | None:
    """Return the transactions of a sealed segment from its transaction index and the producer snapshot after it.

    None if these files, or the segment's offset index, are missing or damaged.
    """
    ended = _indexed(segment, following.base_offset) if segment.path.with_suffix(OFFSET_INDEX).exists() else None
    began = None if ended is None else _open_before(following)
    return None if ended is None or began is None else Transactions(ended, began)


def _indexed(segment: Segment, end: int) -> list[Aborted] | None:
    """Return the entries of the segment's transaction index; an empty list if there is no such file.

    None if the file is damaged: an incomplete entry, or markers that are not ascending or not in the segment.
    """
    path = segment.path.with_suffix(TXN_INDEX)
    try:
        if path.stat().st_size % ABORTED_ENTRY.size:
            return None
        found = [(one.producer_id, one.first_offset, one.last_offset) for one in aborted_transactions(path)]
    except FileNotFoundError:
        return []
    except (OSError, OfflineError):
        return None
    least = segment.base_offset
    for _, first, last in found:
        if not (0 <= first <= last and least <= last < end):
            return None
        least = last
    return found


def _scanned(segment: Segment, began: dict[int, int]) -> Transactions:
    scan = TransactionScan(decompress_records, began)
    try:
        with SegmentBlocks(segment.path) as blocks:
            for block in blocks:
                blocks.used(scan.feed(block))
    except DamagedBatch:
        pass
    except OSError as error:
        raise OfflineError(f"{segment.path} could not be read: {error.strerror or error}.") from error
    return Transactions(scan.aborted(), scan.open())
