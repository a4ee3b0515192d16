"""What DescribeTransactions and ListTransactions show. Source: TransactionCoordinator.handleDescribeTransactions,
TransactionStateManager.listTransactionStates.
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
    """What is not filtered is empty; `duration_ms` is negative then."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1

    @property
    def unknown_states(self) -> list[str]:
        """Of the states asked for, those that there are not."""
        return [state for state in self.states if state not in STATES]


class Listed(NamedTuple):
    """One line of a list."""

    transactional_id: str
    producer_id: int
    state_name: str


def described(machine: TransactionMachine, transactional_id: str) -> TransactionState:
    """Of a prepared transaction only the partitions that wait for their marker. Raises TRANSACTIONAL_ID_NOT_FOUND."""
    entry = machine.entries.get(transactional_id)
    if entry is None or entry.state is None:
        raise KafkaError(Errors.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {transactional_id!r}")
    if entry.unmarked is None:
        return entry.state
    waiting: Partitions = transitions.joined((), entry.unmarked)
    return entry.state._replace(partitions=waiting)


def listed(machine: TransactionMachine, filters: Filters, now: int) -> list[Listed]:
    """The ids that pass. A duration is since the start of the last transaction, also where that is complete; ids that
    never had one pass, as in Kafka."""
    found: Collection[tuple[str, TransactionState]] = [
        (one, entry.state) for one, entry in machine.entries.items() if entry.state is not None
    ]
    if filters.states:
        found = [(one, state) for one, state in found if state.state_name in filters.states]
    if filters.producer_ids:
        found = [(one, state) for one, state in found if state.producer_id in filters.producer_ids]
    if filters.duration_ms >= 0:
        found = [(one, state) for one, state in found if now - state.start_ms > filters.duration_ms]
    return [Listed(one, state.producer_id, state.state_name) for one, state in found]
