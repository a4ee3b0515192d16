"""The metrics of groups and transactions.

Reading these metrics creates no coordinator: the values are 0 until the first coordinator exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kafkapy.errors import KafkaError
from kafkapy.runtime.counters import Labels, Metric, Registry, metric_table

if TYPE_CHECKING:
    from kafkapy.server.coordinators import Coordinators

_ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT = 1, 2, 3  # Kafka's codes; importing the module that names them takes long
_GROUP_STATES = {
    "preparing_rebalance": "PreparingRebalance",
    "completing_rebalance": "CompletingRebalance",
    "stable": "Stable",
    "dead": "Dead",
    "empty": "Empty",
}
_MANAGER = "kafka.coordinator.group:type=GroupMetadataManager"
_GROUPS = "kafka.server:type=group-coordinator-metrics"
_TRANSACTIONS = "kafka.server:type=transaction-coordinator-metrics"
_LOADS = "load of the partitions of {} that this broker leads now"

METRICS = metric_table(
    Metric("group_metadata_manager_num_groups", "gauge", (), "Groups.", f"{_MANAGER},name=NumGroups"),
    *(
        Metric(f"group_metadata_manager_num_groups_{name}", "gauge", (), f"Groups in the state {state}.",
               f"{_MANAGER},name=NumGroups{state}")
        for name, state in _GROUP_STATES.items()
    ),
    Metric("group_metadata_manager_num_offsets", "gauge", (), "Committed offsets.", f"{_MANAGER},name=NumOffsets"),
    Metric("group_coordinator_partition_load_seconds_max", "gauge", (),
           f"Longest {_LOADS.format('__consumer_offsets')}.", f"{_GROUPS}: partition-load-time-max"),
    Metric("group_coordinator_partition_load_seconds_avg", "gauge", (),
           f"Average {_LOADS.format('__consumer_offsets')}.", f"{_GROUPS}: partition-load-time-avg"),
    Metric("group_coordinator_offset_commits", "counter", (), "Offsets that were committed.",
           f"{_GROUPS}: offset-commit-count"),
    Metric("group_coordinator_offset_expirations", "counter", (), "Committed offsets that expired.",
           f"{_GROUPS}: offset-expiration-count"),
    Metric("group_coordinator_offset_deletions", "counter", (),
           "Committed offsets that were deleted by a request.", f"{_GROUPS}: offset-deletion-count"),
    Metric("group_coordinator_completed_rebalances", "counter", (), "Rebalances that were completed.",
           f"{_GROUPS}: group-completed-rebalance-count"),
    Metric("transaction_coordinator_num_transactional_ids", "gauge", (), "Transactional ids."),
    Metric("transaction_coordinator_num_ongoing", "gauge", (), "Open transactions."),
    Metric("transaction_coordinator_num_prepared", "gauge", (),
           "Transactions that are committed or aborted, but whose markers are not all written."),
    Metric("transaction_coordinator_partition_load_seconds_max", "gauge", (),
           f"Longest {_LOADS.format('__transaction_state')}.", f"{_TRANSACTIONS}: partition-load-time-max"),
    Metric("transaction_coordinator_partition_load_seconds_avg", "gauge", (),
           f"Average {_LOADS.format('__transaction_state')}.", f"{_TRANSACTIONS}: partition-load-time-avg"),
)  # fmt: skip


def register(coordinators: Coordinators, counters: Registry) -> None:
    """Register the metrics of groups and transactions. All values are read together, because each of them needs every
    group."""

    def read() -> Iterator[tuple[Metric, Labels, float]]:
        for name, value in _values(coordinators):
            yield METRICS[name], (), value

    counters.register_reader(METRICS.values(), read)


def _values(coordinators: Coordinators) -> Iterator[tuple[str, float]]:
    group_shards, transaction_shards = (
        coordinators.existing("group shards"),
        coordinators.existing("transaction shards"),
    )
    groups: Counter[str] = Counter()
    offsets = 0
    for shard in _active(group_shards):
        found, count = _seen(shard, lambda machine: (list(machine.groups.values()), len(machine.offsets)), ([], 0))
        groups.update(group.state for group in found)
        offsets += count
    yield "group_metadata_manager_num_groups", groups.total()
    for name, state in _GROUP_STATES.items():
        yield f"group_metadata_manager_num_groups_{name}", groups[state]
    yield "group_metadata_manager_num_offsets", offsets
    counts = coordinators.existing("group counts")
    yield "group_coordinator_offset_commits", getattr(counts, "commits", 0)
    yield "group_coordinator_offset_expirations", getattr(counts, "expired", 0)
    yield "group_coordinator_offset_deletions", getattr(counts, "deleted", 0)
    yield "group_coordinator_completed_rebalances", getattr(counts, "rebalances", 0)

    states: Counter[int] = Counter()
    for shard in _active(transaction_shards):
        entries = _seen(shard, lambda machine: list(machine.entries.values()), [])
        states.update(entry.state.state for entry in entries if entry.state is not None)
    yield "transaction_coordinator_num_transactional_ids", states.total()
    yield "transaction_coordinator_num_ongoing", states[_ONGOING]
    yield "transaction_coordinator_num_prepared", states[_PREPARE_COMMIT] + states[_PREPARE_ABORT]
    for kind, shards in (("group", group_shards), ("transaction", transaction_shards)):
        seconds = [shard.load_s for shard in _active(shards)]
        yield f"{kind}_coordinator_partition_load_seconds_max", max(seconds, default=0)
        yield f"{kind}_coordinator_partition_load_seconds_avg", sum(seconds) / len(seconds) if seconds else 0


def _active(shards: Any) -> list[Any]:
    return [] if shards is None else shards.active()


def _seen(shard: Any, look: Any, otherwise: Any) -> Any:
    try:
        return shard.read(look)
    except KafkaError:  # the shard was unloaded in the meantime
        return otherwise
