"""How many rounds the fault tests run: KAFKAPY_FAULT_ROUNDS=200 for the full length, otherwise a few."""

from __future__ import annotations

import os


def rounds(few: int) -> int:
    """Return the number of rounds: KAFKAPY_FAULT_ROUNDS, or `few` if it is not set."""
    return int(os.environ.get("KAFKAPY_FAULT_ROUNDS", few))
