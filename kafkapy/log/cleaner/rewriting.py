"""The second pass of a cleaning: write a group of segments as one new segment (Kafka's Cleaner.cleanSegments)."""

from __future__ import annotations

from collections.abc import Sequence

from kafkapy._ext.compactor import Compactor
from kafkapy._ext.cursor import Writer
from kafkapy._ext.decided_txns import DecidedTransactions
from kafkapy._ext.key_index import CorruptEntry
from kafkapy.log import names
from kafkapy.log.cleaner.codecs import pack, unpack
from kafkapy.log.cleaner.pieces import Pieces
from kafkapy.log.cleaner.swapping import remove_cleaned
from kafkapy.log.indexes.txn_index import AbortedTxn
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.segments.segment import Segment


class Rewriter:
    """Writes the cleaned segments of one cleaning, in offset order. `transactions` must be the object that `compactor`
    uses.
    """

    def __init__(
        self,
        log: PartitionLog,
        compactor: Compactor,
        transactions: DecidedTransactions,
        pieces: Pieces,
        payload: Writer,
        legacy_horizon_ms: int,
    ) -> None:
        """`legacy_horizon_ms`: segment files that were last modified at or before this time (ms since 1970) lose their
        tombstones of formats 0 and 1.
        """
        self._log = log
        self._compactor = compactor
        self._transactions = transactions
        self._pieces = pieces
        self._payload = payload
        self._legacy_horizon_ms = legacy_horizon_ms
        self.bytes_written = 0

    def rewrite(self, group: Sequence[Segment]) -> Segment:
        """Write the records to keep of a group of segments to a new segment, and return the new segment.

        The new segment is complete, synced and named `.cleaned`. The old segments are not changed. Raises OSError,
        CorruptEntry, DecompressionError and whatever `pace` raises, after removing the new files.
        """
        log, files = self._log, self._log.env.files
        base_offset = group[0].base_offset
        try:
            cleaned = Segment.create(files, log.directory, base_offset, log.config, log.clock, suffix=names.CLEANED)
            modified_ms = 0
            for segment in group:
                modified_ms = files.modified_ms(segment.handle())
                self._copy(segment, cleaned, keep_tombstones=modified_ms > self._legacy_horizon_ms)
            self._finish(cleaned)
            # Cleaning does not make records younger: retention and the delete horizon of old tombstones use this time.
            cleaned.set_modified_ms(modified_ms)
        except BaseException:
            remove_cleaned(log, base_offset)
            raise
        return cleaned

    def _copy(self, source: Segment, to: Segment, *, keep_tombstones: bool) -> None:
        """Append the records of the segment `source` that the compactor keeps to the segment `to`."""
        compactor, file = self._compactor, to.handle()
        following = self._log.segments.after(source)
        assert following is not None, f"{source} is the active segment, which is never cleaned"
        producers = _last_records(self._log)
        compactor.begin_segment(source.base_offset, following.base_offset, keep_tombstones, producers)
        limit = self._log.env.max_decompressed

        def take(piece: memoryview) -> int:
            needs_help = compactor.feed(piece, 0)
            while needs_help:
                if len(compactor.unpacked):
                    compactor.packed(piece, pack(piece, compactor.position, compactor.unpacked))
                    needs_help = compactor.feed(piece, compactor.position)
                else:
                    unpack(piece, compactor.position, self._payload, limit)
                    with memoryview(self._payload) as unpacked:
                        needs_help = compactor.feed(piece, compactor.position, unpacked)
            if len(compactor.out):
                with memoryview(compactor.out) as kept:
                    written = to.files.write_all(file, [kept], to.size)
                to.size += written
                self.bytes_written += written
                compactor.out.clear()
                self._pieces.pace(written)
            return compactor.position

        self._pieces.go_over(source, 0, take)

    def _finish(self, cleaned: Segment) -> None:
        """Build the indexes of the cleaned segment, with entries at the usual interval, and sync all its files.

        Raises CorruptEntry if the batches that were just written cannot be read.
        """
        found = cleaned.files.scan(
            cleaned.handle(), 0, cleaned.size, cleaned.base_offset, cleaned.index_interval, False
        )
        if found.stopped_by is not None:
            raise CorruptEntry(f"{cleaned.handle().path}, just written: {found.stopped_by}")
        cleaned.offset_index.take(found.offset_entries)
        cleaned.time_index.take(found.time_stamps, found.time_offsets)
        cleaned.max_timestamp = (found.max_timestamp, found.max_timestamp_offset)
        for entry in self._transactions.take_retained():
            cleaned.txn_index.append(AbortedTxn(*entry))
        cleaned.seal()
        cleaned.sync()


def _last_records(log: PartitionLog) -> list[tuple[int, int, int]]:
    """Return (producer id, offset of the producer's last data batch or -1, epoch) of every producer that the log knows.

    As Kafka's UnifiedLog.lastRecordsOfActiveProducers.
    """
    with log.lock:
        return [
            (one.producer_id, one.batches[-1].last_offset if one.batches else -1, one.epoch)
            for one in log.producers.producers.values()
        ]
