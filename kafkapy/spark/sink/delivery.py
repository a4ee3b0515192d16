"""Sends a task's rows to the brokers: at least once, or in a transaction that is left open for the driver to commit."""

import logging
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from kafkapy.arrow.encode import RowEncoder
from kafkapy.client.errors import ClientError, ProducerFenced
from kafkapy.client.producing.record_producer import RecordProducer
from kafkapy.client.producing.transactional_producer import TransactionalProducer
from kafkapy.errors import KafkaError
from kafkapy.spark.options.sink_options import SinkOptions
from kafkapy.spark.retries import with_retries
from kafkapy.spark.sink.decisions import Share
from kafkapy.spark.sink.epochs import EpochExpired
from kafkapy.spark.sink.worker import forget, worker_of

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("kafkapy.spark")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """A task's commit message for the driver.

    `share` is the task's open transaction. It is None if the driver has nothing to commit: the task had no rows, the
    delivery is at-least-once, or `decided` is True. `decided` means that the driver had already decided which
    transactions belong to the epoch, so this task has written nothing or has aborted its transaction.
    """

    query: str
    epoch: int
    rows: int
    share: Share | None = None
    decided: bool = False


def write_at_least_once(options: SinkOptions, batches: "Iterable[pa.RecordBatch]") -> Written:
    """Send all rows of a task, wait until they are acknowledged, and return the task's commit message."""
    try:
        producer = worker_of(options).producer()
        return Written("", 0, _send(options, producer, batches))
    except BaseException:
        forget(options)
        raise


def write_exactly_once(options: SinkOptions, query: str, epoch: int, batches: "Iterable[pa.RecordBatch]") -> Written:
    """Send all rows of a task in a transaction, wait until they are stored, and return the task's commit message.

    The transaction is left open for the driver to commit. If the driver has already decided which transactions belong
    to the epoch, this task's transaction is not begun, or is aborted.

    Raises:
        EpochExpired: The task took longer than the transaction's time-out, or another attempt has replaced it.
    """
    try:
        producer = with_retries(lambda: _begun(options, query, epoch), options.producer.block_s)
        if producer is None:
            return Written(query, epoch, 0, decided=True)
        with producer:  # aborts the transaction after an exception
            rows = _send(options, producer, batches)
            # If the epoch is decided by now, the decision has a faster attempt of this task.
            if with_retries(lambda: _decided(options, query, epoch), options.producer.delivery_timeout_s):
                producer.abort()
                return Written(query, epoch, 0, decided=True)
            identity = producer.leave_open()
        return Written(query, epoch, rows, Share(*identity, rows) if identity else None)
    except ProducerFenced as error:
        forget(options)
        raise EpochExpired(
            f"A task of epoch {epoch} took longer than its transaction's time-out, or another attempt has replaced it "
            f"({error}); none of its rows is visible. Increase kafka.transaction.timeout.ms (the broker's "
            "transaction.max.timeout.ms is its limit), or reduce the data of an epoch."
        ) from error
    except BaseException:
        forget(options)
        raise


def _begun(options: SinkOptions, query: str, epoch: int) -> TransactionalProducer | None:
    """Return a producer with a begun transaction for a task.

    Return None if the driver has already decided which transactions belong to the epoch, or has aborted a batch.
    """
    try:
        # Read the decisions after initialising the producer. A driver that aborts a batch first writes that the epoch
        # is done, and then fences the producers that it finds. So either this producer is fenced, or the decisions that
        # are read here say that the epoch is done.
        producer = worker_of(options).transactional_producer(query, epoch)
        with ExitStack() as unused:
            unused.callback(producer.drop)
            if _decided(options, query, epoch):
                return None
            unused.pop_all()
        return producer
    except (ClientError, KafkaError):
        forget(options)  # a connection may have failed since the last task
        raise


def _decided(options: SinkOptions, query: str, epoch: int) -> bool:
    """Return True if the decision topic says which transactions belong to the epoch, or that the epoch is done."""
    worker = worker_of(options)
    try:
        worker.decisions.refresh()
    except (ClientError, KafkaError):
        worker.cluster.topics.pop(options.decision_topic, None)  # another broker may lead it now
        raise
    return worker.decisions.of(query, epoch) is not None


def _send(options: SinkOptions, producer: RecordProducer, batches: "Iterable[pa.RecordBatch]") -> int:
    """Send all rows of a task, wait until they are acknowledged, and return the number of rows."""

    def partition_count(topic: str) -> int:
        return with_retries(lambda: producer.partition_count(topic), options.producer.block_s)

    encoder = RowEncoder(
        partition_count,
        available=producer.available_partitions,
        topic=options.topic,
        codec=options.producer.codec,
        batch_bytes=options.producer.batch_bytes,
    )
    rows = 0
    for batch in batches:
        for encoded in encoder.feed(batch):
            producer.send_batch(encoded)
        rows += batch.num_rows
    for encoded in encoder.finish():
        producer.send_batch(encoded)
    producer.flush()
    return rows
