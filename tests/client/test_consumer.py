"""The consumer turns fetched bytes into records, and handles partitions that cannot be read."""

import time

import pytest

from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import ConnectionFailed
from kafkapy.client.fetching import fetcher
from kafkapy.client.fetching.consumer import Consumer
from kafkapy.client.fetching.engine import NAMES_UNTIL
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol import apis
from kafkapy.record.batch import build
from kafkapy.record.compression import GZIP
from kafkapy.record.control import COMMIT, encode_key
from kafkapy.record.legacy import build_set
from tests.harness.markers import encode_marker


def records(*values, base_offset=0, **more):
    return build(
        [(1600000000000 + n, None, value, ()) for n, value in enumerate(values)], base_offset=base_offset, **more
    )


class Log:
    """The partitions of a fake broker: (first offset, end offset, batches) by index. Fetch returns the batch with the
    offset and those after it, cut off after `cut` bytes."""

    def __init__(self, broker, partitions):
        self.partitions = partitions
        self.cut = None
        self.errors = []
        broker.topics = {"t": [1] * len(partitions)}
        broker.answers[apis.FETCH.key] = self.fetch
        broker.answers[apis.LIST_OFFSETS.key] = self.offsets

    def fetch(self, request):
        shape = apis.FETCH.Response.Responses
        answers = []
        for topic in request.topics:
            for asked in topic.partitions:
                first, end, batches = self.partitions[asked.partition]
                code = Errors.NONE if first <= asked.fetch_offset <= end else Errors.OFFSET_OUT_OF_RANGE
                if self.errors:
                    code = self.errors.pop(0)
                wanted = [data for last, data in batches if last >= asked.fetch_offset]
                data = b"".join(wanted)[: self.cut] if not code else None
                answers.append(
                    shape.Partitions(partition_index=asked.partition, error_code=code, high_watermark=end, records=data)
                )
        return apis.FETCH.Response(responses=[shape(topic="t", partitions=answers)])

    def offsets(self, request):
        shape = apis.LIST_OFFSETS.Response.Topics
        answers = []
        for asked in request.topics[0].partitions:
            first, end, _ = self.partitions[asked.partition_index]
            offset = {-2: first, -1: end}.get(asked.timestamp, -1)
            answers.append(shape.Partitions(partition_index=asked.partition_index, offset=offset))
        return apis.LIST_OFFSETS.Response(topics=[shape(name="t", partitions=answers)])


def read(broker, **more):
    with Consumer(broker.address, **more) as consumer:
        consumer.assign_topic("t")
        return [(record.partition, record.offset, record.value) for record in consumer.records()]


def test_all_records_of_all_partitions_up_to_their_ends_are_read_once(fake_broker):
    Log(
        fake_broker,
        [
            (0, 3, [(1, records(b"a", b"b")), (2, records(b"c", base_offset=2))]),
            (5, 6, [(5, records(b"z", base_offset=5))]),
        ],
    )
    assert sorted(read(fake_broker)) == [(0, 0, b"a"), (0, 1, b"b"), (0, 2, b"c"), (1, 5, b"z")]
    assert {version for name, version, _ in fake_broker.seen if name == "Fetch"} == {NAMES_UNTIL}


def test_a_batch_that_is_cut_off_is_fetched_again(fake_broker):
    first, second = records(b"a"), records(b"b", base_offset=1)
    log = Log(fake_broker, [(0, 2, [(0, first), (1, second)])])
    log.cut = len(first) + len(second) - 1
    with Consumer(fake_broker.address) as consumer:
        consumer.assign_topic("t")
        assert [record.value for record in consumer.poll()] == [b"a"]
        assert consumer.positions == {("t", 0): 1}
        log.cut = None
        assert [record.value for record in consumer.poll()] == [b"b"]


def test_a_batch_that_does_not_fit_into_a_fetch_of_an_old_broker_is_an_error(fake_broker):
    """Brokers before Kafka 0.10.1 send only its beginning, again and again."""
    batch = records(b"a")
    log = Log(fake_broker, [(0, 1, [(0, batch)])])
    log.cut = len(batch) - 1
    with Consumer(fake_broker.address) as consumer:
        consumer.assign_topic("t")
        with pytest.raises(KafkaError, match="t-0 at offset 0 has a batch of more than partition_bytes") as error:
            consumer.poll()
        assert error.value.code == Errors.RECORD_LIST_TOO_LARGE
        log.cut = None
        assert [record.value for record in consumer.poll()] == [b"a"]


def test_records_before_the_position_are_left_out(fake_broker):
    Log(fake_broker, [(0, 3, [(2, records(b"a", b"b", b"c"))])])
    with Consumer(fake_broker.address) as consumer:
        consumer.seek("t", 0, 2)
        assert [record.offset for record in consumer.poll()] == [2]
        assert consumer.positions == {("t", 0): 3}


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_read_from_the_position_on(fake_broker, magic):
    plain = [(1600000000000 + n, None, b"%d" % n) for n in range(3)]
    parts = [(2, build_set(plain, magic, GZIP)), (5, build_set(plain, magic, base_offset=3))]
    Log(fake_broker, [(0, 6, parts)])
    with Consumer(fake_broker.address) as consumer:
        consumer.seek("t", 0, 1)
        got = consumer.poll()
        assert [(record.offset, record.value) for record in got] == [
            (1, b"1"),
            (2, b"2"),
            (3, b"0"),
            (4, b"1"),
            (5, b"2"),
        ]
        assert got[0].timestamp == (1600000000001 if magic else -1)
        assert consumer.positions == {("t", 0): 6}


def test_control_records_are_passed_over_and_not_shown(fake_broker):
    marker = build(
        [(1600000000000, encode_key(COMMIT), encode_marker(0), ())], base_offset=1, control=True, transactional=True
    )
    Log(fake_broker, [(0, 2, [(0, records(b"a")), (1, marker)])])
    assert read(fake_broker) == [(0, 0, b"a")]


def test_a_batch_that_compaction_has_emptied_moves_the_position(fake_broker):
    empty = bytearray(records(b"a", b"b"))[:61]
    empty[8:12] = (61 - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    Log(fake_broker, [(0, 3, [(1, bytes(empty)), (2, records(b"c", base_offset=2))])])
    assert read(fake_broker) == [(0, 2, b"c")]


@pytest.mark.parametrize(("policy", "found"), [("earliest", [3, 4]), ("latest", [])])
def test_after_out_of_range_it_reads_from_where_the_policy_says(fake_broker, policy, found):
    Log(fake_broker, [(3, 5, [(4, records(b"a", b"b", base_offset=3))])])
    with Consumer(fake_broker.address, out_of_range=policy) as consumer:
        consumer.seek("t", 0, 1)
        assert [record.offset for _ in range(2) for record in consumer.poll()] == found
        assert consumer.positions == {("t", 0): 5}


def test_out_of_range_is_raised_with_partition_and_offset(fake_broker):
    Log(fake_broker, [(3, 5, [])])
    with Consumer(fake_broker.address) as consumer:
        consumer.seek("t", 0, 9)
        with pytest.raises(KafkaError, match="t-0 at offset 9") as error:
            consumer.poll()
    assert error.value.code == Errors.OFFSET_OUT_OF_RANGE


def test_a_leader_that_moved_is_asked_for_again(fake_broker):
    log = Log(fake_broker, [(0, 1, [(0, records(b"a"))])])
    log.errors = [Errors.NOT_LEADER_OR_FOLLOWER]
    assert read(fake_broker) == [(0, 0, b"a")]
    assert len(fake_broker.requests("Metadata")) == 2


def test_a_partition_without_a_leader_does_not_hold_up_the_others(fake_broker):
    Log(fake_broker, [(0, 1, [(0, records(b"a"))]), (0, 1, [(0, records(b"b"))])])
    fake_broker.topics["t"] = [-1, 1]
    with Consumer(fake_broker.address, max_wait_ms=0) as consumer:
        consumer.assign_topic("t")
        assert consumer.positions == {("t", 1): 0}
        assert [record.value for record in consumer.poll()] == [b"b"]
        consumer.poll()
        fake_broker.topics["t"] = [1, 1]
        read = []
        while not read:
            read = consumer.poll()
        assert [(record.partition, record.offset, record.value) for record in read] == [(0, 0, b"a")]
        fake_broker.topics["t"] = [1, -1]
        consumer.cluster.topics.clear()
        consumer.seek("t", 0, 0)
        assert [record.value for record in consumer.poll()] == [b"a"]


def test_all_records_are_not_read_while_a_partition_has_no_leader(fake_broker):
    Log(fake_broker, [(0, 1, [(0, records(b"a"))]), (0, 1, [(0, records(b"b"))])])
    fake_broker.topics["t"] = [-1, 1]
    with Cluster(fake_broker.address, timeout_s=0.3) as cluster:
        consumer = Consumer(cluster)
        consumer.assign_topic("t")
        with pytest.raises(KafkaError, match="t-0") as error:
            list(consumer.records())
        assert error.value.code == Errors.LEADER_NOT_AVAILABLE
        with pytest.raises(KafkaError, match="t-0"):
            list(consumer.records(until={("t", 0): 1, ("t", 1): 1}))


def test_each_fetch_asks_for_another_partition_first(fake_broker):
    Log(fake_broker, [(0, 0, [])] * 3)
    with Consumer(fake_broker.address, max_wait_ms=0) as consumer:
        consumer.assign_topic("t")
        for _ in range(3):
            consumer.poll()
    firsts = [request.topics[0].partitions[0].partition for request in fake_broker.requests("Fetch")]
    assert sorted(firsts) == [0, 1, 2]


def test_a_failed_fetch_leaves_no_answer_for_the_next_request(fake_broker, second_broker, hang_up):
    log = Log(fake_broker, [(0, 1, [(0, records(b"a"))]), (0, 1, [(0, records(b"b"))])])
    fake_broker.topics["t"] = [2, 1]
    second_broker.topics = fake_broker.topics
    second_broker.answers[apis.FETCH.key] = lambda _: hang_up
    with Consumer(fake_broker.address) as consumer:
        consumer.positions = {("t", 0): 0, ("t", 1): 0}
        with pytest.raises(ConnectionFailed):
            consumer.poll()
        second_broker.answers[apis.FETCH.key] = log.fetch
        assert sorted(record.value for record in consumer.poll()) == [b"a", b"b"]


def test_seeking_to_a_time_behind_the_last_record_goes_to_the_end(fake_broker):
    Log(fake_broker, [(0, 2, [(1, records(b"a", b"b"))])])
    with Consumer(fake_broker.address) as consumer:
        consumer.assign_topic("t")
        consumer.seek_to_timestamp(1700000000000)
        assert consumer.positions == {("t", 0): 2}


def test_records_of_other_partitions_are_not_lost_by_a_poll_that_raises(fake_broker):
    log = Log(fake_broker, [(0, 1, [(0, records(b"a"))]), (0, 1, [(0, records(b"b"))])])
    with Consumer(fake_broker.address) as consumer:
        consumer.assign_topic("t")
        log.errors = [Errors.NONE, Errors.TOPIC_AUTHORIZATION_FAILED]
        with pytest.raises(KafkaError, match="at offset 0") as error:
            consumer.poll()
        assert error.value.code == Errors.TOPIC_AUTHORIZATION_FAILED
        assert sorted(record.value for record in consumer.poll()) == [b"a", b"b"]
        assert consumer.positions == {("t", 0): 1, ("t", 1): 1}


def test_a_partition_that_no_longer_exists_is_raised(fake_broker):
    log = Log(fake_broker, [(0, 1, [(0, records(b"a"))])])
    with Consumer(fake_broker.address) as consumer:
        consumer.assign_topic("t")
        log.errors = [Errors.UNKNOWN_TOPIC_OR_PARTITION]
        with pytest.raises(KafkaError, match="t-0 at offset 0") as error:
            consumer.poll()
        assert error.value.code == Errors.UNKNOWN_TOPIC_OR_PARTITION


def test_positions_are_set_and_removed_like_those_of_a_dict(fake_broker):
    Log(fake_broker, [(0, 3, [(2, records(b"a", b"b", b"c"))])] * 2)
    with Consumer(fake_broker.address) as consumer:
        consumer.assign_topic("t")
        consumer.positions["t", 0] = 2
        del consumer.positions["t", 1]
        assert consumer.positions == {("t", 0): 2}
        assert ("t", 1) not in consumer.positions
        assert [(record.partition, record.offset) for record in consumer.poll()] == [(0, 2)]
        consumer.positions = {("t", 1): 1}
        assert [(record.partition, record.offset) for record in consumer.poll()] == [(1, 1), (1, 2)]
        assert consumer.positions == {("t", 1): 3}


def test_a_poll_of_some_partitions_leaves_the_others_where_they_are(fake_broker):
    Log(fake_broker, [(0, 1, [(0, records(b"a"))]), (0, 1, [(0, records(b"b"))])])
    with Consumer(fake_broker.address) as consumer:
        consumer.assign_topic("t")
        assert [record.value for record in consumer.poll(partitions=[("t", 1)])] == [b"b"]
        assert consumer.positions == {("t", 0): 0, ("t", 1): 1}
        assert [record.value for record in consumer.poll()] == [b"a"]


def test_a_partition_that_cannot_be_read_now_is_tried_again_after_a_pause(fake_broker, monkeypatch):
    monkeypatch.setattr(fetcher, "BACKOFF_S", 1000.0)
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    log = Log(fake_broker, [(0, 1, [(0, records(b"a"))])])
    with Consumer(fake_broker.address) as consumer:
        consumer.assign_topic("t")
        log.errors = [Errors.NOT_LEADER_OR_FOLLOWER]
        assert consumer.poll() == []
        assert consumer.poll() == []
    assert len(fake_broker.requests("Fetch")) == 1
    assert len(pauses) == 1
    assert 990 < pauses[0] <= 1000
