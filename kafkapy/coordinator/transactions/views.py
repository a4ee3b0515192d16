"""The data of DescribeTransactions and ListTransactions, read from one partition of `__transaction_state`.

Source: Kafka's TransactionCoordinator.handleDescribeTransactions, TransactionStateManager.listTransactionStates.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from kafkapy.coordinator.transaction_records import STATES, TransactionState
from kafkapy.coordinator.transactions import transitions
from kafkapy.errors import Errors, KafkaError

if TYPE_CHECKING:
    from kafkapy.coordinator.transactions.machine import TransactionMachine
    from kafkapy.coordinator.transactions.transitions import Partitions


class Filters(NamedTuple):
    """The filters of a ListTransactions request: names of states, producer ids, and the least duration of a transaction
    in milliseconds. An empty set or a negative duration matches all transactions."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1

    @property
    def unknown_states(self) -> list[str]:
        """The names of states in the request that do not exist."""
        return [state for state in self.states if state not in STATES]


class Listed(NamedTuple):
    """A transactional id in the ListTransactions response."""

    transactional_id: str
    producer_id: int
    state_name: str


def described(machine: TransactionMachine, transactional_id: str) -> TransactionState:
    """Return the state of a transactional id. For a prepared transaction, the state has only the partitions that still
    need a marker.

    Raises KafkaError TRANSACTIONAL_ID_NOT_FOUND.
    """
    entry = machine.entries.get(transactional_id)
    if entry is None or entry.state is None:
        raise KafkaError(Errors.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {transactional_id!r}")
    if entry.unmarked is None:
        return entry.state
    waiting: Partitions = transitions.joined((), entry.unmarked)
    return entry.state._replace(partitions=waiting)


def listed(machine: TransactionMachine, filters: Filters, now: int) -> list[Listed]:
    """Return the transactional ids that match the filters, with their producer ids and states. `now` is the current
    time in milliseconds.

    As in Kafka, the duration is counted from the start of the last transaction even if that transaction is complete,
    and ids that never had a transaction match any duration.
    """
    found: Collection[tuple[str, TransactionState]] = [
        (transactional_id, entry.state)
        for transactional_id, entry in machine.entries.items()
        if entry.state is not None
    ]
    if filters.states:
        found = [(transactional_id, state) for transactional_id, state in found if state.state_name in filters.states]
    if filters.producer_ids:
        found = [
            (transactional_id, state) for transactional_id, state in found if state.producer_id in filters.producer_ids
        ]
    if filters.duration_ms >= 0:
        found = [
            (transactional_id, state) for transactional_id, state in found if now - state.start_ms > filters.duration_ms
        ]
    return [Listed(transactional_id, state.producer_id, state.state_name) for transactional_id, state in found]
