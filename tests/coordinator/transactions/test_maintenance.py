"""Time-outs of transactions, and expiry of transactional ids."""

from typing import Any

import pytest

from kafkapy.coordinator.shard import Producer
from kafkapy.coordinator.transactions import maintenance
from kafkapy.errors import Errors, KafkaError
from tests.coordinator.transactions.world import LEADER_EPOCH, World

P, Q = ("topic", 0), ("topic", 1)
LOOK_S = 10.0
WEEK_S = 7 * 24 * 3600.0
HOUR_S = 3600.0


@pytest.fixture
def world() -> World:
    return World()


def test_a_transaction_that_is_open_too_long_is_aborted_and_its_producer_fenced(world: World) -> None:
    producer = world.producer("tx", timeout_ms=20_000)
    world.add("tx", producer, P, Q)
    world.timer.advance(20)
    assert world.state("tx") == "Ongoing"
    world.timer.advance(LOOK_S)
    assert world.state("tx") == "CompleteAbort"
    fenced = producer._replace(epoch=1)
    assert world.markers.written == [(fenced, LEADER_EPOCH, False, one) for one in (P, Q)]
    assert world.commit("tx", producer) == Errors.PRODUCER_FENCED
    assert world.init("tx", expected=producer) == Errors.PRODUCER_FENCED
    assert world.init("tx") == producer._replace(epoch=2)


def test_the_time_counts_from_the_first_partition(world: World) -> None:
    producer = world.producer("tx", timeout_ms=60_000)
    world.timer.advance(100)
    world.add("tx", producer, P)
    world.timer.advance(50)
    world.add("tx", producer, Q)
    assert world.state("tx") == "Ongoing"
    world.timer.advance(10 + LOOK_S)
    assert world.state("tx") == "CompleteAbort"


def test_a_failed_abort_is_retried_at_the_next_scan(world: World) -> None:
    producer = world.producer("tx", timeout_ms=1000)
    world.add("tx", producer, P)
    world.log.fails = KafkaError(Errors.NOT_ENOUGH_REPLICAS)
    world.timer.advance(30)
    assert world.state("tx") == "Ongoing"
    world.log.fails = None
    world.timer.advance(LOOK_S)
    assert world.state("tx") == "CompleteAbort"
    assert world.markers.written == [(producer._replace(epoch=1), LEADER_EPOCH, False, P)]


def test_transactions_that_are_being_changed_are_not_aborted(world: World) -> None:
    producer = world.producer("tx", timeout_ms=1000)
    world.add("tx", producer, P)
    world.log.held = True
    world.commit("tx", producer)
    world.timer.advance(LOOK_S)
    world.log.release()
    assert world.state("tx") == "CompleteCommit"


def test_time_outs_begin_again_after_a_restart(world: World) -> None:
    producer = world.producer("tx", timeout_ms=15_000)
    world.add("tx", producer, P)
    world.timer.advance(12)
    world.restart()
    world.timer.advance(LOOK_S)
    assert world.state("tx") == "CompleteAbort"


def test_one_transaction_is_aborted_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that wait for the shard can run between two aborts."""
    for number in range(20):
        world.add(f"tx-{number}", world.producer(f"tx-{number}", timeout_ms=1000), P)
    aborted_by_turn: list[int] = []
    run_late = world.shard._run_late

    def turn(step: Any) -> None:
        before = len(world.markers.written)
        run_late(step)
        aborted_by_turn.append(len(world.markers.written) - before)

    monkeypatch.setattr(world.shard, "_run_late", turn)
    world.timer.advance(LOOK_S + 1)
    assert (sum(aborted_by_turn), max(aborted_by_turn)) == (20, 1)


def test_a_scan_of_many_transactions_covers_all_of_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "IDS_A_STEP", 3)
    names = [f"tx-{number}" for number in range(8)]
    for name in names:
        world.add(name, world.producer(name, timeout_ms=1000), P)
    world.timer.advance(LOOK_S)
    assert {world.state(name) for name in names} == {"CompleteAbort"}
    assert not world.shard.machine.open


def test_idle_ids_expire_and_others_stay(world: World) -> None:
    world.producer("empty")
    for name, commit in (("committed", True), ("aborted", False)):
        producer = world.producer(name)
        world.add(name, producer, P)
        world.end(name, producer, commit)
    world.settings = world.settings._replace(abort_interval_ms=10 * 604_800_000)
    world.restart()
    open_one = world.producer("open")
    world.add("open", open_one, P)
    prepared = world.producer("prepared")
    world.add("prepared", prepared, Q)
    world.markers.held = True
    world.commit("prepared", prepared)
    world.timer.advance(WEEK_S / 2)
    world.producer("younger")
    world.timer.advance(WEEK_S / 2 + HOUR_S)
    assert set(world.shard.machine.entries) == {"open", "prepared", "younger"}
    assert world.states_in_log()[-1] is None
    assert world.init("empty") == Producer(1006, 0)
    world.restart()
    assert set(world.shard.machine.entries) == {"open", "prepared", "younger", "empty"}


def test_an_id_whose_tombstone_failed_is_usable_and_expires_later(world: World) -> None:
    producer = world.producer("tx")
    world.timer.advance(WEEK_S - 1)
    world.log.fails = KafkaError(Errors.NOT_ENOUGH_REPLICAS)
    world.timer.advance(HOUR_S)
    world.log.fails = None
    assert world.init("tx", expected=producer) == producer._replace(epoch=1)
    world.timer.advance(WEEK_S + HOUR_S)
    assert not world.shard.machine.entries


def test_requests_for_an_expiring_id_get_concurrent_transactions(world: World) -> None:
    producer = world.producer("tx")
    world.timer.advance(WEEK_S - HOUR_S)
    world.log.held = True
    world.timer.advance(2 * HOUR_S)
    assert world.init("tx") == Errors.CONCURRENT_TRANSACTIONS
    assert world.add("tx", producer, P) == Errors.CONCURRENT_TRANSACTIONS
    world.log.release()
    assert world.add("tx", producer, P) == Errors.INVALID_PRODUCER_ID_MAPPING
    assert world.init("tx") == Producer(1001, 0)


def test_tombstones_of_long_ids_fit_into_their_batches(world: World) -> None:
    names = [f"{number:03}" + "x" * 30_000 for number in range(10)]
    for name in names:
        world.producer(name)
    world.timer.advance(WEEK_S + HOUR_S)
    assert not world.shard.machine.entries
    tombstones = [records for records, _ in world.log.batches if records[0][1] is None]
    assert sum(map(len, tombstones)) == 10
    assert max(sum(len(key) for key, _ in records) for records in tombstones) < 200_000


def test_a_transaction_with_the_very_last_epoch_times_out(world: World) -> None:
    for name in ("guessed", "honest"):
        producer = world.producer(name, timeout_ms=1000)
        if name == "guessed":
            entry = world.shard.machine.entries[name]
            assert entry.state is not None
            producer = producer._replace(epoch=32767)
            entry.state = entry.state._replace(producer_epoch=producer.epoch)
        world.add(name, producer, P)
    world.timer.advance(2 * LOOK_S)
    assert world.state("guessed") == world.state("honest") == "CompleteAbort"
    assert world.init("guessed") == Producer(1002, 0)
