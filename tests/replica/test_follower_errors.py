"""A failure of one partition, one response or one connection does not affect the others."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.errors import Errors
from kafkapy.log.partition_log import PartitionLog
from kafkapy.protocol.apis import FETCH, LIST_OFFSETS
from tests.harness.stand_in_leader import LeaderOfLogs, StandInLeader
from tests.harness.waiting import eventually
from tests.log.support import Bench, batch
from tests.replica.follower_bench import FollowerBench

TOPIC_ID = bytes(range(1, 17))
EPOCH = 5


class TwoLogs(LeaderOfLogs):
    """The leader of `bad-0` and `good-0`. `spoil` changes the responses for `bad-0`."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.spoil: Callable[[Any, Any], None] = lambda asked, answer: None
        for number, topic in enumerate(("bad", "good")):
            (directory / topic).mkdir(parents=True)
            bench = Bench(directory / topic)
            log = PartitionLog.load(bench.env, str(directory / topic / f"{topic}-0"), topic, 0, bench.config)
            log.assign_leader_epoch(EPOCH)
            self.add(log, EPOCH, bytes([number + 1]) * 16)
        self.produce("bad", b"first")
        self.produce("good", b"first")

    def partition(self, key: tuple[str, int], asked: Any) -> Any:
        answer = super().partition(key, asked)
        if key[0] == "bad":
            self.spoil(asked, answer)
        return answer

    def produce(self, topic: str, *values: bytes) -> None:
        log = self.logs[topic, 0]
        log.append([batch(*values)], EPOCH)
        log.advance_high_watermark(log.log_end_offset, EPOCH)
        self.notify()


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[TwoLogs]:
    made = TwoLogs(tmp_path / "leader")
    made.server = StandInLeader(made)  # type: ignore[attr-defined]
    yield made
    made.closed = True
    made.notify()
    made.server.close()  # type: ignore[attr-defined]


@pytest.fixture
def follower(tmp_path: Path, leader: Any) -> Iterator[FollowerBench]:
    bench = FollowerBench(tmp_path / "follower", leader.server.address)
    bench.settings = bench.settings._replace(wait_ms=50)
    yield bench
    bench.close()


def follow_both(follower: FollowerBench, leader: TwoLogs, epoch: int = EPOCH) -> None:
    for topic in ("bad", "good"):
        follower.follow(topic, epoch=epoch, topic_id=leader.ids[topic])


def is_copied(follower: FollowerBench, leader: TwoLogs, topic: str) -> bool:
    own, theirs = follower.log(topic), leader.logs[topic, 0]
    return own.end[0] == theirs.end[0] and own.high_watermark == theirs.high_watermark


def assert_good_goes_on(follower: FollowerBench, leader: TwoLogs) -> None:
    for _ in range(3):
        leader.produce("good", b"more")
        eventually(lambda: is_copied(follower, leader, "good"))


def assert_recovers(follower: FollowerBench, leader: TwoLogs) -> None:
    leader.spoil = lambda asked, answer: None
    leader.produce("bad", b"more")
    eventually(lambda: is_copied(follower, leader, "bad"))
    assert follower.state("bad").problem == ""


def wrong_crc(asked: Any, answer: Any) -> None:
    if answer.records:
        answer.records = answer.records[:-1] + bytes([answer.records[-1] ^ 1])


def cut_off(asked: Any, answer: Any) -> None:
    answer.records = answer.records[:-5]


def garbage(asked: Any, answer: Any) -> None:
    answer.records = b"\0" * 500


def later_epoch(asked: Any, answer: Any) -> None:
    if answer.records:
        records = bytearray(answer.records)
        records[12:16] = (EPOCH + 1).to_bytes(4)
        answer.records = bytes(records)


BAD_RECORDS = [wrong_crc, cut_off, garbage, later_epoch]


@pytest.mark.parametrize("spoil", BAD_RECORDS, ids=lambda one: one.__name__)
def test_bad_records_hold_up_only_their_partition(
    follower: FollowerBench, leader: TwoLogs, spoil: Any, caplog: pytest.LogCaptureFixture
) -> None:
    leader.spoil = spoil
    follow_both(follower, leader)
    eventually(lambda: follower.state("bad").problem)
    assert_good_goes_on(follower, leader)
    assert follower.log("bad").end[0] == 0
    assert follower.fetching.failed == 0
    said = [one.getMessage() for one in caplog.records if "bad-0" in one.getMessage()]
    assert len(said) == 1, said
    assert "offset 0 from broker 1" in said[0]
    assert_recovers(follower, leader)


def test_batches_before_a_bad_one_are_kept(follower: FollowerBench, leader: TwoLogs) -> None:
    leader.produce("bad", b"second")
    leader.spoil = wrong_crc
    follow_both(follower, leader)
    eventually(lambda: follower.state("bad").problem)
    assert follower.log("bad").end[0] == 1
    assert follower.log("bad").high_watermark <= 1
    assert_recovers(follower, leader)


def test_records_of_earlier_offsets_fail_the_partition_and_cut_nothing_off(
    follower: FollowerBench, leader: TwoLogs
) -> None:
    follow_both(follower, leader)
    eventually(lambda: is_copied(follower, leader, "bad"))
    first = bytes(leader.logs["bad", 0].read(0, 1 << 20, min_one=True, max_offset=1).region.read())  # type: ignore
    leader.spoil = lambda asked, answer: setattr(answer, "records", first)
    eventually(lambda: follower.fetching.failed == 1)
    assert follower.log("bad").end[0] == 1
    assert_good_goes_on(follower, leader)
    leader.spoil = lambda asked, answer: None
    leader.logs["bad", 0].assign_leader_epoch(EPOCH + 1)
    leader.leader_epochs["bad", 0] = EPOCH + 1
    follower.follow("bad", epoch=EPOCH + 1, topic_id=leader.ids["bad"])  # fetched again with a new role
    assert follower.fetching.failed == 0
    leader.notify()


@pytest.mark.parametrize(
    "code",
    [
        Errors.UNKNOWN_LEADER_EPOCH,
        Errors.NOT_LEADER_OR_FOLLOWER,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_ID,
        Errors.KAFKA_STORAGE_ERROR,
        Errors.CORRUPT_MESSAGE,
        Errors.UNKNOWN_SERVER_ERROR,
    ],
)
def test_an_error_of_a_partition_holds_it_alone_for_the_backoff(
    follower: FollowerBench, leader: Any, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    refused: list[Any] = []

    def refuse(asked: Any, answer: Any) -> None:
        refused.append(asked)
        answer.error_code, answer.records, answer.high_watermark = code, None, -1

    leader.spoil = refuse
    follow_both(follower, leader)
    eventually(lambda: len(refused) > 6)  # at first, the leader may not have its role yet
    assert_good_goes_on(follower, leader)
    bad = leader.ids["bad"]

    def forgotten() -> list[Any]:
        topics = [topic for fetch in leader.server.fetches for topic in fetch.forgotten_topics_data]
        return [topic.partitions for topic in topics if topic.topic_id == bad]

    eventually(lambda: forgotten()[:2] == [[0], [0]])
    assert sum("bad-0" in one.getMessage() for one in caplog.records) == 1
    assert_recovers(follower, leader)


@pytest.mark.parametrize("code", [Errors.UNKNOWN_LEADER_EPOCH, Errors.NOT_LEADER_OR_FOLLOWER, Errors.UNKNOWN_TOPIC_ID])
def test_a_leader_that_does_not_have_its_role_yet_is_asked_again_before_the_backoff(
    follower: FollowerBench, leader: Any, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    follower.settings = follower.settings._replace(backoff_s=1000.0)
    refused: list[Any] = []

    def refuse(asked: Any, answer: Any) -> None:
        if len(refused) < 3:
            refused.append(asked)
            answer.error_code, answer.records, answer.high_watermark = code, None, -1

    leader.spoil = refuse
    follow_both(follower, leader)
    eventually(lambda: len(refused) == 3)
    assert_recovers(follower, leader)
    assert not [one for one in caplog.records if "bad-0" in one.getMessage()]


def test_a_fenced_partition_waits_for_its_next_role(follower: FollowerBench, leader: Any) -> None:
    leader.leader_epochs["bad", 0] = EPOCH + 1
    follow_both(follower, leader)
    eventually(lambda: follower.fetching.failed == 1)
    assert_good_goes_on(follower, leader)
    assert follower.log("bad").end[0] == 0
    follower.follow("bad", epoch=EPOCH + 1, topic_id=leader.ids["bad"])
    eventually(lambda: is_copied(follower, leader, "bad"))
    assert follower.fetching.failed == 0


def test_partitions_that_were_not_requested_are_ignored(
    follower: FollowerBench, leader: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answers = leader.server.answer
    strange = FETCH.Response.Responses(
        topic_id=b"?" * 16, partitions=[FETCH.Response.Responses.Partitions(partition_index=3, records=b"")]
    )

    def more(api: Any, version: int, request: Any) -> Any:
        response = answers(api, version, request)
        if api is FETCH and request.session_epoch == 2:
            response.responses.append(strange)
        return response

    leader.server.answer = more
    follow_both(follower, leader)
    eventually(lambda: "not asked for" in caplog.text)
    assert_good_goes_on(follower, leader)
    assert_recovers(follower, leader)


@pytest.mark.parametrize("end", ["closes", "stops inside a frame", "sends garbage"])
def test_a_leader_that_stops_inside_a_response_is_asked_again(
    follower: FollowerBench, leader: Any, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers, done = leader.server.answer, threading.Event()

    def once(api: Any, version: int, request: Any) -> Any:
        if done.is_set() or api is not FETCH:
            return answers(api, version, request)
        done.set()
        if end == "closes":
            return None
        if end == "stops inside a frame":
            threading.Timer(0.05, leader.server.drop_connections).start()
            return (1000).to_bytes(4) + b"\0" * 500
        return (100).to_bytes(4) + b"\xff" * 100

    leader.server.answer = once
    with caplog.at_level(logging.INFO):
        follow_both(follower, leader)
        eventually(lambda: is_copied(follower, leader, "bad") and is_copied(follower, leader, "good"))
    assert "fetches wait: the connection to broker 1 was lost; partitions: " in caplog.text
    assert "fetches from broker 1 continue; partitions: 2" in caplog.text


def test_a_leader_that_is_not_alive_is_fetched_from_when_it_is(leader: Any, follower: FollowerBench) -> None:
    address, follower.address = follower.address, None
    follow_both(follower, leader)
    assert not leader.server.requests
    follower.address = address
    eventually(lambda: is_copied(follower, leader, "bad") and is_copied(follower, leader, "good"))


def test_a_session_that_the_leader_always_refuses_is_not_asked_for_without_pause(
    follower: FollowerBench, leader: Any
) -> None:
    leader.server.answer = lambda api, version, request: FETCH.Response(error_code=Errors.UNKNOWN_SERVER_ERROR)
    follower.settings = follower.settings._replace(backoff_s=0.3)
    follow_both(follower, leader)
    leader.server.wait(lambda: len(leader.server.fetches) == 2)
    first, second = leader.server.fetches
    assert (first.session_epoch, second.session_epoch) == (0, 0)
    leader.server.answer = leader
    eventually(lambda: is_copied(follower, leader, "bad"))


def test_a_disk_that_is_full_for_a_while_only_delays(follower: FollowerBench, leader: Any) -> None:
    follow_both(follower, leader)
    eventually(lambda: is_copied(follower, leader, "bad"))
    files = follower.log("bad").env.files
    written, full = files.pwritev, True

    def pwritev(file: Any, buffers: Any, position: int) -> int:
        if full and "bad-0" in str(file):
            raise OSError(errno.ENOSPC, "full")
        return written(file, buffers, position)

    files.pwritev = pwritev  # type: ignore[method-assign]
    leader.produce("bad", b"more")
    eventually(lambda: follower.state("bad").problem)
    full = False
    eventually(lambda: is_copied(follower, leader, "bad"))


def out_of_range(asked: Any, answer: Any) -> None:
    answer.error_code, answer.records, answer.high_watermark = Errors.OFFSET_OUT_OF_RANGE, None, -1


def test_an_offset_that_is_refused_although_the_leader_has_it_is_not_asked_for_without_pause(
    follower: FollowerBench, leader: Any
) -> None:
    follower.settings = follower.settings._replace(backoff_s=1000.0)
    leader.spoil = out_of_range
    follow_both(follower, leader)

    def lookups() -> list[int]:
        found = [one for api, _, one in list(leader.server.requests) if api is LIST_OFFSETS]
        return [one.topics[0].partitions[0].timestamp for one in found]

    eventually(lambda: lookups()[:2] == [-1, -2])
    assert_good_goes_on(follower, leader)
    assert lookups() == [-1, -2]


def test_an_offset_that_is_refused_for_a_while_is_fetched_after_it(follower: FollowerBench, leader: Any) -> None:
    leader.spoil = out_of_range
    follow_both(follower, leader)
    eventually(lambda: "refused this offset" in follower.state("bad").problem)
    assert_good_goes_on(follower, leader)
    assert_recovers(follower, leader)


def test_a_partition_whose_log_is_closed_is_not_fetched_any_more(follower: FollowerBench, leader: Any) -> None:
    follow_both(follower, leader)
    eventually(lambda: is_copied(follower, leader, "bad"))
    follower.log("bad").close()
    leader.produce("bad", b"more")
    eventually(lambda: follower.fetching.failed == 1)
    assert_good_goes_on(follower, leader)
    assert follower.log("bad").end[0] == 1


def test_a_leader_that_refuses_this_broker_is_one_line_until_it_does_not(
    follower: FollowerBench, leader: TwoLogs, caplog: pytest.LogCaptureFixture
) -> None:
    asked_for: list[Any] = []

    def deny(asked: Any, answer: Any) -> None:
        asked_for.append(asked)
        answer.error_code, answer.records = Errors.TOPIC_AUTHORIZATION_FAILED, b""

    def said() -> list[str]:
        return [one.getMessage() for one in caplog.records if "ClusterAction" in one.getMessage()]

    leader.spoil = deny
    follower.follow("bad", epoch=EPOCH, topic_id=leader.ids["bad"])
    eventually(lambda: len(asked_for) > 2)
    assert len(said()) == 1
    assert said()[0].startswith("broker 1 refuses all fetches of this broker")
    assert_recovers(follower, leader)
    leader.spoil = deny
    leader.produce("bad", b"more")
    eventually(lambda: len(said()) == 2)
    assert_recovers(follower, leader)
