"""Requests over kafkapy.slow.request.ms are counted by principal and logged."""

from __future__ import annotations

import pytest

from kafkapy.network.connection import ANONYMOUS
from kafkapy.network.replies import NO_REPLY, Pending
from kafkapy.protocol.apis import CREATE_TOPICS, FETCH
from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.counters import Registry
from kafkapy.server.api_table import TABLE
from kafkapy.server.call import Call
from kafkapy.server.metrics import slow_requests
from kafkapy.server.metrics.slow_requests import METRICS, OTHERS, SlowRequests
from tests.harness.wire import Wire
from tests.server.requests import batch, fetch_request, make_topic, produce, start_broker


class FakeProcessor:
    def post_completion(self, connection, pending) -> None:
        pass


class FakeConnection:
    """A connection with only the attributes that `Call` and `Pending` need."""

    def __init__(self, principal: str = ANONYMOUS) -> None:
        self.principal = principal
        self.processor = FakeProcessor()
        self.who: dict[str, object] = {}


class Watched:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.registry = Registry()
        self.slow = SlowRequests(self.registry, self.clock, 0.5)

    def call(self, api, connection: FakeConnection) -> Call:
        return Call(TABLE.find(api.key), 0, 1, "client", connection, None)

    def counts(self) -> dict[str, float]:
        return {labels[0]: value for labels, value in self.registry.read()[METRICS["slow_requests"]]}


def test_the_time_in_the_handler_and_until_the_response_is_ready_counts() -> None:
    watched = Watched()
    connection = FakeConnection("User:alice")
    for in_handler, pending_s in ((0.4, None), (0.6, None), (0.1, 0.3), (0.1, 0.5), (0.6, 0.1)):
        call = watched.call(CREATE_TOPICS, connection)
        started = watched.slow.clock()
        watched.clock.advance(in_handler)
        reply = NO_REPLY if pending_s is None else Pending(connection)
        watched.slow.watch([call], started, reply)
        if pending_s is not None:
            watched.clock.advance(pending_s)
            assert reply.complete(NO_REPLY)
    assert watched.counts() == {"User:alice": 3}


def test_waiting_for_records_does_not_count() -> None:
    watched = Watched()
    connection = FakeConnection()
    pending = Pending(connection)
    watched.slow.watch([watched.call(FETCH, connection)], watched.slow.clock(), pending)
    watched.clock.advance(5)
    assert pending.complete(NO_REPLY)
    assert watched.counts() == {}


def test_few_principals_are_told_apart(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(slow_requests, "MOST_PRINCIPALS", 2)
    watched = Watched()
    for number in range(100):
        call = watched.call(CREATE_TOPICS, FakeConnection(f"User:{number % 50}"))
        watched.slow.watch([call, call], watched.slow.clock() - 1, NO_REPLY)
    assert watched.counts() == {"User:0": 4, "User:1": 4, OTHERS: 192}
    assert len(caplog.records) == 20
    assert caplog.messages[1] == "a request CreateTopics of User:1 with the client id 'client' took 1000 ms"


@pytest.mark.parametrize("slow_ms", ["0", "600000"])
def test_a_broker_counts_no_fast_requests(tmp_path, slow_ms: str) -> None:
    server = start_broker(tmp_path, kafkapy_slow_request_ms=slow_ms)
    try:
        with Wire(server.bootstrap_servers) as wire:
            make_topic(wire, "t")
            produce(wire, "t", batch(b"value"))
            wire.call(FETCH, 12, fetch_request("t"))
        slow = server.services.meters.slow
        assert (slow is None) == (slow_ms == "0")
        assert server.services.counters.read().get(METRICS["slow_requests"], []) == []
    finally:
        server.stop()


def test_a_broker_counts_slow_requests(tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    server = start_broker(tmp_path)
    try:
        server.services.meters.slow.longest_s = 0.0
        with Wire(server.bootstrap_servers) as wire:
            make_topic(wire, "t")
            produce(wire, "t", batch(b"value"))
        ((labels, count),) = server.services.counters.read()[METRICS["slow_requests"]]
        assert labels == (ANONYMOUS,)
        assert count >= 2
        assert any("a request Produce of User:ANONYMOUS" in line for line in caplog.messages)
    finally:
        server.stop()
