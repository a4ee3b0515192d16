"""Check with the coordinator that a transaction is ongoing before its first batch is appended (KIP-890).

A batch that begins a transaction in a partition may be appended only after the coordinator has confirmed that the
partition is in the producer's transaction. Otherwise a delayed batch, which arrives after the transaction's markers,
would begin a transaction that never ends. There is a race: the coordinator confirms, then the marker that ends the
transaction is written, then the delayed batch is appended. So each verification has a guard. A marker removes the
verification, and a later one gets another guard, which the old confirmation does not fit.

Source: Kafka's VerificationGuard and VerificationStateEntry.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable

from kafkapy.errors import Errors, KafkaError

NO_GUARD = 0
# The most verifications of a log. Beyond that the oldest is forgotten; its batch is refused, and the client retries.
MOST = 100_000

_guards = itertools.count(1)


class Verification:
    """The verification of one producer's transaction with its coordinator: whether it was confirmed, and a guard
    number.

    While batches wait for the verification, a batch with a sequence above the lowest one seen in the epoch is refused.
    """

    __slots__ = ("created_ms", "epoch", "guard", "lowest_sequence", "verified")

    def __init__(self, sequence: int, epoch: int, now_ms: int) -> None:
        self.guard = next(_guards)
        self.verified = False
        self.created_ms = now_ms
        self.epoch = epoch
        self.lowest_sequence = sequence

    def check_sequence(self, where: str, producer_id: int, first_sequence: int, offset: int) -> None:
        """Raise KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER if a batch with a sequence lower than `first_sequence` was seen
        before.

        That batch is waiting, and would be out of order if this one were appended first.
        """
        if first_sequence > self.lowest_sequence:
            raise KafkaError(
                Errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} at offset {offset} of {where} begins a transaction with sequence "
                f"{first_sequence}, and {self.lowest_sequence} was seen before",
            )

    def lower(self, sequence: int, epoch: int) -> None:
        """Record the sequence of another batch that waits, if it is the lowest of its epoch or begins a later epoch."""
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence


class Verifications:
    """The verifications in progress of one log, with a lock of their own: network threads must not wait for the log's
    lock.
    """

    __slots__ = ("_lock", "_of")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: OrderedDict[int, Verification] = OrderedDict()

    def begin(self, producer_id: int, sequence: int, epoch: int, now_ms: int, is_open: Callable[[int], bool]) -> int:
        """Begin a verification, or join the one in progress; return its guard, which `succeeded` needs.

        Returns NO_GUARD if `is_open(producer_id)` says that the producer's transaction is open in the log already: then
        no verification is needed.

        There may be a race with the append that opens the transaction. The append first stores the open transaction in
        the producer state and then calls `forget`. So either `is_open` returns True here, or `forget` then removes the
        verification.
        """
        with self._lock:
            if is_open(producer_id):
                return NO_GUARD
            found = self._of.get(producer_id)
            if found is None:
                if len(self._of) >= MOST:
                    self._of.popitem(last=False)
                found = self._of[producer_id] = Verification(sequence, epoch, now_ms)
            else:
                found.lower(sequence, epoch)
            return found.guard

    def succeeded(self, producer_id: int, guard: int) -> bool:
        """Record that the coordinator has confirmed the transaction.

        Return False if the verification with this guard was removed meanwhile, for instance by a transaction marker.
        """
        with self._lock:
            found = self._of.get(producer_id)
            if found is None or found.guard != guard:
                return False
            found.verified = True
            return True

    def of(self, producer_id: int) -> Verification | None:
        return self._of.get(producer_id)

    def forget(self, producer_id: int) -> None:
        """Remove the producer's verification, because records or a marker of its transaction are in the log now."""
        if producer_id in self._of:
            with self._lock:
                self._of.pop(producer_id, None)

    def expire(self, before_ms: int) -> None:
        """Remove the verifications that were created at `before_ms` (ms since 1970) or earlier."""
        with self._lock:
            for producer_id in [key for key, one in self._of.items() if one.created_ms <= before_ms]:
                del self._of[producer_id]

    def clear(self) -> None:
        with self._lock:
            self._of.clear()
