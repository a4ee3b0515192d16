"""Leaders that cannot be reached."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence

import pytest

from kafkapy.client.errors import ConnectionFailed
from kafkapy.client.original.consuming.fetch_wire import Address, Fetched
from kafkapy.client.original.consuming.fetchers import Fetchers
from kafkapy.client.original.consuming.settings import ConsumerSettings
from kafkapy.client.original.consuming.streams import OwnedPartition, Stream
from tests.harness.thread_limit import thread_limit


class Unreachable:
    """The connection to a partition's leader that cannot be reached."""

    def fetch(self, partitions: Sequence[OwnedPartition], max_wait_ms: int) -> list[Fetched]:
        raise ConnectionFailed("connection refused")

    def close(self) -> None:
        pass


class Brokers:
    def __init__(self, asked: Callable[[], None]) -> None:
        self._asked = asked

    def look_up(self, partitions: Iterable[OwnedPartition]) -> None:
        self._asked()

    def leader(self, owned: OwnedPartition) -> Address:
        return ("there", 9092)

    def edge(self, owned: OwnedPartition, at: int) -> int:
        return 0

    def wire(self, address: Address) -> Unreachable:
        return Unreachable()

    def close(self) -> None:
        pass


def test_a_leader_that_cannot_be_reached_is_tried_again_after_the_back_off() -> None:
    asked = threading.Semaphore(0)
    fetchers = Fetchers(ConsumerSettings("zk", "g", refresh_leader_backoff_ms=3_600_000), Brokers(asked.release))
    stream = Stream()
    fetchers.start([OwnedPartition(("t", "0"), stream, 0)])
    assert asked.acquire(timeout=10)
    assert not asked.acquire(timeout=0.3)
    fetchers.close()


def test_an_unreachable_leader_is_retried_without_end() -> None:
    asked = threading.Semaphore(0)
    fetchers = Fetchers(ConsumerSettings("zk", "g", refresh_leader_backoff_ms=1), Brokers(asked.release))
    fetchers.start([OwnedPartition(("t", "0"), Stream(), 0)])
    for _ in range(5):
        assert asked.acquire(timeout=10)
    fetchers.close()


def test_a_cluster_that_cannot_be_reached_is_logged_once_and_again_when_it_can(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    asked, fetching, can_be_reached = threading.Semaphore(0), threading.Event(), threading.Event()

    def look_up() -> None:
        asked.release()
        if not can_be_reached.is_set():
            raise ConnectionFailed("connection refused")

    monkeypatch.setattr(Unreachable, "fetch", lambda *_: fetching.set() or [])
    fetchers = Fetchers(ConsumerSettings("zk", "g", refresh_leader_backoff_ms=1), Brokers(look_up))
    fetchers.start([OwnedPartition(("t", "0"), Stream(), 0)])
    for _ in range(5):
        assert asked.acquire(timeout=10)
    can_be_reached.set()
    assert fetching.wait(10)
    fetchers.close()
    assert [record.getMessage() for record in caplog.records if record.name == Fetchers.__module__] == [
        "g: the leaders of partitions cannot be looked up: connection refused",
        "g: over: the leaders of partitions cannot be looked up",
    ]


def test_offsets_that_cannot_be_looked_up_are_logged_once_for_all_partitions_and_again_when_they_can(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    asked, fetching, can_be_reached = threading.Semaphore(0), threading.Event(), threading.Event()
    is_reached = False

    def look_up() -> None:
        nonlocal is_reached
        is_reached = can_be_reached.is_set()  # the same for all partitions of a retry
        asked.release()

    def edge(brokers: Brokers, owned: OwnedPartition, at: int) -> int:
        if not is_reached:
            raise ConnectionFailed("connection refused")
        return 0

    monkeypatch.setattr(Brokers, "edge", edge)
    monkeypatch.setattr(Unreachable, "fetch", lambda *_: fetching.set() or [])
    fetchers = Fetchers(ConsumerSettings("zk", "g", refresh_leader_backoff_ms=1), Brokers(look_up))
    stream = Stream()
    fetchers.start([OwnedPartition(("t", number), stream, None) for number in "012"])
    for _ in range(5):
        assert asked.acquire(timeout=10)
    can_be_reached.set()
    assert fetching.wait(10)
    fetchers.close()
    assert [record.getMessage() for record in caplog.records if record.name == Fetchers.__module__] == [
        "g: the offsets to start at cannot be looked up: connection refused",
        "g: over: the offsets to start at cannot be looked up",
    ]


def test_a_fetcher_whose_thread_cannot_be_started_is_started_later(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    asked = threading.Semaphore(0)
    fetchers = Fetchers(ConsumerSettings("zk", "g", refresh_leader_backoff_ms=1), Brokers(asked.release))
    fetching = threading.Event()
    with thread_limit():
        fetchers.start([OwnedPartition(("t", number), Stream(), 0) for number in "012"])
        for _ in range(5):
            assert asked.acquire(timeout=10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Unreachable, "fetch", lambda *_: fetching.set() or [])
        assert fetching.wait(10)
        fetchers.close()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "some partitions are not fetched yet" in line
    assert "can't start new thread" in line
