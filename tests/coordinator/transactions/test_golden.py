"""The `__transaction_state` partitions of Kafka 3.9.1 load, and our transitions lead from each record to the next."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.coordinator.shard import Producer
from kafkapy.coordinator.transaction_records import TransactionState, decode_key, decode_state, encode_state
from kafkapy.coordinator.transactions import transitions
from kafkapy.coordinator.transactions.transitions import ONGOING, PREPARE_COMMIT, PREPARED, flattened, missing
from kafkapy.errors import Errors
from kafkapy.record.batch import records_of
from tests.coordinator.transactions.world import World
from tests.harness.batches import iter_batches

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
LOGS = sorted(GOLDEN.glob("kafka-3.9.1-*/data/__transaction_state-*/*.log"))


def stored(log: Path) -> Iterator[tuple[str, bytes]]:
    data = log.read_bytes()
    for batch in iter_batches(data):
        for record in records_of(data, batch):
            assert record.key is not None
            assert record.value is not None
            transactional_id = decode_key(record.key)
            assert transactional_id is not None
            yield transactional_id, record.value


def follow(before: TransactionState | None, after: TransactionState) -> list[TransactionState | None]:
    """Return the states that our transitions reach with the time, producer id and partitions of the next record."""
    now = after.last_update_ms
    if before is None:
        return [transitions.created(after.producer_id, after.timeout_ms, now)]
    if before.state in PREPARED:
        return [transitions.completed(before, now)]
    if after.state == ONGOING:
        added = missing(before.partitions if before.state == ONGOING else (), flattened(after.partitions))
        return [transitions.with_partitions(before, added, now)]
    if before.state == ONGOING:
        return [transitions.prepared(before, after.state == PREPARE_COMMIT, now), transitions.fenced(before, now)]
    return [
        transitions.initialized(
            before, None, expected, producer_id=after.producer_id, timeout_ms=after.timeout_ms, now=now
        ).state
        for expected in (None, Producer(before.producer_id, before.producer_epoch))
    ]


def in_order(state: TransactionState) -> TransactionState:
    """Return the state with sorted partitions: Kafka lists them in the order of a hash table."""
    return state._replace(partitions=tuple(sorted((topic, tuple(sorted(ids))) for topic, ids in state.partitions)))


def test_each_record_of_kafka_follows_from_the_previous_one_by_transitions() -> None:
    last: dict[tuple[Path, str], TransactionState] = {}
    kinds = set()
    for log in LOGS:
        for transactional_id, value in stored(log):
            state = decode_state(value)
            before = last.get((log, transactional_id))
            assert encode_state(state) == value
            ours = [in_order(one) for one in follow(before, state) if one is not None]
            assert in_order(state) in ours, (transactional_id, before, state)
            kinds.add((before.state_name if before else "-", state.state_name))
            last[log, transactional_id] = state
    assert len(kinds) > 6, kinds


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log.parts[-4]}-{log.parent.name}")
def test_a_log_of_kafka_is_loaded_and_appended_to(log: Path) -> None:
    world = World()
    data = memoryview(log.read_bytes())
    for header in iter_batches(data):
        world.machine.replay(header, data)
    states = {name: decode_state(value) for name, value in stored(log)}
    assert {name: entry.state for name, entry in world.machine.entries.items()} == states
    assert world.machine.open == {name for name, state in states.items() if state.state == ONGOING}
    for name, state in states.items():
        found = world.init(name)
        if state.state == ONGOING:
            assert found == Errors.CONCURRENT_TRANSACTIONS
            assert world.state(name) == "CompleteAbort"
            assert world.init(name) == Producer(state.producer_id, state.producer_epoch + 2)
        else:
            assert found == Producer(state.producer_id, state.producer_epoch + 1)
