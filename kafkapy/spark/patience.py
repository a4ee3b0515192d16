"""Doing again what a broker that is away for a moment made fail."""

import time
from collections.abc import Callable
from typing import TypeVar

from kafkapy.client.cluster import BACKOFF_S
from kafkapy.client.errors import ConnectionFailed, TransactionFailed
from kafkapy.errors import KafkaError, is_retriable

T = TypeVar("T")


def patiently(attempt: Callable[[], T], limit_s: float) -> T:
    """What `attempt` returns; from its beginning again while no broker is reached or its error is one that time may
    heal, for `limit_s`. It must be such that a part of it done twice is as if done once."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return attempt()
        except TransactionFailed:
            raise
        except (ConnectionFailed, KafkaError) as error:
            heals = isinstance(error, ConnectionFailed) or is_retriable(error.code)
            if not heals or time.monotonic() >= deadline:
                raise
        time.sleep(BACKOFF_S)
