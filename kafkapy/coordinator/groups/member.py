"""A member of a classic consumer group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata) in the member's order of preference
Reply = Callable[[Any], object]  # gets the response, once


class Member:
    """A member of a consumer group: the values of its last JoinGroup, its assignment, and the callbacks for responses
    that the member waits for.

    deadline   monotonic seconds at which the session expires
    is_new     True until the member is in a generation. A new member's session expires even while it waits for a
               JoinGroup response, because its client may have given up
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
        """True if the member is a static member, that is, has an instance id (KIP-345)."""
        return self.instance_id is not None

    @property
    def awaits_response(self) -> bool:
        """True if the member waits for a JoinGroup or SyncGroup response, so that its client sends no heartbeats.
        Always False for a new member, whose session expires nevertheless."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, protocol: str) -> bytes:
        """Return the metadata that the member sent for the protocol with this name. Raises ValueError if the member
        does not support the protocol."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise ValueError(f"{self} does not support {protocol!r}")

    def vote(self, candidates: set[str]) -> str:
        """Return the name of the protocol that the member prefers among `candidates`. Raises ValueError if the member
        supports none of them."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise ValueError(f"{self} supports none of {candidates}")


def named(members: Sequence[Member]) -> str:
    """Return a text for log messages that describes the members: details if there is a single member, otherwise their
    number."""
    return repr(members[0]) if len(members) == 1 else f"{len(members)} members"
