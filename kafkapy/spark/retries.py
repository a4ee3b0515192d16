"""Retries of requests to brokers that are unavailable for a short time."""

import time
from collections.abc import Callable
from typing import TypeVar

from kafkapy.client.cluster import BACKOFF_S
from kafkapy.client.errors import ConnectionFailed, TransactionFailed
from kafkapy.errors import KafkaError, is_retriable

T = TypeVar("T")


def with_retries(attempt: Callable[[], T], limit_s: float) -> T:
    """Call `attempt` and return its result. Repeat the call after connection failures and retriable Kafka errors.

    The error of a call that fails later than `limit_s` seconds after the start is raised, and so is every other error,
    including TransactionFailed. Each call starts from the beginning, so `attempt` must be safe to repeat after a
    failure halfway.
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
