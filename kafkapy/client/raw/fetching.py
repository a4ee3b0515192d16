"""Many consumers of one partition in one thread, each with one fetch in flight; the responses are discarded."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from kafkapy.client.raw.closed_loop import ask_in_turn
from kafkapy.client.raw.connection import RawConnection

Asks = Callable[[int], "bytes | bytearray"]  # returns the request that fetches from a position


def fetch(
    consumers: Sequence[RawConnection], asks: Asks, answer: int, positions: int, count: int, *, apart: bool = False
) -> float:
    """Fetch `count` responses of `answer` bytes each, headers included, from `positions` positions in turn. Return the
    seconds that it took. `count` is at least the number of consumers.

    All consumers share one sequence of positions. With `apart`, each cycles through its own part of the log.
    """
    share = max(1, positions // len(consumers)) if apart else positions
    numbers = [itertools.count() for _ in consumers] if apart else [itertools.count()] * len(consumers)

    def frame_of(consumer: int) -> bytes | bytearray:
        return asks((consumer * share + next(numbers[consumer]) % share) % positions)

    seconds, _ = ask_in_turn(consumers, frame_of, count, [answer] * len(consumers))
    return seconds


def places_in(batches: int, batches_an_answer: int) -> int:
    """Return from how many positions in a log of `batches` batches a response is certain to be full; at least 1.

    A full response has `batches_an_answer` batches.
    """
    return max(1, (batches - batches_an_answer - 1) // batches_an_answer)
