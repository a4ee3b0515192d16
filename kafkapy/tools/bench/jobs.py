"""The interface of jobs. A job is the work of one client of a benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kafkapy.tools.bench.board import Slot

CLIENT_ID = "kafkapy-bench"
CLOSED = "the broker closed the connection; its log may say why"


class Job(Protocol):
    """The work of one client, which is pickled and sent to the client's process."""

    def prepare(self) -> None:
        """Connect, and encode the requests."""
        ...

    def run(self, slot: Slot) -> None:
        """Work until the job is done or `slot.shall_end`, and count in the slot."""
        ...
