"""Helpers for building requests and checking the error codes in responses, shared by several clients."""

from collections.abc import Iterable

from kafkapy.client.cluster import TopicPartition
from kafkapy.errors import Errors, KafkaError, message_of


def grouped(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group (topic, partition index) pairs by topic: return a list of partition indexes by topic name."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def error_of(code: int, what: str, message: str | None = None) -> KafkaError | None:
    """Return a KafkaError for an error code, or None if the code is NONE.

    The error's text begins with `what`, which says what the request was about. `message` is the broker's own error
    message; without it the text has the standard message of the code.
    """
    return None if code == Errors.NONE else KafkaError(code, f"{what}: {message or message_of(code)}")


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise a KafkaError if an error code is not NONE. The arguments are those of `error_of`."""
    if error := error_of(code, what, message):
        raise error
