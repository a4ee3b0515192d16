"""A batch on its way to the broker, and what its sender learns of it."""

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.errors import ProduceFailed
from kafkapy.record.batch import BatchBuilder
from kafkapy.record.encoded import EncodedBatch


class Delivery:
    """Where the records of one batch went: `base_offset` is -1 until they are stored, and with acks=0 for ever."""

    __slots__ = ("base_offset", "done", "error", "partition", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.base_offset = -1
        self.done = False
        self.error: ProduceFailed | None = None


class PendingBatch:
    """Records for one partition; once sent, its bytes and sequence stay as they are."""

    __slots__ = ("closed_at", "data", "delivery", "records", "sequence", "where")

    def __init__(self, where: TopicPartition, records: BatchBuilder | EncodedBatch) -> None:
        self.where = where
        self.records = records
        self.closed_at = 0.0
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
