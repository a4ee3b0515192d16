"""Failures of the client itself; error codes that a broker sends are `kafkapy.errors.KafkaError`."""

from kafkapy.errors import KafkaError


class ClientError(Exception):
    """The base of all; its text is a sentence that names the broker."""


class ConnectionFailed(ClientError):
    """A broker cannot be reached, hung up, or sends what is no answer to us. Trying again may help."""


class BrokerTimedOut(ConnectionFailed):
    """No answer within the time allowed. Whether the request was carried out is not known."""


class UnsupportedByBroker(ClientError):
    """The broker does not have the API, or no version of it that this client knows."""


class ProduceFailed(ClientError):
    """Records that were not stored, or are not known to be: `error` is why, `records` how many in this batch."""

    def __init__(self, topic: str, partition: int, records: int, error: KafkaError | ClientError) -> None:
        what = "1 record" if records == 1 else f"{records} records"
        super().__init__(f"{what} for {topic}-{partition} not stored: {error}")
        self.topic = topic
        self.partition = partition
        self.records = records
        self.error = error


class GroupFailed(ClientError, KafkaError):
    """The coordinator refuses this consumer for good; `code` says why."""

    def __init__(self, group_id: str, what: str, code: int, message: str) -> None:
        KafkaError.__init__(self, code, f"cannot {what} group {group_id!r}: {message}")


class CommitFailed(ClientError, KafkaError):
    """Offsets were not committed, because the consumer does not own the partitions (any more): somebody else reads
    them from the last committed offset on. `code` is REBALANCE_IN_PROGRESS where `poll` and another try may help."""

    def __init__(self, group_id: str, code: int, message: str) -> None:
        KafkaError.__init__(self, code, f"no offsets committed for group {group_id!r}: {message}")


class TransactionFailed(ClientError, KafkaError):
    """A transaction cannot go on. `code` says why; `fatal`: `abort` does not help either, a new producer is needed."""

    fatal = False

    def __init__(self, transactional_id: str, code: int, message: str) -> None:
        KafkaError.__init__(self, code, f"transactional id {transactional_id!r}: {message}")


class TransactionAborted(TransactionFailed):
    """It has to be aborted: call `abort`, then begin anew with what it was about."""


class ProducerFailed(TransactionFailed):
    """The producer can be used no more."""

    fatal = True


class ProducerFenced(ProducerFailed):
    """Another producer with the same transactional id has taken over, or the broker ended a transaction that took too
    long and its time is over. What this one had open was aborted."""
