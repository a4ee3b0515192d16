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
        raise ConnectionFailed("nobody is there")

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
