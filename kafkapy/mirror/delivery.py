"""Records on their way to the target, of a mirror that writes at least once."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator

from kafkapy._ext.batch import read_header
from kafkapy.client.cluster import BACKOFF_S, Cluster
from kafkapy.client.errors import ConnectionFailed, ProduceFailed
from kafkapy.client.pending_batch import Delivery
from kafkapy.client.record_producer import RecordProducer
from kafkapy.mirror.counts import Counts
from kafkapy.mirror.target_settings import TargetSettings
from kafkapy.record.batch import BatchBuilder, records_of
from kafkapy.record.encoded import EncodedBatch

log = logging.getLogger(__name__)


def target_cluster(settings: TargetSettings) -> Cluster:
    """The target, with connections of its own."""
    return Cluster(settings.bootstrap_servers, client_id=settings.client_id, timeout_s=settings.request_timeout_s)


class _Sent:
    """A batch that is not known to be acknowledged; without a delivery it is to be sent (again)."""

    __slots__ = ("batch", "delivery")

    def __init__(self, batch: EncodedBatch) -> None:
        self.batch = batch
        self.delivery: Delivery | None = None


class SafeDelivery:
    """Sends batches, and knows when all are acknowledged. For one thread.

    Args:
        abort: a batch that is refused for good ends it all with ProduceFailed; else its records are counted as lost,
            and what came behind it is sent again by another producer.
    """

    def __init__(self, settings: TargetSettings, counts: Counts, *, abort: bool) -> None:
        self._settings = settings
        self._counts = counts
        self._abort = abort
        self._cluster = target_cluster(settings)
        self._under_way: deque[_Sent] = deque()
        self._producer = self._new_producer()

    def send(self, batches: Iterable[EncodedBatch]) -> None:
        """Returns when there is room for them among what waits to be sent.

        Raises:
            ProduceFailed: an earlier batch was refused, and that is to end it.
            KafkaError, ClientError: what the target says of a topic.
        """
        for batch in batches:
            self._under_way.append(_Sent(batch))
            self._go_on()
        self._settle()

    def flush(self) -> None:
        """Returns when every record is acknowledged, or counted as lost. Raises as `send`."""
        self._go_on(flush=True)
        self._settle()

    def close(self) -> None:
        """Drops what was not flushed."""
        self._cluster.close()

    def _go_on(self, *, flush: bool = False) -> None:
        deadline = time.monotonic() + self._settings.delivery_timeout_s
        while True:
            try:
                for sent in self._under_way:
                    if sent.delivery is None:
                        sent.delivery = self._producer.send_batch(sent.batch)
                if flush:
                    self._producer.flush()
                return
            except ConnectionFailed:  # of a topic that this producer has not heard of yet
                if time.monotonic() >= deadline:
                    raise
                time.sleep(BACKOFF_S)
            except ProduceFailed as error:
                if self._abort:
                    raise
                self._begin_anew(error)

    def _settle(self) -> None:
        """Counts and forgets what is acknowledged, also behind a partition whose leader does not answer."""
        left: deque[_Sent] = deque()
        for sent in self._under_way:
            if sent.delivery is not None and sent.delivery.done:
                self._count(sent.batch)
            else:
                left.append(sent)
        self._under_way = left

    def _count(self, batch: EncodedBatch) -> None:
        self._counts.records += batch.count
        self._counts.size += batch.size

    def _begin_anew(self, failure: ProduceFailed) -> None:
        """After a producer's failure, which drops all that it had: what was refused is lost, and what else is not
        acknowledged (batches behind it are refused, too, for their sequence numbers) goes to another one. Of that some
        may have been stored, and is there twice then."""
        again: deque[_Sent] = deque()
        for sent in self._under_way:
            delivery = sent.delivery
            if delivery is not None and delivery.done and delivery.error is None:
                self._count(sent.batch)
            elif delivery is None or delivery.error is not failure:
                again.append(_Sent(sent.batch))
            elif failure.records < sent.batch.count:  # only a part of it is too large
                again.extend(_Sent(one) for one in _one_by_one(sent.batch))
            else:
                log.error("lost, as abort-on-send-failure is off: %s", failure)
                self._counts.lost += sent.batch.count
        self._cluster.close()
        self._cluster = target_cluster(self._settings)
        self._under_way = again
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
    """A batch for each record."""
    header = read_header(batch.data)
    for record in records_of(batch.data, header):
        builder = BatchBuilder()
        builder.append(record.timestamp, record.key, record.value, record.headers)
        data = bytearray(builder.build())
        yield EncodedBatch(batch.topic, batch.partition, data, 1, len(data), codec=header.codec)
