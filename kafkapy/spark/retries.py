"""Retries for brokers that cannot be reached for a moment."""

import time
from collections.abc import Callable
from typing import TypeVar

from kafkapy.client.cluster import BACKOFF_S
from kafkapy.client.errors import ConnectionFailed, TransactionFailed
from kafkapy.errors import KafkaError, is_retriable

T = TypeVar("T")


def with_retries(attempt: Callable[[], T], limit_s: float) -> T:
    """Return the result of `attempt`, retried for `limit_s` while it raises retriable errors.

    A retry starts from the beginning, so repeating a part of `attempt` must have no further effect.
    """
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return attempt()
        except TransactionFailed:
            raise
        except (ConnectionFailed, KafkaError) as error:
            retriable = isinstance(error, ConnectionFailed) or is_retriable(error.code)
            if not retriable or time.monotonic() >= deadline:
                raise
        time.sleep(BACKOFF_S)
