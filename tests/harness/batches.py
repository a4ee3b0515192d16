"""Iterates over the batches of format 2 in bytes."""

from collections.abc import Iterator

from typing_extensions import Buffer

from kafkapy._ext.batch import BatchHeader, next_batch


def iter_batches(data: Buffer, start: int = 0) -> Iterator[BatchHeader]:
    """Yield the header of each batch from byte `start` on, up to an incomplete batch."""
    while (header := next_batch(data, start)) is not None:
        yield header
        start = header.next_position
