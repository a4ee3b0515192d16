"""One source partition that is copied exactly once, by a producer that nobody else can be."""

from __future__ import annotations

from collections.abc import Iterable

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.transactional_producer import TransactionalProducer
from kafkapy.mirror.delivery import target_cluster
from kafkapy.mirror.options import MirrorOptions
from kafkapy.mirror.sources import Piece
from kafkapy.mirror.target_settings import TargetSettings
from kafkapy.record.encoded import EncodedBatch
from kafkapy.record.rebatch import Rebatcher


class PartitionCopy:
    """For one thread. Every method raises ClientError or KafkaError; then it is of no use any more: `drop` it.

    Args:
        group: under which offsets are kept in the target; with topic and partition it makes the transactional id.
    """

    def __init__(self, where: TopicPartition, group: str, target: TargetSettings, options: MirrorOptions) -> None:
        self.where = where
        self._group = group
        self._rebatcher = Rebatcher(
            codec=target.codec, batch_bytes=target.batch_bytes, by_number=options.keep_partitions
        )
        self._producer = TransactionalProducer(
            target_cluster(target),
            f"{group}.{where[0]}.{where[1]}",
            transaction_timeout_s=target.transaction_timeout_s,
            codec=target.codec,
            batch_bytes=target.batch_bytes,
            request_bytes=target.request_bytes,
            timeout_s=target.transaction_timeout_s,
        )
        self._after: int | None = None  # what is in the transaction goes up to there; None: there is none
        self.begun_at: int | None = None  # the offset before the first record of the last transaction
        self._records = self._size = 0

    @property
    def after(self) -> int | None:
        """The offset behind what is in the open transaction; None without one."""
        return self._after

    def take_over(self) -> None:
        """From now on nobody else with this id can do anything, and what they had begun is decided."""
        self._producer.init()

    def note(self, offset: int) -> None:
        """Commits an offset without records."""
        with self._producer.transaction():
            self._producer.send_offsets({self.where: offset}, self._group)

    def copy(self, piece: Piece, partitions: int) -> None:
        """Adds records to the transaction, and begins one if there is none."""
        if self._after is None:
            self._producer.begin()
            self._after = self.begun_at = piece.start
        self._send(self._rebatcher.feed(piece.where, piece.data, piece.start, partitions, aborted=piece.aborted))
        self._after = piece.after

    def commit(self) -> tuple[int, int]:
        """Ends the transaction, if there is one, with the offset behind its records: how many, and their bytes."""
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
        """What is open is left for whoever takes over, or for its time-out."""
        self._producer.drop()
        self._producer.cluster.close()

    def _send(self, batches: Iterable[EncodedBatch]) -> None:
        for batch in batches:
            self._records += batch.count
            self._size += batch.size
            self._producer.send_batch(batch)
