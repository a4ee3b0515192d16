"""A batch that was encoded before it is known who will produce it."""

from __future__ import annotations

from kafkapy._ext.batch import HEADER, assemble, read_header, seal
from kafkapy.record.compression import NONE, compress


class EncodedBatch:
    """Records of one partition, for `RecordProducer.send_batch`.

    data: the batch but for its producer and checksum.
    count: how many records it has; size: their bytes before compression, header included.
    largest: the bytes of the largest record, before compression.
    """

    __slots__ = ("count", "data", "largest", "partition", "size", "topic")

    def __init__(
        self, topic: str, partition: int, data: bytearray, count: int, largest: int, *, codec: int = NONE
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.count = count
        self.largest = largest
        self.size = len(data)
        self.data = _compressed(data, codec) if codec else data

    def build(
        self,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> bytearray:
        """The whole batch, the same memory as `data`."""
        seal(
            self.data,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )
        return self.data


def _compressed(data: bytearray, codec: int) -> bytearray:
    header = read_header(data)
    return bytearray(
        assemble(
            compress(codec, memoryview(data)[HEADER:]),
            count=header.count,
            attributes=codec,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
        )
    )
