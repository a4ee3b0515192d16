"""One member of a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Protocols = tuple[tuple[str, bytes], ...]  # what a member can do, the one preferred first: name, metadata
Reply = Callable[[Any], object]  # takes the response message, once


class Member:
    """What a member told at its last join, what it was assigned, and the answers it waits for.

    session_ms, rebalance_ms   its time-outs
    deadline                   monotonic seconds: without a word from it until then, it is gone
    is_new                     it has not been in a generation; until then it may leave by its deadline also while it
                               waits for one, because nobody knows whether it still does
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline",
        "id",
        "instance_id",
        "is_new",
        "join_reply",
        "protocols",
        "rebalance_ms",
        "session_ms",
        "sync_reply",
    )

    def __init__(
        self,
        id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        *,
        rebalance_ms: int,
        session_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.id = id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_ms = rebalance_ms
        self.session_ms = session_ms
        self.protocols = protocols
        self.assignment = assignment
        self.deadline = 0.0
        self.is_new = False
        self.join_reply: Reply | None = None
        self.sync_reply: Reply | None = None

    def __repr__(self) -> str:
        return f"Member({self.id!r}, instance {self.instance_id!r}, client {self.client_id!r} at {self.client_host})"

    @property
    def is_static(self) -> bool:
        """Whether it names an instance, and may come back as the same member (KIP-345)."""
        return self.instance_id is not None

    @property
    def is_excused(self) -> bool:
        """Whether it waits for us, so that no heartbeat is expected of it."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, protocol: str) -> bytes:
        """What it said with `protocol`, which it supports."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise ValueError(f"{self} does not support {protocol!r}")

    def vote(self, candidates: set[str]) -> str:
        """The protocol that it prefers, out of those that every member supports."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise ValueError(f"{self} supports none of {candidates}")


def named(members: Sequence[Member]) -> str:
    """For the log: who it was, or how many."""
    return repr(members[0]) if len(members) == 1 else f"{len(members)} members"
