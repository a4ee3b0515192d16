"""The exactly-once copying of one source partition, with its own transactional producer."""

from __future__ import annotations

from collections.abc import Iterable

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.producing.transactional_producer import TransactionalProducer
from kafkapy.mirror.delivery import target_cluster
from kafkapy.mirror.member import Piece
from kafkapy.mirror.options import MirrorOptions
from kafkapy.mirror.target_settings import TargetSettings
from kafkapy.record.encoded import EncodedBatch
from kafkapy.record.rebatch import Rebatcher


class PartitionCopy:
    """Copies one source partition to the target in transactions. For one thread.

    After a method has raised ClientError or KafkaError, only `drop` may be called.

    Args:
        group: The group in the target that stores the offsets. The transactional id is GROUP.TOPIC.PARTITION.
    """

    def __init__(self, where: TopicPartition, group: str, target: TargetSettings, options: MirrorOptions) -> None:
        self.where = where
        self._group = group
        self._producer = TransactionalProducer(
            target_cluster(target),
            f"{group}.{where[0]}.{where[1]}",
            transaction_timeout_s=target.transaction_timeout_s,
            codec=target.codec,
            batch_bytes=target.batch_bytes,
            request_bytes=target.request_bytes,
            timeout_s=target.transaction_timeout_s,
        )
        self._rebatcher = Rebatcher(
            codec=target.codec,
            batch_bytes=target.batch_bytes,
            by_number=options.keep_partitions,
            available=self._producer.available_partitions,
        )
        self._after: int | None = None  # the offset after the transaction's records; None: no transaction
        self.begun_at: int | None = None  # the offset of the first record of the last transaction
        self._records = self._size = 0

    @property
    def after(self) -> int | None:
        """The source offset after the records in the open transaction, or None if no transaction is open."""
        return self._after

    def fence_others(self) -> None:
        """Fence other producers with the same transactional id, and wait until their transactions are completed."""
        self._producer.init()

    def commit_offset(self, offset: int) -> None:
        """Commit an offset of the source partition to the target, in a transaction without records."""
        with self._producer.transaction():
            self._producer.send_offsets({self.where: offset}, self._group)

    def copy(self, piece: Piece, partitions: int) -> None:
        """Add the records of a Piece (fetched batches) to the open transaction. Begin a transaction if none is open.

        `partitions` is the topic's number of partitions in the target.
        """
        if self._after is None:
            self._producer.begin()
            self._after = self.begun_at = piece.start
        self._send(self._rebatcher.feed(piece.where, piece.data, piece.start, partitions, aborted=piece.aborted))
        self._after = piece.after

    def commit(self) -> tuple[int, int]:
        """Commit the open transaction together with the source offset after its records.

        Return the number of records in the transaction and their bytes, 0 and 0 if no transaction is open.
        """
        if self._after is None:
            return 0, 0
        self._send(self._rebatcher.finish())
        self._producer.send_offsets({self.where: self._after}, self._group)
        self._producer.commit()
        committed = self._records, self._size
        self._records = self._size = 0
        self._after = None
        return committed

    def drop(self) -> None:
        """Close the producer without ending its open transaction.

        The transaction is aborted when the next producer with the same transactional id starts, or by its time-out.
        """
        self._producer.drop()
        self._producer.cluster.close()

    def _send(self, batches: Iterable[EncodedBatch]) -> None:
        for batch in batches:
            self._records += batch.count
            self._size += batch.size
            self._producer.send_batch(batch)
