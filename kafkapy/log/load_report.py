"""What loading had to do to a log, kept for the one line that tells it."""

from __future__ import annotations

import logging

_SHOWN = 8

_log = logging.getLogger(__name__)


class LoadReport:
    """Filled by the loader, told once."""

    def __init__(self) -> None:
        self._notes: list[str] = []
        self._more = 0
        self._serious = False

    @property
    def notes(self) -> list[str]:
        """The first of them."""
        return self._notes

    def note(self, text: str, *, serious: bool = True) -> None:
        """Something was found and put right; `serious`: it was damage, and not only what every crash leaves."""
        self._serious |= serious
        if len(self._notes) < _SHOWN:
            self._notes.append(text)
        else:
            self._more += 1

    def tell(self, name: str, start: int, end: int, ms: float, *, recovered: bool) -> None:
        """`recovered`: every batch was checked, from the recovery point on; else only a repair is worth a line."""
        if not recovered and not self._notes:
            return
        done = "recovered" if recovered else "repaired"
        told = [f"{name}: {done} offsets {start} to {end} in {ms:.1f} ms", *self._notes]
        if self._more:
            told.append(f"and {self._more} more of the kind")
        _log.log(logging.WARNING if self._serious else logging.INFO, "%s", "; ".join(told))
