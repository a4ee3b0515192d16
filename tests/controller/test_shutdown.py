"""The controlled shutdown of a broker that leads many partitions."""

import pytest

from kafkapy.controller.controller import _SMALLEST_PART
from kafkapy.controller.isr_changes import IsrRequest
from kafkapy.controller.requests import MetadataRequest, RolesRequest
from kafkapy.errors import Errors, KafkaError
from tests.controller.lab import Lab

MANY = 2 * _SMALLEST_PART + 50
EPOCH = 2  # the broker epoch of broker 1


@pytest.fixture
def led(lab: Lab) -> Lab:
    """Return a cluster in which broker 1 leads many partitions, and broker 2 follows."""
    lab.controller.create("t", by_hand={index: [1, 2] for index in range(MANY)})
    lab.brokers.sent.clear()
    return lab


def test_all_brokers_know_the_next_leaders_of_some_partitions_before_others_are_handed_over(led, monkeypatch):
    """Otherwise every partition would be without a leader until all partitions have one."""
    informed = []  # for each wait of the controller: of how many partitions each broker knows the next leader

    def wait_for_others(timeout_s):
        known = [[c.leader("t", index).id == 2 for index in range(MANY)] for c in led.brokers.caches.values()]
        informed.append([sum(each) for each in known])
        return True

    monkeypatch.setattr(led.brokers, "wait_for_others", wait_for_others)
    assert led.controller.controlled_shutdown(1, EPOCH) == []
    assert informed == [[_SMALLEST_PART] * 3, [2 * _SMALLEST_PART] * 3]
    assert all(led.topics.state("t", index) == (2, 1, [2], 1, 0) for index in range(MANY))
    kinds = [type(request) for broker_id, request in led.brokers.sent if broker_id == 2]
    assert kinds[:6] == [RolesRequest, MetadataRequest] * 3


def test_a_broker_that_does_not_respond_is_waited_for_once(led, monkeypatch):
    waits = []

    def wait_for_others(timeout_s):
        waits.append(timeout_s)
        return False

    monkeypatch.setattr(led.brokers, "wait_for_others", wait_for_others)
    assert led.controller.controlled_shutdown(1, EPOCH) == []
    assert len(waits) == 1


def test_a_broker_that_registers_again_during_its_shutdown_stays_in_the_isr(led, monkeypatch):
    led.controller.create("followed", by_hand={0: [2, 1]})

    def wait_for_others(timeout_s):
        led.brokers_are(0, 2)
        led.brokers_are(0, 1, 2)
        state, version = led.topics.versioned_state("followed", 0)
        led.controller.alter_partitions(2, 3, [IsrRequest("followed", 0, state.leader_epoch, version, [2, 1])])
        return True

    monkeypatch.setattr(led.brokers, "wait_for_others", wait_for_others)
    with pytest.raises(KafkaError) as caught:
        led.controller.controlled_shutdown(1, EPOCH)
    assert caught.value.code == Errors.BROKER_NOT_AVAILABLE
    assert led.topics.state("followed", 0).isr == [2, 1]
