"""Errors that the client raises itself. For an error code from a broker, it raises `kafkapy.errors.KafkaError`."""

from kafkapy.errors import Errors, KafkaError


class ClientError(Exception):
    """Base class of the errors that the client raises itself.

    The message says which broker, group or producer failed.
    """


class ConnectionFailed(ClientError):
    """A broker cannot be reached, closed the connection, or sent bytes that are no Kafka response.

    Retrying may help.
    """


class BrokerTimedOut(ConnectionFailed):
    """A broker did not respond in time. The broker may or may not have carried out the request."""


class AuthenticationFailed(ClientError, KafkaError):
    """A broker refused this client's login or certificate, or this client does not trust the broker's certificate.

    Retrying does not help. `code` is SASL_AUTHENTICATION_FAILED, as Kafka has no other code for this.
    """

    def __init__(self, message: str) -> None:
        KafkaError.__init__(self, Errors.SASL_AUTHENTICATION_FAILED, message)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type["AuthenticationFailed"], tuple[str]]:
        return type(self), (self.message,)


class BadSecuritySettings(ClientError, ValueError):
    """The settings for TLS or login (`ssl.*`, `sasl.*`) cannot be used, such as a file that cannot be read."""


class UnsupportedByBroker(ClientError):
    """The broker does not support the API, or supports it only in versions that this client does not support."""


class ProduceFailed(ClientError):
    """Records of one batch were not stored, or it is not known whether they were stored.

    `records` is the number of these records, `error` the reason.
    """

    def __init__(self, topic: str, partition: int, records: int, error: KafkaError | ClientError) -> None:
        what = "1 record" if records == 1 else f"{records} records"
        super().__init__(f"{what} for {topic}-{partition} not stored: {error}")
        self.topic = topic
        self.partition = partition
        self.records = records
        self.error = error


class GroupFailed(ClientError, KafkaError):
    """The group coordinator refuses this consumer with an error that retries do not help.

    `code` is the Kafka error code.
    """

    def __init__(self, group_id: str, what: str, code: int, message: str) -> None:
        KafkaError.__init__(self, code, f"cannot {what} group {group_id!r}: {message}")


class CommitFailed(ClientError, KafkaError):
    """Offsets were not committed: the consumer does not own the partitions, or the group is rebalancing.

    The new owner of the partitions reads from the last committed offset. If `code` is REBALANCE_IN_PROGRESS, call
    `poll` and commit again, which may succeed.
    """

    def __init__(self, group_id: str, code: int, message: str) -> None:
        KafkaError.__init__(self, code, f"no offsets committed for group {group_id!r}: {message}")


class TransactionFailed(ClientError, KafkaError):
    """A transaction failed. `code` is the Kafka error code.

    If `fatal` is True, aborting the transaction does not help: the producer has to be replaced by a new one.
    """

    fatal = False

    def __init__(self, transactional_id: str, code: int, message: str) -> None:
        KafkaError.__init__(self, code, f"transactional id {transactional_id!r}: {message}")


class TransactionAborted(TransactionFailed):
    """The transaction cannot be committed any more. Call `abort`, then repeat its work in a new transaction."""


class ProducerFailed(TransactionFailed):
    """The transactional producer cannot be used any more. Create a new producer."""

    fatal = True


class ProducerFenced(ProducerFailed):
    """The producer was fenced, and its open transaction was aborted.

    A newer producer with the same transactional id has taken over, or the transaction exceeded its time-out and the
    coordinator aborted it.
    """
