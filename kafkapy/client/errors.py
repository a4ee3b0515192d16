"""Errors raised by the client itself. Error codes that a broker sends are `kafkapy.errors.KafkaError`."""

from kafkapy.errors import KafkaError


class ClientError(Exception):
    """Base class of the client's errors. The message is a sentence that names the broker."""


class ConnectionFailed(ClientError):
    """A broker cannot be reached, closed the connection, or sent bytes that are no Kafka response. A retry may help."""


class BrokerTimedOut(ConnectionFailed):
    """A broker did not respond in time. The request may or may not have been carried out."""


class UnsupportedByBroker(ClientError):
    """The broker does not support the API, or supports no version of it that this client supports."""


class ProduceFailed(ClientError):
    """Records were not stored, or are not known to be stored: `records` is their number, `error` the reason."""

    def __init__(self, topic: str, partition: int, records: int, error: KafkaError | ClientError) -> None:
        what = "1 record" if records == 1 else f"{records} records"
        super().__init__(f"{what} for {topic}-{partition} not stored: {error}")
        self.topic = topic
        self.partition = partition
        self.records = records
        self.error = error


class GroupFailed(ClientError, KafkaError):
    """The coordinator refuses this consumer permanently. `code` is the Kafka error code."""

    def __init__(self, group_id: str, what: str, code: int, message: str) -> None:
        KafkaError.__init__(self, code, f"cannot {what} group {group_id!r}: {message}")


class CommitFailed(ClientError, KafkaError):
    """Offsets were not committed because the consumer does not own the partitions, or owns them no longer.

    The new owner of the partitions reads from the last committed offset. If `code` is REBALANCE_IN_PROGRESS, calling
    `poll` and committing again may help.
    """

    def __init__(self, group_id: str, code: int, message: str) -> None:
        KafkaError.__init__(self, code, f"no offsets committed for group {group_id!r}: {message}")


class TransactionFailed(ClientError, KafkaError):
    """A transaction failed. `code` is the Kafka error code. If `fatal`, `abort` does not help: make a new producer."""

    fatal = False

    def __init__(self, transactional_id: str, code: int, message: str) -> None:
        KafkaError.__init__(self, code, f"transactional id {transactional_id!r}: {message}")


class TransactionAborted(TransactionFailed):
    """The transaction has to be aborted: call `abort`, then do its work again in a new transaction."""


class ProducerFailed(TransactionFailed):
    """The producer cannot be used any more. Make a new one."""

    fatal = True


class ProducerFenced(ProducerFailed):
    """A newer producer with the same transactional id has taken over, or the transaction exceeded its time-out and the
    broker aborted it. The open transaction of the fenced producer was aborted in both cases."""
