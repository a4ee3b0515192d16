"""What each client of a benchmark does: a job, which is sent to a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kafkapy.tools.bench.board import Slot

CLIENT_ID = "kafkapy-bench"
CLOSED = "the broker closed the connection; its log may say why"


class Job(Protocol):
    """A job can be pickled."""

    def prepare(self) -> None:
        """Connect, and encode the requests."""
        ...

    def run(self, slot: Slot) -> None:
        """Work until the job is done or `slot.shall_end`, and count in the slot."""
        ...
