"""Batches as they were fetched become batches for the partitions of the target.

Keys, values, headers and timestamps stay; control records and aborted ones go. A record goes where its key's hash says
(murmur2, as Kafka's producer has it), without a key to a partition that changes with each batch; or to the partition
that has the number of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.fetched import read_records
from kafkapy.client.partitioner import StickyChoice, partition_of_key
from kafkapy.mirror.sources import Piece
from kafkapy.record.batch import BatchBuilder
from kafkapy.record.encoded import EncodedBatch


class Recoder:
    """For one thread. Records of one source partition that go to the same target partition stay in order."""

    def __init__(self, *, batch_bytes: int, codec: int, keep_partitions: bool) -> None:
        self._batch_bytes = batch_bytes
        self._codec = codec
        self._keep = keep_partitions
        self._sticky = StickyChoice()
        self._open: dict[TopicPartition, BatchBuilder] = {}

    def feed(self, piece: Piece, partitions: int) -> Iterator[EncodedBatch]:
        """Takes a piece; gives the batches that are full. `partitions`: of its topic in the target. ValueError for
        what is no batch."""
        topic, number = piece.where

        class Aborted:
            def __init__(self, one: tuple[int, int]) -> None:
                self.producer_id, self.first_offset = one

        records, _ = read_records(piece.where, piece.data, piece.start, map(Aborted, piece.aborted))
        for record in records:
            moment = record.timestamp if record.timestamp >= 0 else int(time.time() * 1000)
            while True:
                if self._keep:
                    partition = number
                elif record.key is not None:
                    partition = partition_of_key(record.key, partitions)
                else:
                    partition = self._sticky.partition(topic, partitions)
                builder = self._open.get((topic, partition))
                if builder is None:
                    builder = self._open[topic, partition] = BatchBuilder(0, self._batch_bytes)
                if builder.append(moment, record.key, record.value, record.headers):
                    break
                yield self._close(topic, partition)
                self._sticky.batch_is_full(topic, partition, partitions)

    def finish(self) -> Iterator[EncodedBatch]:
        """The batches that are not full."""
        for topic, partition in list(self._open):
            yield self._close(topic, partition)

    def _close(self, topic: str, partition: int) -> EncodedBatch:
        builder = self._open.pop((topic, partition))
        data = bytearray(builder.build())
        return EncodedBatch(topic, partition, data, builder.count, len(data), codec=self._codec)
