"""The fetcher of raw batches, with brokers that answer correctly and with brokers that do not."""

import pickle
import time

import pytest

from kafkapy.client.cluster import Cluster
from kafkapy.client.fetching import batch_fetcher
from kafkapy.client.fetching.batch_fetcher import BatchFetcher, NothingFetched, OffsetOutOfRange
from kafkapy.client.fetching.engine import NAMES_UNTIL
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol import apis
from kafkapy.record.batch import build, records_of
from kafkapy.record.legacy import iter_entries

FETCH = apis.FETCH.Response
PARTITION = FETCH.Responses.Partitions


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(batch_fetcher, "BACKOFF_S", 0.0)


def batch(base_offset, count=2, size=10):
    return build([(1000, None, bytes(size), ())] * count, base_offset=base_offset)


class Log:
    """A partition of a fake broker: batches, each with the offset after its last record.

    A Fetch is answered with as many batches as fit into `fetch_bytes`, at least one. `script` has the first responses:
    error codes, responses, or the answers that the fake broker knows.
    """

    def __init__(self, broker, batches, *, start=0, end=None):
        self.batches = [(header.last_offset + 1, one) for one in batches for header in iter_entries(one)]
        self.start = start
        self.end = self.batches[-1][0] if end is None else end
        self.local_start = start  # earlier records are in tiered storage
        self.script = []
        self.more = {}
        broker.topics["t"] = [1]
        broker.answers[apis.FETCH.key] = self.fetch
        broker.answers[apis.LIST_OFFSETS.key] = self.offsets

    def fetch(self, request):
        asked = request.topics[0].partitions[0]
        if self.script:
            step = self.script.pop(0)
            if not isinstance(step, int):
                return step
            return answer(error_code=step)
        if not self.start <= asked.fetch_offset <= self.end:
            return answer(error_code=Errors.OFFSET_OUT_OF_RANGE)
        data = b""
        for after, one in self.batches:
            if after > asked.fetch_offset:
                if data and len(data) + len(one) > asked.partition_max_bytes:
                    break
                data += one
        return answer(high_watermark=self.end, records=data, **self.more)

    def offsets(self, request):
        shape = apis.LIST_OFFSETS.Response.Topics
        asked = request.topics[0].partitions[0]
        offset = {-2: self.start, -4: self.local_start}.get(asked.timestamp, self.end)
        return apis.LIST_OFFSETS.Response(
            topics=[shape(name="t", partitions=[shape.Partitions(partition_index=0, offset=offset)])]
        )


def answer(**fields):
    partition = PARTITION(**{"partition_index": 0, "records": None, **fields})
    return FETCH(responses=[FETCH.Responses(topic="t", partitions=[partition])])


def offsets_of(data):
    return [record.offset for header in iter_entries(data) for record in records_of(data, header)]


def read(broker, start, end, **more):
    with Cluster(broker.address, timeout_s=5) as cluster, BatchFetcher(cluster, "t", 0, start, end, **more) as batches:
        return [offset for fetched in batches for offset in offsets_of(fetched.data)]


def fetched_at(broker):
    return [request.topics[0].partitions[0].fetch_offset for request in broker.requests("Fetch")]


def test_all_batches_up_to_the_end_come_once_and_nothing_is_asked_for_behind_it(fake_broker):
    Log(fake_broker, [batch(0), batch(2), batch(4), batch(6)])
    assert read(fake_broker, 0, 6, fetch_bytes=len(batch(0)) * 2) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert fetched_at(fake_broker) == [0, 4]
    assert {version for name, version, _ in fake_broker.seen if name == "Fetch"} == {NAMES_UNTIL}


def test_the_next_fetch_is_sent_before_a_response_is_returned(fake_broker):
    Log(fake_broker, [batch(0), batch(2)])
    with Cluster(fake_broker.address) as cluster, BatchFetcher(cluster, "t", 0, 0, 4, fetch_bytes=1) as batches:
        coming = iter(batches)
        next(coming)
        deadline = time.monotonic() + 10
        while fetched_at(fake_broker) != [0, 2] and time.monotonic() < deadline:
            time.sleep(0.001)
        assert fetched_at(fake_broker) == [0, 2]


def test_connections_are_used_again_unless_an_answer_is_still_to_come_on_them(fake_broker):
    Log(fake_broker, [batch(0), batch(2)])
    with Cluster(fake_broker.address) as cluster:
        for _ in range(3):
            with BatchFetcher(cluster, "t", 0, 0, 4) as batches:
                assert sum(1 for _ in batches) == 1
        before = len(fake_broker.requests("ApiVersions"))
        assert before == 2
        with BatchFetcher(cluster, "t", 0, 0, 4, fetch_bytes=1) as batches:
            coming = iter(batches)
            next(coming)
        with BatchFetcher(cluster, "t", 0, 0, 4) as batches:
            assert [offsets_of(fetched.data) for fetched in batches] == [[0, 1, 2, 3]]
        assert len(fake_broker.requests("ApiVersions")) == before + 1


def test_a_batch_larger_than_the_fetch_comes_whole(fake_broker):
    Log(fake_broker, [batch(0), batch(2, size=5000), batch(4)])
    assert read(fake_broker, 0, 6, fetch_bytes=200) == [0, 1, 2, 3, 4, 5]


def test_where_a_broker_cuts_even_the_first_batch_more_is_asked_for(fake_broker):
    large = batch(0, size=5000)
    log = Log(fake_broker, [large])
    log.script = [answer(high_watermark=2, records=large[:300])]
    assert read(fake_broker, 0, 2, fetch_bytes=300) == [0, 1]
    sizes = [request.topics[0].partitions[0].partition_max_bytes for request in fake_broker.requests("Fetch")]
    assert sizes == [300, len(large)]


@pytest.mark.parametrize("data", [b"", batch(0)[:10], batch(0)])
def test_a_broker_that_sends_no_new_records_is_not_fetched_from_for_ever(fake_broker, data):
    Log(fake_broker, [batch(0), batch(2)])
    fake_broker.answers[apis.FETCH.key] = lambda _: answer(high_watermark=3, records=data)
    with pytest.raises(NothingFetched, match=r"t-0 gave nothing from offset 2 on within 0.2 s: "):
        read(fake_broker, 2, 4, timeout_s=0.2)


def test_bytes_that_are_no_batch_are_returned_once_for_the_reader_to_refuse(fake_broker):
    Log(fake_broker, [batch(0)])
    fake_broker.answers[apis.FETCH.key] = lambda _: answer(high_watermark=9, records=batch(0) + bytes(40))
    with Cluster(fake_broker.address) as cluster, BatchFetcher(cluster, "t", 0, 0, 9) as batches:
        assert [len(fetched.data) for fetched in batches] == [len(batch(0)) + 40]


def test_a_gap_up_to_the_end_ends_the_reading(fake_broker):
    Log(fake_broker, [batch(0)], end=10)
    assert read(fake_broker, 0, 10) == [0, 1]
    assert fetched_at(fake_broker) == [0, 2]


def test_an_empty_answer_of_tiered_storage_is_no_gap(fake_broker):
    log = Log(fake_broker, [batch(0), batch(2), batch(4)])
    log.local_start = 4
    late = answer(high_watermark=6, records=b"")
    log.script = [late, late]
    assert read(fake_broker, 0, 6) == [0, 1, 2, 3, 4, 5]
    log.script = [late] * 100_000
    with pytest.raises(NothingFetched, match="is still fetching it from tiered storage"):
        read(fake_broker, 0, 6, timeout_s=0.1)


def test_a_broker_without_tiered_storage_is_not_asked_about_it(fake_broker):
    fake_broker.versions[apis.LIST_OFFSETS.key] = (0, 7)
    Log(fake_broker, [batch(0)], end=10)
    assert read(fake_broker, 0, 10) == [0, 1]
    assert not fake_broker.requests("ListOffsets")


def test_a_gap_before_the_last_stable_offset_ends_it_too_for_read_committed(fake_broker):
    log = Log(fake_broker, [batch(0)], end=10)
    log.more = {"last_stable_offset": 6}
    assert read(fake_broker, 0, 6, isolation="read_committed") == [0, 1]
    assert fake_broker.requests("Fetch")[0].isolation_level == 1
    with pytest.raises(NothingFetched, match="it ends at offset 6, and is to be read up to 7"):
        read(fake_broker, 0, 7, isolation="read_committed", timeout_s=0.2)


def test_an_end_that_the_partition_has_not_reached_is_waited_for_and_then_named(fake_broker):
    log = Log(fake_broker, [batch(0), batch(2)])
    log.script = [answer(high_watermark=0, records=b"")] * 3
    assert read(fake_broker, 0, 4) == [0, 1, 2, 3]
    with pytest.raises(
        NothingFetched,
        match=r"^t-0 gave nothing from offset 4 on within 0.2 s: it ends at offset 4, and is to be read up to 5.$",
    ):
        read(fake_broker, 0, 5, timeout_s=0.2)


def test_the_aborted_transactions_of_a_response_are_returned(fake_broker):
    log = Log(fake_broker, [batch(0)])
    aborted = [PARTITION.AbortedTransactions(producer_id=7, first_offset=1)]
    log.more = {"last_stable_offset": 2, "aborted_transactions": aborted}
    with Cluster(fake_broker.address) as cluster:
        fetcher = BatchFetcher(cluster, "t", 0, 0, 2, isolation="read_committed")
        assert [fetched.aborted for fetched in fetcher] == [[(7, 1)]]


@pytest.mark.parametrize(
    "code", [Errors.NOT_LEADER_OR_FOLLOWER, Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.KAFKA_STORAGE_ERROR]
)
def test_retriable_errors_are_retried_at_the_current_leader(fake_broker, second_broker, code):
    Log(fake_broker, [batch(0)])

    def moved(_):
        fake_broker.topics["t"] = [2]
        return answer(error_code=code)

    fake_broker.answers[apis.FETCH.key] = moved
    second_broker.answers[apis.FETCH.key] = lambda _: answer(high_watermark=2, records=batch(0))
    assert read(fake_broker, 0, 2) == [0, 1]
    assert fetched_at(second_broker) == [0]


def test_other_partitions_may_be_without_a_leader(fake_broker):
    Log(fake_broker, [batch(0)])
    fake_broker.topics["t"] = [1, -1]
    assert read(fake_broker, 0, 2) == [0, 1]


def test_a_broken_connection_is_opened_again(fake_broker, hang_up):
    log = Log(fake_broker, [batch(0), batch(2)])
    log.script = [hang_up, hang_up, answer(high_watermark=4, records=batch(0)), hang_up]
    assert read(fake_broker, 0, 4) == [0, 1, 2, 3]
    assert fetched_at(fake_broker) == [0, 0, 0, 2, 2]


def test_a_broker_that_stays_unreachable_is_named_after_the_time_out(fake_broker, hang_up):
    Log(fake_broker, [batch(0)])
    fake_broker.answers[apis.FETCH.key] = lambda _: hang_up
    with pytest.raises(NothingFetched, match=f"gave nothing from offset 0 on within 0.2 s: .*{fake_broker.address}"):
        read(fake_broker, 0, 2, timeout_s=0.2)


def test_a_broker_that_does_not_answer_is_named_after_the_time_out(fake_broker, silence, monkeypatch):
    monkeypatch.setattr(batch_fetcher, "MAX_WAIT_MS", 0)
    Log(fake_broker, [batch(0)])
    fake_broker.answers[apis.FETCH.key] = lambda _: silence
    with pytest.raises(NothingFetched, match=f"{fake_broker.address} did not answer Fetch within 0.2 s"):
        read(fake_broker, 0, 2, timeout_s=0.2)


def test_errors_that_are_not_retriable_are_raised_at_once(fake_broker):
    log = Log(fake_broker, [batch(0)])
    for code in (Errors.TOPIC_AUTHORIZATION_FAILED, Errors.CORRUPT_MESSAGE):
        log.script = [code]
        with pytest.raises(KafkaError, match="t-0 at offset 0: ") as raised:
            read(fake_broker, 0, 2)
        assert raised.value.code == code


@pytest.mark.parametrize(("start", "end"), [(1, 8), (9, 10)])
def test_an_offset_out_of_range_comes_with_the_range(fake_broker, start, end):
    Log(fake_broker, [batch(4), batch(6)], start=4)
    with pytest.raises(OffsetOutOfRange, match=f"t-0 does not have offset {start}: it has 4 to 7.$") as raised:
        read(fake_broker, start, end)
    error = raised.value
    assert (error.offset, error.earliest, error.latest) == (start, 4, 8)
    assert error.code == Errors.OFFSET_OUT_OF_RANGE


def test_the_out_of_range_error_says_that_the_partition_is_empty(fake_broker):
    Log(fake_broker, [batch(0)], start=2, end=2)
    with pytest.raises(OffsetOutOfRange, match=r"t-0 does not have offset 0: it is empty, and begins at 2.$"):
        read(fake_broker, 0, 2)


def test_the_errors_can_be_pickled():
    for error in (OffsetOutOfRange("t", 1, 2, 3, 4), NothingFetched("t", 1, 2, 3.5, "why.")):
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), vars(again)) == (str(error), vars(error))


def test_a_throttled_response_without_the_partition_is_fetched_again(fake_broker):
    log = Log(fake_broker, [batch(0)])
    log.script = [FETCH(throttle_time_ms=5), FETCH(throttle_time_ms=1)]
    assert read(fake_broker, 0, 2) == [0, 1]


def test_an_unknown_partition_is_named_after_the_time_out(fake_broker):
    Log(fake_broker, [batch(0)])
    fake_broker.topics["t"] = []
    with pytest.raises(NothingFetched, match="UNKNOWN_TOPIC_OR_PARTITION"):
        read(fake_broker, 0, 2, timeout_s=0.2)


def test_an_empty_range_sends_no_request(fake_broker):
    assert read(fake_broker, 5, 5) == []
    assert fake_broker.seen == []
