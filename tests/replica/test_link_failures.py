"""Links whose requests cannot be sent, or whose callbacks fail: every request gets one result, and timers are few."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.network.processor import Processor
from kafkapy.network.socket_server import SocketServer
from kafkapy.protocol.apis import METADATA
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.testing.broker import Broker
from tests.replica.test_links import LONG, Answers, address_of, link_to, network

__all__ = ["network"]  # the fixture


def test_a_request_that_cannot_be_encoded_fails_alone(network: SocketServer, kafkapy_broker: Broker) -> None:
    link, answers = link_to(network, address_of(kafkapy_broker)), Answers()
    link.ask(METADATA, lambda version: 1 // 0, answers, timeout_s=LONG)
    link.ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
    (_, first), (response, second) = answers.wait(2)
    assert "cannot be encoded: integer division" in str(first)
    assert second is None
    assert response.brokers


@pytest.mark.parametrize("host", ["two..dots", "x" * 64])
def test_a_host_that_cannot_be_a_name_fails_the_request(network: SocketServer, host: str) -> None:
    answers = Answers()
    link_to(network, (host, 9092)).ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
    assert f"the host name of broker 9 at {host}:9092 is not found" in str(answers.wait()[0][1])


def test_a_link_whose_pool_has_stopped_fails_its_requests(network: SocketServer) -> None:
    pool, answers = DiskPool(1), Answers()
    pool.stop()
    link = link_to(network, ("localhost", 9092), run=pool.submit)
    for _ in range(2):
        link.ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
    for _, error in answers.wait(2):
        assert "localhost:9092 is not looked up: the disk pool is stopped" in str(error)


def test_a_failing_callback_does_not_keep_other_requests_from_being_failed(network: SocketServer) -> None:
    looked_up: list[Any] = []
    link = link_to(network, ("localhost", 9092), run=lambda fn, *args: looked_up.append(args))
    answers = Answers()
    link.ask(METADATA, METADATA.Request(), lambda response, error: 1 // 0, timeout_s=LONG)
    link.ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
    link._failed("broker 9 is not alive")
    assert str(answers.wait()[0][1]) == "broker 9 is not alive"


def test_requests_one_after_the_other_share_a_timer(
    network: SocketServer, kafkapy_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[Any] = []
    call_at = Processor.call_at

    def counted(processor: Processor, when: float, fn: Any, *args: Any) -> None:
        timers.append(fn)
        call_at(processor, when, fn, *args)

    monkeypatch.setattr(Processor, "call_at", counted)
    link, answers = link_to(network, address_of(kafkapy_broker)), Answers()
    for number in range(20):
        link.ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
        answers.wait(number + 1)
    assert len(timers) <= 2, timers  # one for the connection, one for the first request
