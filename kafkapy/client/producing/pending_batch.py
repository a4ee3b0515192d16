"""A batch that waits to be sent or acknowledged, and the Delivery through which the caller sees its result."""

from kafkapy._ext.batch import BatchHeader, read_header
from kafkapy.client.cluster import TopicPartition
from kafkapy.client.errors import ProduceFailed
from kafkapy.record.batch import BatchBuilder, records_of
from kafkapy.record.encoded import EncodedBatch
from kafkapy.record.records import Record


class Delivery:
    """The result of sending one batch, or the result to come.

    `base_offset` is the offset of the batch's first record. It is -1 until the batch is stored. It stays -1 with
    acks=0, and if the broker detected a duplicate but no longer knows its offset.
    """

    __slots__ = ("base_offset", "error", "partition", "parts", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.base_offset = -1
        self.parts = 1  # batches that are not stored yet: more than one after the batch was split
        self.error: ProduceFailed | None = None

    @property
    def done(self) -> bool:
        """True if all records of the batch are stored, or if the batch has failed."""
        return self.parts == 0 or self.error is not None


class PendingBatch:
    """A batch of records for one partition that is not stored yet, with its place, sequence number and Delivery.

    After the first send, `data` (the encoded batch) and `sequence` do not change. `sequence` is the base sequence, -1
    before the first send and for producers that are not idempotent. `place` orders the batches of a partition.
    `closed_at` is the time (time.monotonic) at which the batch was put into the outbox.
    """

    __slots__ = ("closed_at", "data", "delivery", "place", "records", "sequence", "where")

    def __init__(self, where: TopicPartition, records: BatchBuilder | EncodedBatch) -> None:
        self.where = where
        self.records = records
        self.closed_at = 0.0
        self.place: tuple[int, ...] = ()
        self.sequence = -1
        self.data: bytes | bytearray | None = None
        self.delivery = Delivery(*where)

    @property
    def size(self) -> int:
        """The size of the records in bytes before compression."""
        return self.records.size

    @property
    def count(self) -> int:
        return self.records.count

    def halves(self) -> tuple["PendingBatch", "PendingBatch"]:
        """Split this batch, which was sent and has at least two records, into two batches that replace it.

        Each record keeps its sequence number. Both halves share this batch's Delivery.
        """
        assert self.data is not None
        header = read_header(self.data)
        records = records_of(self.data, header)
        middle = len(records) // 2
        self.delivery.parts += 1
        return self._part(0, header, records[:middle]), self._part(1, header, records[middle:])

    def _part(self, index: int, header: BatchHeader, records: list[Record]) -> "PendingBatch":
        builder = BatchBuilder(header.codec)
        for record in records:
            builder.append(record.timestamp, record.key, record.value, record.headers)
        part = PendingBatch(self.where, builder)
        part.closed_at = self.closed_at
        part.place = (*self.place, index)
        part.sequence = records[0].sequence
        part.delivery = self.delivery
        part.data = builder.build(
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=part.sequence,
            transactional=header.is_transactional,
        )
        return part
