"""Sending batches to the target cluster in a mirror with at-least-once delivery."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from kafkapy._ext.batch import read_header
from kafkapy.client.cluster import BACKOFF_S, Cluster
from kafkapy.client.errors import ConnectionFailed, ProduceFailed
from kafkapy.client.producing.pending_batch import Delivery
from kafkapy.client.producing.record_producer import RecordProducer
from kafkapy.mirror.counts import Counts
from kafkapy.mirror.target_settings import TargetSettings
from kafkapy.record.batch import BatchBuilder, records_of
from kafkapy.record.encoded import EncodedBatch

log = logging.getLogger(__name__)


def target_cluster(settings: TargetSettings) -> Cluster:
    """Return a new Cluster for the target, with its own connections."""
    return Cluster(
        settings.bootstrap_servers,
        client_id=settings.client_id,
        timeout_s=settings.request_timeout_s,
        security=settings.security,
    )


class _Sent:
    """A batch that is not acknowledged yet.

    A batch whose `delivery` is None still has to be sent, for the first time or again.
    """

    __slots__ = ("batch", "delivery")

    def __init__(self, batch: EncodedBatch) -> None:
        self.batch = batch
        self.delivery: Delivery | None = None


class SafeDelivery:
    """Sends batches to the target and tracks which of them are acknowledged. For one thread.

    Args:
        abort: Raise ProduceFailed when a batch is refused permanently. If False, the batch's records are counted as
            lost, and a new producer sends the batches after it again.
    """

    def __init__(self, settings: TargetSettings, counts: Counts, *, abort: bool) -> None:
        self._settings = settings
        self._counts = counts
        self._abort = abort
        self._cluster = target_cluster(settings)
        self._unacknowledged: deque[_Sent] = deque()
        self._producer = self._new_producer()

    def available_partitions(self, topic: str, count: int) -> Sequence[int]:
        """Return the partitions of a target topic that have a leader.

        See RecordProducer.available_partitions.
        """
        return self._producer.available_partitions(topic, count)

    def send(self, batches: Iterable[EncodedBatch]) -> None:
        """Send batches to the target. Blocks while too much data waits to be sent.

        Raises:
            ProduceFailed: An earlier batch was refused, and `abort` is set.
            KafkaError, ClientError: The target's error for a topic.
        """
        for batch in batches:
            self._unacknowledged.append(_Sent(batch))
            self._send_pending()
        self._forget_acknowledged()

    def flush(self) -> None:
        """Wait until every sent record is acknowledged or counted as lost. Raises the errors of `send`."""
        self._send_pending(flush=True)
        self._forget_acknowledged()

    def close(self) -> None:
        """Close the connections to the target. Batches that are not flushed are dropped."""
        self._cluster.close()

    def _send_pending(self, *, flush: bool = False) -> None:
        """Pass batches that have no delivery yet to the producer. With `flush`, wait for all acknowledgements.

        Raises the errors of `send`, ConnectionFailed only after delivery.timeout.ms.
        """
        deadline = time.monotonic() + self._settings.delivery_timeout_s
        while True:
            try:
                for sent in self._unacknowledged:
                    if sent.delivery is None:
                        sent.delivery = self._producer.send_batch(sent.batch)
                if flush:
                    self._producer.flush()
                return
            except ConnectionFailed:  # while looking up a topic that is new to the producer
                if time.monotonic() >= deadline:
                    raise
                time.sleep(BACKOFF_S)
            except ProduceFailed as error:
                if self._abort:
                    raise
                self._replace_producer(error)

    def _forget_acknowledged(self) -> None:
        """Count and remove the acknowledged batches.

        Batches are acknowledged in order only within a partition, so the removed batches may be anywhere in the queue.
        """
        left: deque[_Sent] = deque()
        for sent in self._unacknowledged:
            if sent.delivery is not None and sent.delivery.done:
                self._count(sent.batch)
            else:
                left.append(sent)
        self._unacknowledged = left

    def _count(self, batch: EncodedBatch) -> None:
        self._counts.records += batch.count
        self._counts.size += batch.size

    def _replace_producer(self, failure: ProduceFailed) -> None:
        """Count the refused records as lost, and prepare to send all other batches again with a new producer.

        The failed producer has dropped all its unacknowledged batches. If the target has stored one of these batches,
        its records are stored twice.
        """
        again: deque[_Sent] = deque()
        for sent in self._unacknowledged:
            delivery = sent.delivery
            if delivery is not None and delivery.done and delivery.error is None:
                self._count(sent.batch)
            elif delivery is None or delivery.error is not failure:
                again.append(_Sent(sent.batch))
            elif failure.records < sent.batch.count:  # the batch was split, and only a part of it is too large
                again.extend(_Sent(one) for one in _one_by_one(sent.batch))
            else:
                log.error("lost, as abort-on-send-failure is off: %s", failure)
                self._counts.lost += sent.batch.count
        self._cluster.close()
        self._cluster = target_cluster(self._settings)
        self._unacknowledged = again
        self._producer = self._new_producer()

    def _new_producer(self) -> RecordProducer:
        settings = self._settings
        return RecordProducer(
            self._cluster,
            acks=settings.acks,
            codec=settings.codec,
            idempotent=settings.idempotent,
            batch_bytes=settings.batch_bytes,
            request_bytes=settings.request_bytes,
            timeout_s=settings.delivery_timeout_s,
        )


def _one_by_one(batch: EncodedBatch) -> Iterator[EncodedBatch]:
    """Yield the records of a batch, each in a batch of its own."""
    header = read_header(batch.data)
    for record in records_of(batch.data, header):
        builder = BatchBuilder()
        builder.append(record.timestamp, record.key, record.value, record.headers)
        data = bytearray(builder.build())
        yield EncodedBatch(batch.topic, batch.partition, data, 1, len(data), codec=header.codec)
