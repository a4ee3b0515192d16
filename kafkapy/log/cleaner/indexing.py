"""The first pass of a cleaning: map each key in the dirty part to its last offset (Kafka's Cleaner.buildOffsetMap)."""

from __future__ import annotations

import logging

from kafkapy._ext.cursor import Writer
from kafkapy._ext.decided_txns import DecidedTransactions
from kafkapy._ext.key_index import KeyIndex
from kafkapy._ext.keymap import KeyMap
from kafkapy.log.cleaner.codecs import unpack
from kafkapy.log.cleaner.pieces import Pieces
from kafkapy.log.cleaner.stats import CleanerStats
from kafkapy.log.indexes.txn_index import AbortedTxn
from kafkapy.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)


def aborted_from(log: PartitionLog, offset: int) -> list[AbortedTxn]:
    """Return the aborted transactions of the log whose abort marker is at `offset` or later."""
    return [entry for segment in log.segments for entry in segment.txn_index.entries if entry.last_offset >= offset]


def index_keys(
    log: PartitionLog, start: int, end: int, keys: KeyMap, pieces: Pieces, payload: Writer, stats: CleanerStats
) -> int:
    """Store the last offset of each key of the records with start <= offset < end in `keys`.

    Return the last offset that was processed: `end` - 1, or less if `keys` became full before. `payload` is a buffer
    for decompressed records. Raises OSError, CorruptEntry, DecompressionError.
    """
    index = KeyIndex(keys, DecidedTransactions(aborted_from(log, start)), start)
    limit = log.env.max_decompressed

    def take(piece: memoryview) -> int:
        needs_payload = index.feed(piece, 0)
        while needs_payload:
            unpack(piece, index.position, payload, limit)
            with memoryview(payload) as unpacked:
                needs_payload = index.feed(piece, index.position, unpacked)
        if index.full:
            raise _Full
        return index.position

    segments = log.segments.between(start, end)
    ends = [*(segment.base_offset for segment in segments), end][1:]
    index.reached(start)
    try:
        for segment, following in zip(segments, ends, strict=True):
            index.begin_segment(segment.base_offset, following)
            pieces.go_over(segment, segment.offset_index.lookup(start), take)
            index.reached(following)
    except _Full:
        _log.info("%s: the map of keys is full at offset %d of %d", log.name, index.latest_offset, end - 1)
    stats.map_bytes_read = index.bytes
    stats.map_utilization = keys.utilization
    return index.latest_offset


class _Full(Exception):
    """Raised to end the first pass early, because the map of keys is full."""
