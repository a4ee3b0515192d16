"""Consumers that wait for the same records share one read of the log while its result is still current."""

from types import SimpleNamespace

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.record.file_region import FileRegion
from kafkapy.replica.fetch import FetchPlan
from kafkapy.replica.hosted_partition import READ_COMMITTED, READ_UNCOMMITTED
from kafkapy.replica.partition import Partition
from kafkapy.replica.shared_read import MOST_BYTES, SharedRead
from kafkapy.replica.stall import StallMonitor
from tests.harness.appends import AtOnce, append_to
from tests.log.support import Bench, idempotent


@pytest.fixture
def partition(tmp_path):
    log = Bench(tmp_path).load()
    partition = Partition(
        log, broker_id=0, leader_epoch=0, append_pool=AtOnce(), stall=StallMonitor(9.0), on_change=lambda _: None
    )
    append_to(partition, [idempotent("first", producer_id=1)])
    yield partition
    log.close()


def read(partition, shared, offset=0, *, max_bytes=1 << 20, isolation=READ_UNCOMMITTED, epoch=-1):
    asked = SimpleNamespace(fetch_offset=offset, max_bytes=max_bytes, current_leader_epoch=epoch, last_fetched_epoch=-1)
    plan = FetchPlan([(partition, asked)], min_bytes=1, max_bytes=1 << 20, isolation=isolation)
    ((result,), _, _) = plan.read(blocking=False, shared=shared)
    return result


def test_the_same_request_gets_the_same_result_with_the_bytes_of_the_file(partition):
    shared = SharedRead()
    first, result = read(partition, shared), read(partition, shared)
    assert type(first.records) is FileRegion  # not shared yet: maybe no other consumer asks
    assert read(partition, shared) is result
    assert result.records == read(partition, None).records.read()
    assert result.records.length == len(result.records)


@pytest.mark.parametrize(
    "other", [{"offset": 1}, {"max_bytes": 1000}, {"isolation": READ_COMMITTED}, {"epoch": 0}], ids=str
)
def test_another_request_gets_a_result_of_its_own(partition, other):
    shared = SharedRead()
    read(partition, shared)
    result = read(partition, shared)
    for _ in range(3):
        assert read(partition, shared, **other) is not result


def test_consumers_of_a_busy_and_an_idle_partition_share_the_records_of_the_busy_one(partition, tmp_path):
    (tmp_path / "idle").mkdir()
    log = Bench(tmp_path / "idle").load()
    idle = Partition(
        log, broker_id=0, leader_epoch=0, append_pool=AtOnce(), stall=StallMonitor(9.0), on_change=lambda _: None
    )
    shared = SharedRead()
    asked = SimpleNamespace(fetch_offset=0, max_bytes=1 << 20, current_leader_epoch=-1, last_fetched_epoch=-1)
    results = []
    for _ in range(3):
        wanted = [(partition, asked), (idle, asked)]
        plan = FetchPlan(wanted, min_bytes=1, max_bytes=1 << 20, isolation=READ_UNCOMMITTED)
        results.append(plan.read(blocking=False, shared=shared)[0])
    assert results[2][0] is results[1][0]
    assert [result.records for result in (results[2][1], results[1][1])] == [None, None]
    log.close()


def test_an_append_ends_the_sharing(partition):
    shared = SharedRead()
    read(partition, shared)
    before = read(partition, shared)
    append_to(partition, [idempotent("second", producer_id=2)])
    after = read(partition, shared)
    assert after.high_watermark == 2
    assert after.records.read().startswith(before.records)
    assert after.records.length > before.records.length


def test_deleted_records_are_not_returned_again(partition):
    append_to(partition, [idempotent("second", producer_id=2)])
    shared = SharedRead()
    read(partition, shared)
    read(partition, shared)
    partition.delete_records(1)
    assert read(partition, shared).error_code == Errors.OFFSET_OUT_OF_RANGE


def test_a_partition_that_is_gone_returns_its_error(partition):
    shared = SharedRead()
    read(partition, shared)
    read(partition, shared)
    partition.remove(KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "another broker leads"))
    assert read(partition, shared).error_code == Errors.NOT_LEADER_OR_FOLLOWER


def test_large_records_stay_in_the_file(partition):
    append_to(partition, [idempotent("x" * MOST_BYTES, producer_id=2)])
    shared = SharedRead()
    for _ in range(3):
        assert type(read(partition, shared).records) is FileRegion
