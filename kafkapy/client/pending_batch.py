"""A batch on its way to the broker, and what its sender learns of it."""

from kafkapy._ext.batch import BatchHeader, read_header
from kafkapy.client.cluster import TopicPartition
from kafkapy.client.errors import ProduceFailed
from kafkapy.record.batch import BatchBuilder, Record, records_of
from kafkapy.record.encoded import EncodedBatch


class Delivery:
    """Where the records of one batch went: `base_offset` is -1 until they are stored, with acks=0 for ever, and where
    the broker does not remember."""

    __slots__ = ("base_offset", "error", "partition", "parts", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.base_offset = -1
        self.parts = 1  # batches that it still depends on
        self.error: ProduceFailed | None = None

    @property
    def done(self) -> bool:
        """Whether they are stored, or will not be."""
        return self.parts == 0 or self.error is not None


class PendingBatch:
    """Records for one partition; once sent, its bytes and sequence stay as they are.

    `place` orders the batches of a partition; `sequence` is -1 until it is sent, and without numbers.
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
        """Bytes before compression."""
        return self.records.size

    @property
    def count(self) -> int:
        return self.records.count

    def halves(self) -> tuple["PendingBatch", "PendingBatch"]:
        """Two batches in the place of this one, which was sent and has two records at least. Each record keeps its
        sequence number; the delivery is that of both."""
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
