"""The state that a Python worker process of the sink keeps between tasks.

The state consists of connections, a producer, the known decisions, and the transactional ids for tasks. Spark runs one
task at a time in a worker process, and reuses the process.
"""

import uuid
from functools import cache

from kafkapy.client.administration.admin import BROKER, Admin
from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import ClientError
from kafkapy.client.producing.record_producer import RecordProducer
from kafkapy.client.producing.transactional_producer import TransactionalProducer
from kafkapy.errors import KafkaError
from kafkapy.spark.options.sink_options import SinkOptions
from kafkapy.spark.sink.decisions import Decisions
from kafkapy.spark.sink.epochs import id_of_driver

LONGEST_TRANSACTION_S = 900.0  # Kafka's default of transaction.max.timeout.ms


class TaskIds:
    """The transactional ids for the tasks of this process. No other process uses the same ids.

    An id is reused only in a later epoch of the same query. Before that, the driver may still have to end the id's
    transaction.
    """

    def __init__(self) -> None:
        self._process = uuid.uuid4().hex
        self._last_epochs: dict[str, list[int]] = {}

    def take(self, prefix: str, epoch: int) -> str:
        """Return a transactional id for a task of an epoch. The id begins with `prefix`, which names the query."""
        epochs = self._last_epochs.setdefault(prefix, [])
        number = next((index for index, last in enumerate(epochs) if last < epoch), len(epochs))
        epochs[number : number + 1] = [epoch]
        return f"{prefix}-{self._process}-{number}"


class SinkWorker:
    """The connections, producer and decisions that this process keeps for tasks with the same options.

    The first task constructs the object, and so does the next task after a failed task.
    """

    def __init__(self, options: SinkOptions, ids: TaskIds) -> None:
        properties = options.producer
        self.cluster = Cluster(
            properties.bootstrap_servers,
            client_id=properties.client_id,
            timeout_s=properties.request_timeout_s,
            security=properties.security,
        )
        self.decisions = Decisions(self.cluster, options.decision_topic)
        self._options = options
        self._ids = ids
        self._producer: RecordProducer | None = None
        self._timeout_s = properties.transaction_timeout_s

    def close(self) -> None:
        self.cluster.close()

    def producer(self) -> RecordProducer:
        """Return the producer for at-least-once delivery, which all tasks of this process share."""
        if self._producer is None:
            properties = self._options.producer
            self._producer = RecordProducer(
                self.cluster,
                acks=properties.acks,
                codec=properties.codec,
                idempotent=properties.idempotent,
                batch_bytes=properties.batch_bytes,
                request_bytes=properties.request_bytes,
                timeout_s=properties.delivery_timeout_s,
            )
        return self._producer

    def transactional_producer(self, query: str, epoch: int) -> TransactionalProducer:
        """Return a new producer for one attempt of a task, with a transaction that has begun."""
        properties = self._options.producer
        producer = TransactionalProducer(
            self.cluster,
            self._ids.take(id_of_driver(self._options, query), epoch),
            transaction_timeout_s=self._transaction_timeout_s(),
            codec=properties.codec,
            batch_bytes=properties.batch_bytes,
            request_bytes=properties.request_bytes,
            timeout_s=properties.delivery_timeout_s,
        )
        producer.begin()
        return producer

    def _transaction_timeout_s(self) -> float:
        """Return the transaction time-out in seconds: the one in the options, else the longest that all brokers allow.

        The longest is used so that a transaction does not expire between the decision to commit it and its commit.
        Without the option, the time-out is at most 15 minutes, Kafka's default of transaction.max.timeout.ms.
        """
        if self._timeout_s is None:
            self.cluster.refresh([])
            brokers = [str(node) for node in self.cluster.brokers]
            self._timeout_s = min([LONGEST_TRANSACTION_S, *(self._allowed_by(node) for node in brokers)])
        return self._timeout_s

    def _allowed_by(self, node: str) -> float:
        """Return the transaction.max.timeout.ms of a broker in seconds, or Kafka's default if it cannot be read."""
        try:
            (entry,) = Admin(self.cluster).describe_configs(BROKER, node, ["transaction.max.timeout.ms"])
            return int(entry.value or "") / 1000
        except (KafkaError, ClientError, ValueError):  # not authorized, or the broker is down
            return LONGEST_TRANSACTION_S


_workers: dict[SinkOptions, SinkWorker] = {}


@cache
def _task_ids() -> TaskIds:
    """Return the TaskIds of this process.

    The first task constructs the object, so that forked processes differ in their ids.
    """
    return TaskIds()


def worker_of(options: SinkOptions) -> SinkWorker:
    """Return the SinkWorker of this process for the options. The first call constructs it."""
    if options not in _workers:
        _workers[options] = SinkWorker(options, _task_ids())
    return _workers[options]


def forget(options: SinkOptions) -> None:
    """Close and drop the SinkWorker for the options after a failure.

    Its connections cannot be used again, because responses may be outstanding on them.
    """
    worker = _workers.pop(options, None)
    if worker is not None:
        worker.close()
