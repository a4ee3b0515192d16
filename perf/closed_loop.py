"""Many clients at the same time, each of which sends its next request after the response to the previous one."""

from __future__ import annotations

from collections.abc import Sequence

from kafkapy.client.raw.closed_loop import ask_in_turn
from perf.raw_client import RawClient


def closed_loop(
    clients: Sequence[RawClient], frames: Sequence[bytes], count: int, replies: Sequence[int] = ()
) -> tuple[float, list[float]]:
    """Let client k send frames[k] again and again, until all clients together have `count` responses.

    The frames are produce requests; otherwise, `replies` has the length of each client's responses, with the size
    field. Return the seconds and the latencies, as `ask_in_turn` does.
    """
    replies = replies or [client.produce_once(frame) for client, frame in zip(clients, frames, strict=True)]
    return ask_in_turn(clients, frames.__getitem__, count, replies)
