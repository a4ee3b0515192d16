"""Has followers fetch partitions soon after this broker has become their leader.

A follower asks for new partitions with its next Fetch request, but its previous request may wait at this broker for
records, for up to replica.fetch.wait.max.ms. Until then no record of the new partitions is acknowledged with acks=all.
So this broker answers the waiting fetches of followers. It does that several times, because it does not know when the
followers have learnt of their new roles. In Apache Kafka the fetches wait.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkapy.replica.partition import Partition
from kafkapy.runtime.purgatory import Purgatory
from kafkapy.runtime.timer import Timer

if TYPE_CHECKING:
    from kafkapy.server.fetching.session import FetchSession

DELAYS_S = (0.01, 0.04, 0.15)  # before each round, in which all waiting fetches are answered


class NewFollowers:
    """Answers the waiting fetches of followers after this broker has become the leader of partitions."""

    def __init__(self, sessions: Iterable[FetchSession], purgatory: Purgatory, timer: Timer) -> None:
        """`purgatory` holds the waiting fetches, by their sessions."""
        self._sessions = sessions
        self._purgatory = purgatory
        self._timer = timer
        self._lock = threading.Lock()
        self._rounds = 0  # rounds that are still to come; the next one is scheduled
        self._more = False  # this broker became the leader of more partitions since the rounds began: repeat them

    def became_leader(self, partition: Partition) -> None:
        """Note that this broker has become the leader of a partition. Any thread may call this, also for thousands."""
        if partition.in_sync is None:
            return
        with self._lock:
            self._more = self._rounds > 0
            if self._more:
                return
            self._rounds = len(DELAYS_S)
        self._timer.schedule(DELAYS_S[0], self._answer)

    def _answer(self) -> None:
        for session in self._sessions:
            if session.is_follower:
                self._purgatory.complete_all(session)
        with self._lock:
            self._rounds -= 1
            if not self._rounds and self._more:
                self._rounds, self._more = len(DELAYS_S), False
            rounds = self._rounds
        if rounds:
            self._timer.schedule(DELAYS_S[-rounds], self._answer)
