"""Limits of new connections per second: of the broker, of a listener and of an address."""

from __future__ import annotations

import socket
from itertools import pairwise

import pytest

from kafkapy.network import connection_rates
from kafkapy.network.connection_rates import ConnectionRates
from kafkapy.network.settings import UNLIMITED, Listener, NetworkSettings
from kafkapy.network.throttled import ThrottledConnections
from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.rates import Windows

from .conftest import Running, Serve, until

CLIENTS, BROKERS = "CLIENTS", "BROKERS"
TWO = (Listener(CLIENTS, "127.0.0.1", 0), Listener(BROKERS, "127.0.0.1", 0))
# Two samples of a second: a rate is computed over at least one second, so a limit of 1 is exceeded by the second
# connection within a second.
SECOND = Windows(2, 1000)


def rates(protected: str | None = None, **settings) -> ConnectionRates:
    settings.setdefault("quota_windows", SECOND)
    return ConnectionRates(NetworkSettings(**settings), (CLIENTS, BROKERS), protected)


def test_a_connection_above_the_rate_waits_until_the_rate_is_within_the_limit() -> None:
    found = rates(max_connection_creation_rate=4)
    # The fifth within a second: 5 connections over 1000 + 250 ms are 4 a second. The sixth: 6 over 1000 + 500.
    assert [found.delay_ms(CLIENTS, 0) for _ in range(6)] == [0, 0, 0, 0, 250, 500]


def test_a_delay_is_at_most_one_sample() -> None:
    assert [rates(max_connection_creation_rate=0).delay_ms(CLIENTS, 0) for _ in range(2)] == [1000, 1000]
    found = rates(max_connection_creation_rate=1)
    assert [found.delay_ms(CLIENTS, 0) for _ in range(4)] == [0, 1000, 1000, 1000]


def test_the_longer_delay_of_broker_and_listener_counts() -> None:
    found = rates(max_connection_creation_rate=2, max_connection_creation_rate_per_listener={CLIENTS: 1, BROKERS: 5})
    assert found.delay_ms(CLIENTS, 0) == 0
    assert found.delay_ms(CLIENTS, 0) == 1000
    assert found.delay_ms(BROKERS, 0) == 500  # the broker's third connection


def test_the_brokers_limit_does_not_hold_for_the_inter_broker_listener() -> None:
    found = rates(BROKERS, max_connection_creation_rate=1, max_connection_creation_rate_per_listener={BROKERS: 2})
    assert [found.delay_ms(BROKERS, 0) for _ in range(3)] == [0, 0, 500]
    assert found.delay_ms(CLIENTS, 0) == 0
    assert found.of_broker(0) == 1


def test_a_connection_of_an_address_above_its_rate_counts_nowhere() -> None:
    found = rates(max_connection_creation_rate=10)
    found.set_address_limits(None, {"10.0.0.1": 1})
    for expected in (0, 1000, 1000):
        assert found.delay_ms(CLIENTS, 0) == 0
        assert found.address_delay_ms(CLIENTS, "10.0.0.1", 0) == expected
    assert found.of_broker(0) == found.of_listener(CLIENTS, 0) == 1
    assert found.of_addresses(0, 5) == [("10.0.0.1", 1.0)]
    assert found.address_delay_ms(CLIENTS, "10.0.0.2", 0) == 0
    assert found.address_delay_ms(CLIENTS, "10.0.0.1", 2001) == 0


def test_a_default_rate_holds_for_each_address_that_has_none() -> None:
    found = rates()
    found.set_address_limits(1, {"10.0.0.1": 2, "10.0.0.2": UNLIMITED})
    delays = {
        address: [found.address_delay_ms(CLIENTS, address, 0) for _ in range(3)]
        for address in ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
    }
    assert delays == {
        "10.0.0.1": [0, 0, 500],
        "10.0.0.2": [0, 0, 0],
        "10.0.0.3": [0, 1000, 1000],
        "10.0.0.4": [0, 1000, 1000],
    }
    found.set_address_limits(None, {})
    assert found.address_delay_ms(CLIENTS, "10.0.0.3", 0) == 0
    assert found.of_addresses(0, 5) == []


def test_few_addresses_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_rates, "MOST_ADDRESSES", 3)
    found = rates()
    found.set_address_limits(1, {})
    for last in range(10):
        assert found.address_delay_ms(CLIENTS, f"10.0.0.{last}", 0) == 0
    assert sorted(address for address, _ in found.of_addresses(0, 99)) == ["10.0.0.7", "10.0.0.8", "10.0.0.9"]
    assert found.address_delay_ms(CLIENTS, "10.0.1.1", 5000) == 0
    assert [address for address, _ in found.of_addresses(5000, 99)] == ["10.0.1.1"]


def test_the_delay_of_one_listener_does_not_stop_another(serve: Serve) -> None:
    clock = ManualClock()
    running = serve(
        listeners=TWO,
        clock=clock,
        quota_windows=SECOND,
        max_connection_creation_rate_per_listener={CLIENTS: 1},
        connections_max_idle_ms=-1,
    )
    assert running.connect(CLIENTS).is_open()
    waiting, next_one = running.connect(CLIENTS), running.connect(CLIENTS)
    waiting.send(b"hello")
    next_one.send(b"hello")
    until(lambda: running.count("network_connections_delayed") == 1)
    for _ in range(5):
        assert running.connect(BROKERS).is_open()
    assert running.count("network_connections") == 6
    clock.advance(1)
    assert waiting.frame() == b"hello"
    until(lambda: running.count("network_connections_delayed") == 2)
    clock.advance(1)
    assert next_one.frame() == b"hello"
    assert running.count("network_connection_delay_seconds") == 2


def test_a_connection_that_has_waited_also_needs_room(serve: Serve) -> None:
    clock = ManualClock()
    running = serve(
        listeners=TWO,
        clock=clock,
        quota_windows=SECOND,
        max_connections=2,
        max_connection_creation_rate_per_listener={CLIENTS: 1},
        connections_max_idle_ms=-1,
    )
    assert running.connect(CLIENTS).is_open()
    waiting = running.connect(CLIENTS)
    waiting.send(b"hello")
    until(lambda: running.count("network_connections_delayed") == 1)
    other = running.connect(BROKERS)
    assert other.is_open()
    clock.advance(1)
    assert other.is_open()
    assert running.server.connections == 2
    other.close()
    assert waiting.frame() == b"hello"


def throttling(serve: Serve, clock: ManualClock) -> Running:
    running = serve(clock=clock, quota_windows=SECOND, connections_max_idle_ms=-1)
    running.server.limits.rates.set_address_limits(1, {})
    assert running.connect().is_open()
    return running


def test_an_address_that_connects_too_often_is_closed_later(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = ManualClock()
    running = throttling(serve, clock)
    flood = [running.connect() for _ in range(50)]
    until(lambda: running.count("network_connections_throttled") == 50)
    assert running.server.connections == 1
    assert len([record for record in caplog.records if "refused a connection" in record.message]) == 3
    for client in flood:
        client.sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.sock.recv(1)
        client.sock.setblocking(True)
    clock.advance(1)
    assert all(client.is_closed() for client in flood)
    clock.advance(2)
    assert running.connect().is_open()
    assert running.count("network_connection_throttle_seconds") == 50


def test_a_stop_closes_the_connections_that_wait(serve: Serve) -> None:
    running = throttling(serve, ManualClock())
    throttled = running.connect()
    until(lambda: running.count("network_connections_throttled") == 1)
    running.server.stop()
    assert throttled.is_closed()


def test_of_too_many_throttled_connections_the_next_to_be_closed_is_closed_at_once() -> None:
    pairs = [socket.socketpair() for _ in range(4)]
    throttled = ThrottledConnections(most=2)
    for (sock, _), until_ms in zip(pairs, (40, 10, 30, 20), strict=True):
        throttled.add(sock, until_ms)
    assert [sock.fileno() >= 0 for sock, _ in pairs] == [True, False, True, False]
    assert throttled.close_due(30) == 40
    assert [sock.fileno() >= 0 for sock, _ in pairs] == [True, False, False, False]
    throttled.close_all()
    assert throttled.close_due(0) is None
    for sock, peer in pairs:
        assert sock.fileno() < 0
        peer.close()


def test_the_rates_of_many_connections_approach_the_limit() -> None:
    """A client that connects again as soon as it may is let in at the limit's rate, after the first burst."""
    found = rates(max_connection_creation_rate=20, quota_windows=Windows())
    now, served = 0, []
    for _ in range(2000):
        now += found.delay_ms(CLIENTS, now)
        served.append(now)
    assert served[199] == 0  # the connections of ten seconds at once
    assert served[-1] == pytest.approx(2000 / 20 * 1000, rel=0.02)
    assert all(earlier <= later for earlier, later in pairwise(served))
