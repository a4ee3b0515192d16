"""Encodes the batches of a MemoryLog as the blocks of bytes that a load reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kafkapy.coordinator.shard import Producer, Record
from kafkapy.record.batch import BatchBuilder


def blocks(batches: Iterable[tuple[Sequence[Record], Producer | None]]) -> Iterator[bytearray]:
    """Return one block for each batch."""
    offset = 0
    for records, producer in batches:
        builder = BatchBuilder()
        for key, value in records:
            builder.append(0, key, value)
        if producer is None:
            batch = bytearray(builder.build())
        else:
            batch = bytearray(builder.build(producer_id=producer.id, producer_epoch=producer.epoch, transactional=True))
        batch[:8] = offset.to_bytes(8, "big")
        offset += len(records)
        yield batch
