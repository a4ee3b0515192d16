"""A batch that is encoded before its producer id and sequence are known."""

from __future__ import annotations

from kafkapy._ext.batch import HEADER, assemble, read_header, seal
from kafkapy.record.compression import NONE, compress


class EncodedBatch:
    """An encoded batch of records for one partition, for `RecordProducer.send_batch`.

    data      the batch; `build` sets its producer fields and checksum
    count     number of records
    size      bytes before compression, header included
    largest   bytes of the largest record before compression
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
        """Write the producer fields and the checksum into `data`, and return `data`."""
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
