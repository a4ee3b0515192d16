"""Produce over the wire: gathered requests, acks, appends on the pool, and an error code for every refusal."""

import struct

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol.apis import PRODUCE
from kafkapy.protocol.headers import request_frame
from kafkapy.replica import stall
from kafkapy.server.producing import gather as produce_gather
from tests.harness.followers import follower_at
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.lab import held
from tests.server.requests import (
    VERSION,
    batch,
    end_offset,
    fetch_values,
    lead_with,
    make_topic,
    produce,
    request,
    start_broker,
)


@pytest.fixture
def topic(wire, request):
    return make_topic(wire, "p-" + "".join(char for char in request.node.name if char.isalnum() or char in "-_")[:200])


def test_requests_that_arrive_together_are_answered_one_by_one_and_in_order(wire, topic):
    frames = b"".join(
        request_frame(PRODUCE, VERSION, 100 + i, "wire", request(topic, batch(b"%d" % i))) for i in range(50)
    )
    wire.socket.sendall(frames)
    for i in range(50):
        correlation, response = wire.receive(PRODUCE, VERSION)
        answer = response.responses[0].partition_responses[0]
        assert (correlation, answer.error_code, answer.base_offset) == (100 + i, Errors.NONE, i)
    assert fetch_values(wire, topic) == [b"%d" % i for i in range(50)]


def test_a_bad_set_in_a_gather_is_refused_alone(wire, topic):
    broken = bytearray(batch(b"broken"))
    broken[-1] ^= 1
    sets = [batch(b"one"), bytes(broken), batch(b"two")]
    wire.socket.sendall(
        b"".join(request_frame(PRODUCE, VERSION, i, "wire", request(topic, one)) for i, one in enumerate(sets))
    )
    answers = [wire.receive(PRODUCE, VERSION)[1].responses[0].partition_responses[0] for _ in sets]
    assert [(one.error_code, one.base_offset) for one in answers] == [
        (Errors.NONE, 0),
        (Errors.CORRUPT_MESSAGE, -1),
        (Errors.NONE, 1),
    ]
    assert fetch_values(wire, topic) == [b"one", b"two"]


def test_acks_0_gets_no_answer_and_a_failure_closes_the_connection(broker, wire, topic):
    wire.send(PRODUCE, VERSION, request(topic, batch(b"quiet"), acks=0))
    assert end_offset(wire, topic) == 1  # the next answer on the connection is that of ListOffsets
    other = Wire(broker.bootstrap_servers)
    other.send(PRODUCE, VERSION, request("no-such-topic", batch(b"lost"), acks=0))
    assert other.closed()
    other.close()


def test_a_failure_with_acks_0_closes_after_the_requests_before_it_are_answered(broker, topic):
    other = Wire(broker.bootstrap_servers)
    other.socket.sendall(
        request_frame(PRODUCE, VERSION, 1, "wire", request(topic, batch(b"kept")))
        + request_frame(PRODUCE, VERSION, 2, "wire", request("no-such-topic", batch(b"lost"), acks=0))
    )
    correlation, response = other.receive(PRODUCE, VERSION)
    assert (correlation, response.responses[0].partition_responses[0].error_code) == (1, Errors.NONE)
    assert other.closed()
    other.close()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"acks": 2}, Errors.INVALID_REQUIRED_ACKS),
        ({"index": 7}, Errors.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_refusals_of_the_request(wire, topic, change, code):
    answer = produce(wire, topic, batch(b"x"), **change)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert answer.error_message


def test_a_set_over_max_message_bytes_is_too_large(wire, topic):
    answer = produce(wire, topic, batch(b"x" * 1_048_588))
    assert answer.error_code == Errors.MESSAGE_TOO_LARGE
    assert "1048588" in answer.error_message
    assert produce(wire, topic, batch(b"x" * 1_048_000)).error_code == Errors.NONE


def test_a_null_or_empty_set_is_an_invalid_record(wire, topic):
    assert produce(wire, topic, None).error_code == Errors.INVALID_RECORD
    assert produce(wire, topic, b"").error_code == Errors.INVALID_RECORD


def test_two_batches_in_one_set_are_refused(wire, topic):
    assert produce(wire, topic, batch(b"a") + batch(b"b")).error_code == Errors.INVALID_RECORD


def test_zstd_needs_a_client_that_knows_it(wire, topic):
    data = batch(b"squeeze me" * 10, codec=4)
    assert produce(wire, topic, data, version=6).error_code == Errors.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(wire, topic, data, version=7).error_code == Errors.NONE


def test_an_idempotent_retry_is_answered_with_its_first_offset_and_a_gap_is_refused(wire, topic):
    first = batch(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
    assert produce(wire, topic, first).base_offset == 0
    assert produce(wire, topic, first).base_offset == 0
    gap = batch(b"d", producer_id=5, producer_epoch=0, base_sequence=7)
    assert produce(wire, topic, gap).error_code == Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    newer = batch(b"c", producer_id=5, producer_epoch=1, base_sequence=0)
    assert produce(wire, topic, newer).base_offset == 2
    older = batch(b"e", producer_id=5, producer_epoch=0, base_sequence=2)
    assert produce(wire, topic, older).error_code == Errors.INVALID_PRODUCER_EPOCH
    assert end_offset(wire, topic) == 3


def gather_with_acks(wire, topic, acks, timeout_ms=1000):
    """Send one request for each of `acks`, all in one call, so that the broker gathers them."""
    frames = []
    for i, one in enumerate(acks):
        asked = request(topic, batch(b"%d" % i), acks=one)
        asked.timeout_ms = timeout_ms
        frames.append(request_frame(PRODUCE, VERSION, i, "wire", asked))
    wire.socket.sendall(b"".join(frames))


def answers_of(wire, count):
    answers = [wire.receive(PRODUCE, VERSION)[1].responses[0].partition_responses[0] for _ in range(count)]
    return [(one.error_code, one.base_offset) for one in answers]


def test_one_replica_is_enough_for_acks_all_with_any_min_insync_replicas(wire, broker):
    topic = make_topic(wire, "p-one-replica")
    broker.services.topic_settings.alter(topic, lambda _: {"min.insync.replicas": "2"}, validate_only=False)
    gather_with_acks(wire, topic, [1, -1, 1])
    assert answers_of(wire, 3) == [(Errors.NONE, 0), (Errors.NONE, 1), (Errors.NONE, 2)]
    assert fetch_values(wire, topic) == [b"0", b"1", b"2"]


def test_each_request_of_a_gather_follows_its_own_acks(wire, broker):
    topic = make_topic(wire, "p-own-acks")
    broker.services.topic_settings.alter(topic, lambda _: {"min.insync.replicas": "2"}, validate_only=False)
    me = broker.services.broker_id
    lead_with(broker, topic, [me, me + 1], [me])
    gather_with_acks(wire, topic, [1, -1, 1])
    assert answers_of(wire, 3) == [(Errors.NONE, 0), (Errors.NOT_ENOUGH_REPLICAS, -1), (Errors.NONE, 1)]
    lead_with(broker, topic, [me], [me])
    assert fetch_values(wire, topic) == [b"0", b"2"]


def test_acks_all_waits_for_the_followers_and_acks_one_does_not(wire, broker):
    topic = make_topic(wire, "p-followers")
    me = broker.services.broker_id
    partition = lead_with(broker, topic, [me, me + 1], [me, me + 1])
    gather_with_acks(wire, topic, [1])
    assert answers_of(wire, 1) == [(Errors.NONE, 0)]
    gather_with_acks(wire, topic, [-1, -1], timeout_ms=60_000)
    eventually(lambda: partition.log.log_end_offset == 3)
    other = Wire(broker.bootstrap_servers)
    assert end_offset(other, topic) == 0  # nothing is replicated yet
    other.close()
    follower_at(partition, me + 1, 3)
    assert answers_of(wire, 2) == [(Errors.NONE, 1), (Errors.NONE, 2)]
    assert fetch_values(wire, topic) == [b"0", b"0", b"1"]


def test_acks_all_is_answered_when_the_time_of_the_request_is_up(wire, broker):
    topic = make_topic(wire, "p-late-followers")
    me = broker.services.broker_id
    lead_with(broker, topic, [me, me + 1], [me, me + 1])
    gather_with_acks(wire, topic, [-1, 1], timeout_ms=50)
    assert answers_of(wire, 2) == [(Errors.REQUEST_TIMED_OUT, -1), (Errors.NONE, 1)]


def test_a_large_request_that_waits_for_followers_gives_its_receive_buffer_back(wire, broker):
    """An append that waits for a flush keeps the buffer only until the flush."""
    topic = make_topic(wire, "p-buffers")
    broker.services.topic_settings.alter(topic, lambda _: {"flush.messages": "1"}, validate_only=False)
    me = broker.services.broker_id
    partition = lead_with(broker, topic, [me, me + 1], [me, me + 1])
    asked = request(topic, batch(bytes(900_000)), acks=-1)
    asked.timeout_ms = 60_000
    wire.socket.sendall(request_frame(PRODUCE, VERSION, 0, "wire", asked))
    eventually(lambda: partition.log.log_end_offset == 1 and len(partition._waits.pending) == 1)
    eventually(lambda: kept_buffers(broker) == 0)
    follower_at(partition, me + 1, 1)
    assert answers_of(wire, 1) == [(Errors.NONE, 0)]


def kept_buffers(server):
    """Return the number of connections whose request still holds its receive buffer."""
    processors = server._network._processors
    return sum(conn.kept is not None for processor in processors for conn in list(processor._connections.values()))


def broken(*_, **__):
    raise ZeroDivisionError("made to fail")


def failing_append(server, monkeypatch):
    partition = server.services.replicas.get("p-half", 0)
    log = partition.log

    class Broken:
        append = staticmethod(broken)

        def __getattr__(self, name):
            return getattr(log, name)

    monkeypatch.setattr(partition, "log", Broken())


def failing_bytes_in(server, monkeypatch):
    """Make counting the bytes of the second partition fail."""
    plain = server.services.meters.bytes_in

    def once(topic, size):
        monkeypatch.setattr(server.services.meters, "bytes_in", broken)
        plain(topic, size)

    monkeypatch.setattr(server.services.meters, "bytes_in", once)


def failing_answer(server, monkeypatch):
    monkeypatch.setattr(produce_gather, "zip", broken, raising=False)  # matches results with responses


def failing_gather(server, monkeypatch):
    monkeypatch.setattr(produce_gather.Asked, "release", broken)


def failing_dispatcher(server, monkeypatch):
    monkeypatch.setattr(server.services.meters, "count", broken)


@pytest.mark.parametrize("size", [1000, 200_000], ids=["small", "large"])
@pytest.mark.parametrize(
    ("fail", "answered"),
    [
        (failing_append, True),
        (failing_bytes_in, True),
        (failing_answer, False),
        (failing_gather, False),
        (failing_dispatcher, False),
    ],
)
def test_an_unforeseen_failure_leaves_a_pooled_append_its_records(tmp_path, monkeypatch, fail, answered, size):
    """The handling of a request fails while the append to one of its partitions waits in the pool."""
    server = start_broker(tmp_path, num_partitions="2", num_network_threads="1")
    wire, other = Wire(server.bootstrap_servers), Wire(server.bootstrap_servers)
    make_topic(wire, "p-half")
    waits = server.services.replicas.get("p-half", 1)
    make = PRODUCE.Request
    parts = [make.TopicData.PartitionData(index=index, records=batch(b"a" * size)) for index in (1, 0)]
    topics = [make.TopicData(name="p-half", partition_data=parts)]
    with waits.log.lock:
        with monkeypatch.context() as patched:
            fail(server, patched)
            wire.send(PRODUCE, VERSION, make(acks=1, timeout_ms=5000, topic_data=topics))
            if not answered:
                assert wire.closed()
            eventually(lambda: server.services.append_pool.depth > 0)
            with held(server):  # entered when the network thread has handled the request
                pass
        for part in parts:
            part.records = batch(b"b" * size)
        topics[0].name = "p-none"
        for _ in range(3):  # these requests would overwrite the waiting one if its buffer were not kept
            other.call(PRODUCE, VERSION, make(acks=1, timeout_ms=5000, topic_data=topics))
    eventually(lambda: waits.log.log_end_offset == 1)
    if answered:
        parts = wire.receive(PRODUCE, VERSION)[1].responses[0].partition_responses
        assert [(one.index, one.error_code) for one in parts] == [(1, Errors.NONE), (0, Errors.UNKNOWN_SERVER_ERROR)]
    region = waits.read(0, 1 << 20, 0, min_one=True, blocking=True).region
    assert region.read()[61:] == batch(b"a" * size)[61:]
    wire.close()
    other.close()
    server.stop()


def test_an_answer_that_fails_on_the_pool_closes_the_connection(tmp_path, monkeypatch):
    server = start_broker(tmp_path)
    wire = Wire(server.bootstrap_servers)
    topic = make_topic(wire, "p-unanswered")
    partition = server.services.replicas.get(topic, 0)
    with partition.log.lock:
        wire.send(PRODUCE, VERSION, request(topic, batch(b"kept")))
        eventually(lambda: server.services.append_pool.depth > 0)
        monkeypatch.setattr(produce_gather, "zip", broken, raising=False)  # matches results with responses
    assert wire.closed()
    assert partition.log.log_end_offset == 1
    wire.close()
    server.stop()


def test_pooled_appends_keep_order_and_append_each_request_once(tmp_path, monkeypatch):
    """With a stall threshold of 0, every append goes through the pool, except the first after a pause."""
    monkeypatch.setattr(stall, "SECONDS_A_BYTE", 0.0)
    server = start_broker(tmp_path, kafkapy_stall_threshold_ms="0")
    wires = [Wire(server.bootstrap_servers) for _ in range(3)]
    try:
        make_topic(wires[0], "pooled")
        for wire, letter in zip(wires, b"abc", strict=True):
            wire.socket.sendall(
                b"".join(
                    request_frame(PRODUCE, VERSION, i, "w", request("pooled", batch(b"%c%d" % (letter, i)), acks=-1))
                    for i in range(200)
                )
            )
        for wire in wires:
            offsets = []
            for i in range(200):
                correlation, response = wire.receive(PRODUCE, VERSION)
                answer = response.responses[0].partition_responses[0]
                assert (correlation, answer.error_code) == (i, Errors.NONE)
                offsets.append(answer.base_offset)
            assert offsets == sorted(offsets)
        values = fetch_values(wires[0], "pooled")
        assert len(values) == 600
        for letter in b"abc":
            assert [one for one in values if one[0] == letter] == [b"%c%d" % (letter, i) for i in range(200)]
        assert sum(monitor.stalls for monitor in server.services.replicas.stalls().values()) > 0
    finally:
        for wire in wires:
            wire.close()
        server.stop()


def test_with_flush_messages_1_an_acknowledged_record_is_flushed(tmp_path):
    server = start_broker(tmp_path, log_flush_interval_messages="1")
    wire = Wire(server.bootstrap_servers)
    try:
        make_topic(wire, "safe")
        partition = server.services.replicas.get("safe", 0)
        for i in range(5):
            assert produce(wire, "safe", batch(b"%d" % i)).base_offset == i
            assert partition.log.recovery_point == i + 1
    finally:
        wire.close()
        server.stop()


def test_acknowledged_records_are_there_after_a_restart(tmp_path):
    server = start_broker(tmp_path)
    wire = Wire(server.bootstrap_servers)
    make_topic(wire, "kept")
    for i in range(10):
        produce(wire, "kept", batch(b"%d" % i))
    cluster_id, topic_id = server.services.cluster_id, server.services.topics.get("kept").id
    wire.close()
    server.stop()
    server = start_broker(tmp_path)
    wire = Wire(server.bootstrap_servers)
    try:
        assert fetch_values(wire, "kept") == [b"%d" % i for i in range(10)]
        assert server.services.cluster_id == cluster_id
        assert server.services.topics.get("kept").id == topic_id
    finally:
        wire.close()
        server.stop()


def test_a_frame_that_breaks_the_protocol_closes_after_the_earlier_requests_are_answered(broker, wire, topic, caplog):
    good = request_frame(PRODUCE, VERSION, 1, "wire", request(topic, batch(b"good")))
    bad = struct.pack(">ihhi", 12, PRODUCE.key, VERSION, 2) + b"\xff\xff\x00\x7f"
    wire.socket.sendall(good + bad)
    assert wire.receive(PRODUCE, VERSION)[0] == 1
    assert wire.closed()
    assert any("Produce" in record.getMessage() and "closing" in record.getMessage() for record in caplog.records)


def test_a_batch_that_decompresses_beyond_the_limit_is_refused(tmp_path):
    server = start_broker(tmp_path, kafkapy_decompressed_max_bytes="100000")
    wire = Wire(server.bootstrap_servers)
    try:
        make_topic(wire, "bomb")
        assert produce(wire, "bomb", batch(b"x" * 90_000, codec=4)).error_code == Errors.NONE
        refused = produce(wire, "bomb", batch(b"x" * 110_000, codec=4))
        assert refused.error_code == Errors.INVALID_RECORD
        assert "100000" in refused.error_message
    finally:
        wire.close()
        server.stop()


def test_a_response_that_cannot_be_encoded_closes_the_connection_also_from_the_append_pool(wire, broker):
    topic = make_topic(wire, "p-unanswerable")
    asked = request(topic, batch(b"kept"))
    asked.topic_data += request("n" * 32_767, batch(b"lost")).topic_data  # its error message is too long
    other = Wire(broker.bootstrap_servers)
    other.socket.settimeout(10)
    with broker.services.replicas.get(topic, 0).log.lock:  # so that the append waits in the pool
        other.send(PRODUCE, VERSION, asked)
        while broker.services.append_pool.depth == 0:
            pass
    assert other.closed()
    assert end_offset(wire, topic) == 1
    other.close()


def test_the_line_about_failures_with_acks_0_does_not_grow_with_the_request():
    failed = [(index, Errors.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1, None, None) for index in range(10_000)]
    line = produce_gather._failures([("t" * 30_000, failed)])
    assert len(line) < 5000
    assert line.endswith("and 9990 more")
