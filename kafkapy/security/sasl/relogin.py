"""The time at which a client logs in again before its session ends (KIP-368)."""

from __future__ import annotations

import random


def next_login_s(lifetime_s: float) -> float:
    """Return after how many seconds of a session to log in again: 85 to 95 % of the session, as Kafka's clients do."""
    return lifetime_s * random.uniform(0.85, 0.95)
