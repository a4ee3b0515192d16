"""The number of rounds of the fault tests: set KAFKAPY_FAULT_ROUNDS=200 for the full length."""

from __future__ import annotations

import os


def rounds(few: int) -> int:
    """Return KAFKAPY_FAULT_ROUNDS, or `few` if it is not set."""
    return int(os.environ.get("KAFKAPY_FAULT_ROUNDS", few))
