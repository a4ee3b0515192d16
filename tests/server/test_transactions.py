"""The transaction coordinator in a broker: its log, and restarts, also in the middle of a transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.server.broker import BrokerServer
from tests.harness.waiting import eventually
from tests.harness.wire import Producer, Wire
from tests.server.requests import start_broker


class Broker:
    """A broker that can be started again on the same directory."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self._directory = directory
        self._settings = settings
        self.start()

    def start(self) -> None:
        self.server: BrokerServer = start_broker(
            self._directory,
            transaction_state_log_num_partitions="3",
            transaction_abort_timed_out_transaction_cleanup_interval_ms="100",
            **self._settings,
        )
        self.wire = Wire(self.server.bootstrap_servers)

    def stop(self) -> None:
        self.wire.socket.close()
        self.server.stop()

    def restart(self) -> None:
        self.stop()
        self.start()

    def lose_markers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Drop all later markers without an answer, as if the broker died before it wrote each of them."""
        monkeypatch.setattr(self.server.services.markers, "write", lambda *_: None)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path)
    running.wire.create_topic("topic", 2)
    yield running
    running.stop()


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_that_was_decided_before_a_restart_is_completed_after_it(
    broker: Broker, commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = broker.wire.producer("tx")
    broker.wire.add("tx", producer, [("topic", 0), ("topic", 1)])
    broker.lose_markers(monkeypatch)
    assert broker.wire.end("tx", producer, commit) == Errors.NONE
    assert broker.wire.describe("tx").transaction_state == ("PrepareCommit" if commit else "PrepareAbort")
    broker.restart()
    broker.wire.wait_for_state("tx", "CompleteCommit" if commit else "CompleteAbort")
    assert [broker.wire.end_offset("topic", index) for index in (0, 1)] == [1, 1]


def test_a_transaction_continues_after_a_restart(broker: Broker) -> None:
    producer = broker.wire.producer("tx")
    broker.wire.add("tx", producer, [("topic", 0)])
    broker.restart()
    assert eventually(lambda: broker.wire.add("tx", producer, [("topic", 1)]) == [Errors.NONE])
    assert broker.wire.end("tx", producer, True) == Errors.NONE
    broker.wire.wait_for_state("tx", "CompleteCommit")
    assert [broker.wire.end_offset("topic", index) for index in (0, 1)] == [1, 1]


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_leaves_no_line_in_the_log(
    broker: Broker, commit: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def transaction() -> None:
        broker.wire.add("tx", producer, [("topic", 0), ("topic", 1)])
        assert broker.wire.end("tx", producer, commit) == Errors.NONE
        broker.wire.wait_for_state("tx", "CompleteCommit" if commit else "CompleteAbort")

    producer = broker.wire.producer("tx")  # the topic of transactions is created
    caplog.set_level(logging.INFO)
    transaction()
    assert [record.getMessage() for record in caplog.records] == []


def test_a_transaction_that_timed_out_while_the_broker_was_down_is_aborted(broker: Broker) -> None:
    producer = broker.wire.producer("tx", timeout_ms=1)
    broker.wire.add("tx", producer, [("topic", 0)])
    broker.restart()
    broker.wire.wait_for_state("tx", "CompleteAbort")
    assert broker.wire.end("tx", producer, True) == Errors.PRODUCER_FENCED


def test_a_transaction_over_many_partitions_is_completed(broker: Broker) -> None:
    broker.wire.create_topic("wide", 150)
    producer = broker.wire.producer("tx")
    wide = [("wide", index) for index in range(150)]
    assert set(broker.wire.add("tx", producer, wide)) == {Errors.NONE}
    assert broker.wire.end("tx", producer, False) == Errors.NONE
    broker.wire.wait_for_state("tx", "CompleteAbort")
    assert {broker.wire.end_offset(*one) for one in wide} == {1}


def test_a_batch_of_very_many_transactions_is_answered_one_by_one(broker: Broker) -> None:
    producer = broker.wire.producer("tx")
    unknown = [(f"unknown-{number}", producer, [("topic", 0)], True) for number in range(2000)]
    codes = broker.wire.add_batch(*unknown, ("tx", producer, [("topic", 1)], False))
    assert codes == [[Errors.INVALID_PRODUCER_ID_MAPPING]] * 2000 + [[Errors.NONE]]


def test_requests_before_the_first_find_coordinator_get_not_coordinator(broker: Broker) -> None:
    unknown_producer = Producer(1, 0)
    assert broker.wire.init("tx") == Errors.NOT_COORDINATOR
    assert broker.wire.add("tx", unknown_producer, [("topic", 0)]) == [Errors.NOT_COORDINATOR]
    assert broker.wire.end("tx", unknown_producer, True) == Errors.NOT_COORDINATOR
    assert broker.wire.describe("tx").error_code == Errors.NOT_COORDINATOR
    listed: Any = broker.wire.call(apis.LIST_TRANSACTIONS, 0, state_filters=[], producer_id_filters=[])
    assert (listed.error_code, listed.transaction_states) == (Errors.NONE, [])


def test_unused_transactional_ids_expire_and_stay_forgotten_after_a_restart(tmp_path: Path) -> None:
    broker = Broker(
        tmp_path,
        transactional_id_expiration_ms="300",
        transaction_remove_expired_transaction_cleanup_interval_ms="50",
    )
    broker.wire.create_topic("topic")
    idle, busy = broker.wire.producer("idle"), broker.wire.producer("busy")
    broker.wire.add("busy", busy, [("topic", 0)])
    eventually(lambda: broker.wire.describe("idle").error_code == Errors.TRANSACTIONAL_ID_NOT_FOUND)
    assert broker.wire.add("idle", idle, [("topic", 0)]) == [Errors.INVALID_PRODUCER_ID_MAPPING]
    broker.restart()
    assert eventually(lambda: broker.wire.describe("busy").transaction_state) == "Ongoing"
    eventually(lambda: broker.wire.describe("idle").error_code == Errors.TRANSACTIONAL_ID_NOT_FOUND)
    broker.stop()
