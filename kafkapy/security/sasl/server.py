"""The server's side of a login: the interface of all mechanisms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class ServerMechanism(Protocol):
    """The server's side of one login. `respond` is called with each message of the client, until `complete`."""

    @property
    def name(self) -> str:
        """Return the mechanism's name, such as SCRAM-SHA-256."""
        ...

    @property
    def may_wait(self) -> bool:
        """Return True if `respond` may block, so that it must not run on a network thread."""
        ...

    @property
    def complete(self) -> bool:
        """Return True if the client is authenticated. Then `user` is its name."""
        ...

    @property
    def user(self) -> str | None: ...

    @property
    def expires_at_ms(self) -> int | None:
        """Return when the client's credential expires, in milliseconds since the epoch; None: never."""
        ...

    def respond(self, token: bytes) -> bytes:
        """Return the answer to the client's message. Raise AuthenticationFailed if the login fails."""
        ...


# Returns a new mechanism for each login.
MakeMechanism = Callable[[], ServerMechanism]
