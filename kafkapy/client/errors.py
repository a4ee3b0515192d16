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
