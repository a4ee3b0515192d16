"""Splits operations into changes that do not exceed ZooKeeper's size limit for a request, 1 MiB (jute.maxbuffer)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafkapy.metadata.tree import Create, Operation, Set

_MAX_OPERATIONS = 2000
_MAX_BYTES = 256 * 1024
_OVERHEAD = 60  # bytes of an operation besides path and data: header, lengths, version, flags, ACL; rounded up


def batches(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """Yield the operations in order, split into batches that are small enough for one change of ZooKeeper. An operation
    that is too large by itself becomes a batch of its own."""
    batch: list[Operation] = []
    size = 0
    for operation in operations:
        data = operation.data if isinstance(operation, Create | Set) else b""
        cost = len(operation.path) + len(data) + _OVERHEAD
        if batch and (len(batch) >= _MAX_OPERATIONS or size + cost > _MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(operation)
        size += cost
    if batch:
        yield batch
