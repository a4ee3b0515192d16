"""What requests and answers of administration have in common."""

from collections.abc import Iterable

from kafkapy.client.cluster import TopicPartition
from kafkapy.errors import Errors, KafkaError, message_of


def grouped(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions by topic, as requests have them."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def error_of(code: int, what: str, message: str | None = None) -> KafkaError | None:
    """The error that an answer carries, if any; `what` it is about, `message` what the broker says."""
    return None if code == Errors.NONE else KafkaError(code, f"{what}: {message or message_of(code)}")


def check(code: int, what: str, message: str | None = None) -> None:
    """Raises the error that an answer carries, if any."""
    if error := error_of(code, what, message):
        raise error
