"""Helpers that append to a partition and return the verdicts at once."""

import queue
from collections.abc import Callable, Sequence
from typing import Any

from kafkapy.log.append.rules import Records
from kafkapy.replica.partition import Partition, Verdict


class AtOnce:
    """A pool that runs each call at once, on the thread that submits it."""

    def submit(self, fn: Callable[..., Any], *args: Any) -> None:
        fn(*args)


def append_to(partition: Partition, sets: Sequence[Records]) -> list[Verdict]:
    """Append the record sets, and return their verdicts even if the append has to wait for a pool."""
    answers: queue.SimpleQueue[list[Verdict]] = queue.SimpleQueue()
    verdicts = partition.append(sets, answers.put)
    return answers.get(timeout=60) if verdicts is None else verdicts
