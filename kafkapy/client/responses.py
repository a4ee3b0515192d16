"""Helpers for building requests and checking responses, shared by the admin clients."""

from collections.abc import Iterable

from kafkapy.client.cluster import TopicPartition
from kafkapy.errors import Errors, KafkaError, message_of


def grouped(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition indexes grouped by topic."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def error_of(code: int, what: str, message: str | None = None) -> KafkaError | None:
    """Return the KafkaError for `code`, or None for NONE.

    `what` says what the request was about; `message` is the broker's own error message, if it sent one.
    """
    return None if code == Errors.NONE else KafkaError(code, f"{what}: {message or message_of(code)}")


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise the KafkaError for `code`, unless `code` is NONE. The arguments are those of `error_of`."""
    if error := error_of(code, what, message):
        raise error
