"""A follower that is far behind fetches the next records while it appends the last ones, and never acknowledges records
that it has not appended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.record.batch import build
from kafkapy.replica import fetcher
from kafkapy.replica.fetch_ahead import position_after
from kafkapy.replica.fetch_session import FetchSettings
from kafkapy.replica.fetch_state import Position
from kafkapy.replica.fetched import FetchedPartition
from kafkapy.replica.truncation import EpochEnd
from tests.harness.stand_in_leader import LeaderOfLogs, StandInLeader
from tests.harness.waiting import eventually
from tests.log.support import Bench, batch
from tests.replica.follower_bench import FollowerBench

BIG = bytes(100_000)  # too large for an append on the network thread
ONE_BATCH = FetchSettings(partition_bytes=1, wait_ms=200, backoff_s=0.05, timeout_s=10.0)
ASKED = Position(leader_epoch=5, offset=10, last_epoch=3, log_start=0)


class AtPosition:
    position = ASKED


def encoded(base_offset: int, count: int, epoch: int = 3, **options: Any) -> bytes:
    return build([(1, None, b"v", [])] * count, base_offset=base_offset, leader_epoch=epoch, **options)


def after(records: bytes, *, high_watermark: int = 100, code: int = 0, diverging: EpochEnd | None = None) -> Any:
    fetched = FetchedPartition("t", 0, code, high_watermark, 0, diverging, memoryview(records))
    return position_after(AtPosition(), ASKED, fetched)  # type: ignore[arg-type]


def test_the_position_is_after_the_last_whole_batch() -> None:
    first, second = encoded(10, 3), encoded(13, 4, epoch=5)
    assert after(first) == ASKED._replace(offset=13)
    assert after(first + second) == ASKED._replace(offset=17, last_epoch=5)
    assert after(first + second[:-1]) == ASKED._replace(offset=13)
    assert after(first + second[:20]) == ASKED._replace(offset=13)


@pytest.mark.parametrize("high_watermark", [13, 12, 0, -1])
def test_nothing_is_claimed_at_or_above_the_high_watermark(high_watermark: int) -> None:
    assert after(encoded(10, 3), high_watermark=high_watermark) is None


def test_nothing_is_claimed_for_what_an_append_would_refuse_or_what_is_no_append() -> None:
    assert after(encoded(10, 3), code=1) is None
    assert after(encoded(10, 3), diverging=EpochEnd(2, 8)) is None
    assert after(encoded(10, 3, epoch=6)) is None
    assert after(encoded(10, 3, epoch=2)) is None
    assert after(encoded(7, 3)) is None
    assert after(b"") is None
    assert after(encoded(10, 3)[:-1]) is None
    of_format_1 = bytearray(encoded(10, 3))
    of_format_1[16] = 1
    assert after(bytes(of_format_1)) is None
    negative_length = bytearray(encoded(10, 3))
    negative_length[8] = 0xFF
    assert after(bytes(negative_length)) is None


def test_nothing_is_claimed_for_a_log_that_has_moved() -> None:
    state = AtPosition()
    state.position = ASKED._replace(offset=11)
    fetched = FetchedPartition("t", 0, 0, 100, 0, None, memoryview(encoded(10, 3)))
    assert position_after(state, ASKED, fetched) is None  # type: ignore[arg-type]


class Leader:
    """A stand-in leader of the partition t-0 with `count` committed batches of one large record each."""

    def __init__(self, directory: Path, count: int) -> None:
        self.log = Bench(directory).load()
        self.log.assign_leader_epoch(0)
        for _ in range(count):
            self.log.append([batch(BIG)], 0)
        self.log.advance_high_watermark(self.log.log_end_offset, 0)
        self.logs = LeaderOfLogs()
        self.logs.add(self.log, 0)
        self.server = StandInLeader(self.logs)

    def offsets(self) -> list[int]:
        """Return the fetch offsets in the requests so far, in order."""
        return [one.fetch_offset for asked in self.server.fetches for topic in asked.topics for one in topic.partitions]

    def close(self) -> None:
        self.logs.closed = True
        self.logs.notify()
        self.server.close()


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    made = Leader(tmp_path / "leader", 4)
    yield made
    made.close()


@pytest.fixture
def follower(tmp_path: Path, leader: Leader) -> Iterator[FollowerBench]:
    made = FollowerBench(tmp_path / "follower", leader.server.address, settings=ONE_BATCH)
    yield made
    made.close()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Return an event that every append of a follower waits for."""
    opened, take = threading.Event(), fetcher.take

    def held(*args: Any, **options: Any) -> Any:
        assert opened.wait(30)
        return take(*args, **options)

    monkeypatch.setattr(fetcher, "take", held)
    yield opened
    opened.set()


def caught_up(follower: FollowerBench, leader: Leader) -> bool:
    return follower.log().end[0] == leader.log.end[0]


def test_the_next_request_is_sent_while_the_response_is_appended(
    leader: Leader, follower: FollowerBench, gate: threading.Event
) -> None:
    follower.follow()
    leader.server.wait(lambda: leader.offsets() == [0, 1])
    assert follower.log().end[0] == 0
    gate.set()
    eventually(lambda: caught_up(follower, leader))
    leader.server.wait(lambda: leader.offsets() == [0, 1, 2, 3, 4])


def test_the_last_records_below_the_high_watermark_are_claimed_only_when_they_are_here(
    leader: Leader, follower: FollowerBench
) -> None:
    ends: dict[int, int] = {}
    answer = leader.logs.partition

    def noted(key: Any, asked: Any) -> Any:
        ends.setdefault(asked.fetch_offset, follower.log().end[0])
        return answer(key, asked)

    leader.logs.partition = noted  # type: ignore[method-assign]
    follower.follow()
    leader.server.wait(lambda: 4 in ends)
    assert ends[4] == 4


def test_after_a_failed_append_the_leader_is_told_the_real_end(
    leader: Leader, follower: FollowerBench, caplog: pytest.LogCaptureFixture
) -> None:
    answer, sent = leader.logs.partition, []

    def damaged(key: Any, asked: Any) -> Any:
        made = answer(key, asked)
        if asked.fetch_offset == 1 and 1 not in sent:
            made.records = made.records[:-1] + b"\x01"  # makes the CRC wrong
        sent.append(asked.fetch_offset)
        return made

    leader.logs.partition = damaged  # type: ignore[method-assign]
    follower.follow()
    eventually(lambda: leader.offsets() == [0, 1, 2, 1, 2, 3, 4])
    eventually(lambda: caught_up(follower, leader))
    assert "CRC" in caplog.text or "checksum" in caplog.text


def test_a_connection_that_is_lost_during_an_append_is_replaced_after_it(
    leader: Leader, follower: FollowerBench, gate: threading.Event
) -> None:
    follower.follow()
    leader.server.wait(lambda: leader.offsets() == [0, 1])
    leader.server.drop_connections()
    eventually(lambda: follower.fetching.state("t", 0) is not None)
    gate.set()
    eventually(lambda: caught_up(follower, leader))
    assert follower.state().ahead is None


def test_fetchers_are_replaced_only_when_the_append_of_the_last_response_has_ended(
    leader: Leader, follower: FollowerBench, gate: threading.Event
) -> None:
    follower.follow()
    leader.server.wait(lambda: leader.offsets() == [0, 1])
    follower.fetching.resize(3)
    gate.set()
    eventually(lambda: caught_up(follower, leader))
    assert follower.log().end[0] == 4


def test_a_new_role_during_an_append_begins_at_the_real_end(
    leader: Leader, follower: FollowerBench, gate: threading.Event
) -> None:
    follower.follow()
    leader.server.wait(lambda: leader.offsets() == [0, 1])
    leader.log.assign_leader_epoch(1)
    leader.logs.add(leader.log, 1)
    follower.follow(epoch=1)
    gate.set()
    eventually(lambda: caught_up(follower, leader))
    assert leader.offsets()[2] == 0
