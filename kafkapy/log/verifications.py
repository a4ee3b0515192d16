"""Whether a producer's transaction is known to its coordinator before its first batch is in the log (KIP-890).

A batch that begins a transaction in a partition may be appended only after the coordinator has said that the
partition is in the producer's transaction: otherwise a batch that comes late, after the markers, would begin a
transaction that nobody ends. Between the answer and the append a marker may be written, and the answer is void: so a
verification has a guard, a marker takes it away, and a later verification has another one.

Source: Kafka's VerificationGuard and VerificationStateEntry.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

from kafkapy.errors import Errors, KafkaError

NO_GUARD = 0

_guards = itertools.count(1)


class Verification:
    """One producer's: the lowest sequence that waited for it in its epoch may be appended, nothing behind it."""

    __slots__ = ("created_ms", "epoch", "guard", "lowest_sequence", "verified")

    def __init__(self, sequence: int, epoch: int, now_ms: int) -> None:
        self.guard = next(_guards)
        self.verified = False
        self.created_ms = now_ms
        self.epoch = epoch
        self.lowest_sequence = sequence

    def check_sequence(self, where: str, producer_id: int, first_sequence: int, offset: int) -> None:
        """Raises KafkaError for a batch behind one that waits: that would never be in order again."""
        if first_sequence > self.lowest_sequence:
            raise KafkaError(
                Errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} at offset {offset} of {where} begins a transaction with sequence "
                f"{first_sequence}, and {self.lowest_sequence} was seen before",
            )

    def lower(self, sequence: int, epoch: int) -> None:
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence


class Verifications:
    """Those of one log. They begin on network threads, which must not wait for the log's lock: they have their own."""

    __slots__ = ("_lock", "_of")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[int, Verification] = {}

    def begin(self, producer_id: int, sequence: int, epoch: int, now_ms: int, is_open: Callable[[int], bool]) -> int:
        """A guard, for which the coordinator is to be asked; NO_GUARD where the transaction is open in the log.

        An append puts its producer's entry first and forgets the verification then. So under this lock either the
        transaction is seen to be open, or what begins here is forgotten by that append.
        """
        with self._lock:
            if is_open(producer_id):
                return NO_GUARD
            found = self._of.get(producer_id)
            if found is None:
                found = self._of[producer_id] = Verification(sequence, epoch, now_ms)
            else:
                found.lower(sequence, epoch)
            return found.guard

    def succeeded(self, producer_id: int, guard: int) -> bool:
        """The coordinator has said yes; False if what was asked has ended meanwhile."""
        with self._lock:
            found = self._of.get(producer_id)
            if found is None or found.guard != guard:
                return False
            found.verified = True
            return True

    def of(self, producer_id: int) -> Verification | None:
        return self._of.get(producer_id)

    def forget(self, producer_id: int) -> None:
        """Records or a marker of the producer's transaction are in the log."""
        if producer_id in self._of:
            with self._lock:
                self._of.pop(producer_id, None)

    def expire(self, before_ms: int) -> None:
        """Forgets those that began up to `before_ms` and were never answered."""
        with self._lock:
            for producer_id in [key for key, one in self._of.items() if one.created_ms <= before_ms]:
                del self._of[producer_id]

    def clear(self) -> None:
        with self._lock:
            self._of.clear()
