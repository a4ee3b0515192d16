"""Metrics of groups and transactions: those of Kafka's GroupMetadataManager, group-coordinator-metrics and
transaction-coordinator-metrics, and the numbers of ongoing and prepared transactions.

A scrape creates no coordinator: the numbers are 0 before the first one exists. It looks at every group once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkapy.errors import KafkaError

if TYPE_CHECKING:
    from kafkapy.server.coordinators import Coordinators

ONGOING, PREPARE_COMMIT, PREPARE_ABORT = 1, 2, 3  # Kafka's codes; importing the module that names them takes long
GROUP_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")


class Number(NamedTuple):
    """A metric: its name without the prefix, its description, and its value."""

    name: str
    help: str
    value: float


def coordinator_gauges(coordinators: Coordinators) -> Iterator[Number]:
    """Yield the gauges: metrics that go up and down."""
    group_shards, transaction_shards = coordinators.made("group shards"), coordinators.made("transaction shards")
    groups: Counter[str] = Counter()
    offsets = 0
    for shard in _active(group_shards):
        found, count = _seen(shard, lambda home: (list(home.groups.values()), len(home.offsets)), ([], 0))
        groups.update(group.state for group in found)
        offsets += count
    manager = "group_metadata_manager_num_"
    yield Number(manager + "groups", "Groups", groups.total())
    for state in GROUP_STATES:
        yield Number(f"{manager}groups_{_snake(state)}", f"Groups in the state {state}", groups[state])
    yield Number(manager + "offsets", "Committed offsets", offsets)

    states: Counter[int] = Counter()
    for shard in _active(transaction_shards):
        entries = _seen(shard, lambda machine: list(machine.entries.values()), [])
        states.update(entry.state.state for entry in entries if entry.state is not None)
    yield Number("transaction_coordinator_num_transactional_ids", "Transactional ids", states.total())
    yield Number("transaction_coordinator_num_ongoing", "Transactions that are open", states[ONGOING])
    yield Number(
        "transaction_coordinator_num_prepared",
        "Transactions that are decided, and wait for their markers",
        states[PREPARE_COMMIT] + states[PREPARE_ABORT],
    )
    for name, shards in (("group", group_shards), ("transaction", transaction_shards)):
        seconds = [shard.load_s for shard in _active(shards)]
        loads = f"{name}_coordinator_partition_load_seconds_"
        yield Number(loads + "max", "The longest load of a partition that is led now", max(seconds, default=0))
        yield Number(loads + "avg", "What they took on average", sum(seconds) / len(seconds) if seconds else 0)


def coordinator_counters(coordinators: Coordinators) -> Iterator[Number]:
    """Yield the counters: metrics that only grow."""
    counts = coordinators.made("group counts")
    for name, help, attribute in (
        ("offset_commits", "Offsets that were committed", "commits"),
        ("offset_expirations", "Committed offsets that expired", "expired"),
        ("offset_deletions", "Committed offsets that were deleted by request", "deleted"),
        ("completed_rebalances", "Rebalances to their end", "rebalances"),
    ):
        yield Number(f"group_coordinator_{name}", help, getattr(counts, attribute, 0))


def _active(shards: Any) -> list[Any]:
    return [] if shards is None else shards.active()


def _seen(shard: Any, look: Any, otherwise: Any) -> Any:
    try:
        return shard.read(look)
    except KafkaError:  # the shard was unloaded in the meantime
        return otherwise


def _snake(state: str) -> str:
    return state.replace("Rebalance", "_rebalance").lower()
