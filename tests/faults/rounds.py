"""How long the fault proofs run: KAFKAPY_FAULT_ROUNDS=200 for the full length, a few rounds otherwise."""

from __future__ import annotations

import os


def rounds(few: int) -> int:
    """The number of rounds: `few`, where nobody asks for another one."""
    return int(os.environ.get("KAFKAPY_FAULT_ROUNDS", few))
