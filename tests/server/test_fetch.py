"""Fetch over the wire: waiting, sessions, limits, topic ids, offsets out of range."""

import threading
import time

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol.apis import DELETE_TOPICS, FETCH, METADATA
from kafkapy.protocol.headers import request_frame
from kafkapy.record.file_region import FileRegion
from tests.harness.wire import Wire
from tests.server.requests import FETCH_VERSION, batch, fetch, fetch_request, make_topic, produce, start_broker


@pytest.fixture
def topic(wire, request):
    return make_topic(wire, "f-" + "".join(char for char in request.node.name if char.isalnum() or char in "-_")[:200])


def test_a_fetch_waits_for_data_and_comes_with_it(broker, wire, topic):
    waiting = Wire(broker.bootstrap_servers)
    asked = waiting.send(FETCH, FETCH_VERSION, fetch_request(topic, wait=30_000))
    while broker.services.replicas.fetch_purgatory.delayed == 0:
        pass
    produce(wire, topic, batch(b"news"))
    correlation, response = waiting.receive(FETCH, FETCH_VERSION)
    assert correlation == asked
    assert bytes(response.responses[0].partitions[0].records)[61:] == batch(b"news")[61:]
    waiting.close()


def test_a_fetch_gives_up_waiting_after_max_wait(wire, topic):
    answer = fetch(wire, topic, wait=50)
    assert (answer.error_code, answer.high_watermark, bytes(answer.records)) == (Errors.NONE, 0, b"")


def test_a_fetch_waits_for_min_bytes(broker, wire, topic):
    size = len(batch(b"x" * 100))
    waiting = Wire(broker.bootstrap_servers)
    waiting.send(FETCH, FETCH_VERSION, fetch_request(topic, wait=30_000, min_bytes=2 * size))
    produce(wire, topic, batch(b"x" * 100))
    while broker.services.replicas.fetch_purgatory.delayed == 0:
        pass
    produce(wire, topic, batch(b"y" * 100))
    _, response = waiting.receive(FETCH, FETCH_VERSION)
    assert len(response.responses[0].partitions[0].records) == 2 * size
    waiting.close()


def test_below_the_start_and_above_the_end_is_out_of_range(wire, topic):
    produce(wire, topic, batch(b"only"))
    assert fetch(wire, topic, 5).error_code == Errors.OFFSET_OUT_OF_RANGE
    assert fetch(wire, topic, -1).error_code == Errors.OFFSET_OUT_OF_RANGE
    assert fetch(wire, topic, 1).error_code == Errors.NONE


def test_an_oversized_first_batch_is_returned_whole_and_a_second_one_is_not(wire, topic):
    big = batch(b"x" * 100_000)
    produce(wire, topic, big)
    produce(wire, topic, big)
    answer = fetch(wire, topic, part_max=1000, max_bytes=1000)
    assert len(answer.records) == len(big)


def test_max_bytes_counts_over_partitions_in_their_order(broker, wire):
    topics = [make_topic(wire, f"limit-{letter}") for letter in "ab"]
    for topic in topics:
        produce(wire, topic, batch(b"x" * 1000))
    asked = fetch_request(topics[0], max_bytes=1000)
    asked.topics += fetch_request(topics[1]).topics
    first, second = (one.partitions[0] for one in wire.call(FETCH, FETCH_VERSION, asked).responses)
    assert len(first.records) > 1000
    assert bytes(second.records) == b""
    assert second.high_watermark == 1


def test_leader_epochs_are_checked_and_a_diverging_epoch_is_returned(wire, topic):
    produce(wire, topic, batch(b"x"))
    assert fetch(wire, topic, epoch=1).error_code == Errors.UNKNOWN_LEADER_EPOCH
    assert fetch(wire, topic, epoch=0).error_code == Errors.NONE
    answer = fetch(wire, topic, 1, fetched_epoch=0)
    assert answer.diverging_epoch.epoch == -1


def test_a_session_returns_only_changes_and_a_wrong_epoch_is_refused(broker, wire, topic):
    make = FETCH.Request
    opened = wire.call(FETCH, FETCH_VERSION, fetch_request(topic, session=(0, 0)))
    session = opened.session_id
    assert session > 0
    assert len(opened.responses) == 1
    nothing = wire.call(
        FETCH, FETCH_VERSION, make(replica_id=-1, max_bytes=1 << 20, session_id=session, session_epoch=1)
    )
    assert (nothing.error_code, nothing.session_id, nothing.responses) == (Errors.NONE, session, [])
    produce(wire, topic, batch(b"news"))
    news = wire.call(FETCH, FETCH_VERSION, make(replica_id=-1, max_bytes=1 << 20, session_id=session, session_epoch=2))
    assert len(news.responses[0].partitions[0].records) > 0
    wrong = wire.call(FETCH, FETCH_VERSION, make(replica_id=-1, max_bytes=1 << 20, session_id=session, session_epoch=9))
    assert wrong.error_code == Errors.INVALID_FETCH_SESSION_EPOCH
    unknown = wire.call(
        FETCH, FETCH_VERSION, make(replica_id=-1, max_bytes=1 << 20, session_id=session + 1, session_epoch=1)
    )
    assert unknown.error_code == Errors.FETCH_SESSION_ID_NOT_FOUND


def test_an_unknown_topic_id_is_an_error_of_its_partition(wire):
    make = FETCH.Request
    part = make.Topics.Partitions(partition=0, fetch_offset=0, partition_max_bytes=100)
    asked = make(max_wait_ms=0, max_bytes=100, topics=[make.Topics(topic_id=b"\x07" * 16, partitions=[part])])
    answer = wire.call(FETCH, 17, asked).responses[0].partitions[0]
    assert answer.error_code == Errors.UNKNOWN_TOPIC_ID


def test_a_deleted_topic_wakes_the_fetch_that_waits_on_it(broker, wire, topic):
    waiting = Wire(broker.bootstrap_servers)
    waiting.send(FETCH, FETCH_VERSION, fetch_request(topic, wait=30_000))
    while broker.services.replicas.fetch_purgatory.delayed == 0:
        pass
    make = DELETE_TOPICS.Request
    wire.call(DELETE_TOPICS, 5, make(topic_names=[topic], timeout_ms=9000))
    _, response = waiting.receive(FETCH, FETCH_VERSION)
    assert response.responses[0].partitions[0].error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    waiting.close()


def test_a_stop_answers_the_fetches_that_wait(tmp_path):
    server = start_broker(tmp_path)
    wire = Wire(server.bootstrap_servers)
    topic = make_topic(wire, "until-the-end")
    wire.send(FETCH, FETCH_VERSION, fetch_request(topic, wait=2**31 - 1))
    while server.services.replicas.fetch_purgatory.delayed == 0:
        pass
    server.stop()
    _, response = wire.receive(FETCH, FETCH_VERSION)
    assert response.responses[0].partitions[0].error_code == Errors.NONE
    wire.close()


def test_a_waiting_fetch_of_a_disconnected_client_is_dropped_though_nothing_is_produced(broker, wire, topic):
    waiting = Wire(broker.bootstrap_servers)
    waiting.send(FETCH, FETCH_VERSION, fetch_request(topic, wait=2**31 - 1))
    purgatory = broker.services.replicas.fetch_purgatory
    while purgatory.delayed == 0:
        pass
    waiting.close()
    deadline = time.monotonic() + 20
    while purgatory.delayed:
        assert time.monotonic() < deadline
    assert fetch(wire, topic).error_code == Errors.NONE


@pytest.mark.parametrize("zero_copy", ["true", "false"])
def test_zero_copy_and_copy_answer_the_same_bytes(tmp_path, zero_copy):
    server = start_broker(tmp_path, kafkapy_zero_copy_enable=zero_copy)
    wire = Wire(server.bootstrap_servers)
    try:
        make_topic(wire, "same")
        expected = b""
        for i in range(20):
            data = batch(b"%d" % i * 20_000)
            produce(wire, "same", data)
            expected += data[61:]
        data = bytes(fetch(wire, "same", part_max=10 << 20, max_bytes=10 << 20).records)
        position, got = 0, b""
        for _ in range(20):
            size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
            got += data[position + 61 : position + size]
            position += size
        assert got == expected
        assert position == len(data)
    finally:
        wire.close()
        server.stop()


def test_metadata_creates_a_topic_only_if_it_may(tmp_path):
    server = start_broker(tmp_path, auto_create_topics_enable="false")
    wire = Wire(server.bootstrap_servers)
    make = METADATA.Request
    try:
        asked = make(topics=[make.Topics(name="nope")], allow_auto_topic_creation=True)
        assert wire.call(METADATA, 12, asked).topics[0].error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    finally:
        wire.close()
        server.stop()


def test_metadata_does_not_create_an_internal_topic_with_default_settings(wire):
    make = METADATA.Request
    asked = make(topics=[make.Topics(name="__consumer_offsets")], allow_auto_topic_creation=True)
    assert wire.call(METADATA, 12, asked).topics[0].error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION


def test_many_clients_that_request_the_same_new_topic_all_get_it(broker):
    make = METADATA.Request
    wires = [Wire(broker.bootstrap_servers) for _ in range(8)]
    answers = []

    def ask(wire):
        asked = make(topics=[make.Topics(name="raced")], allow_auto_topic_creation=True)
        answers.append(wire.call(METADATA, 12, asked).topics[0])

    threads = [threading.Thread(target=ask, args=(wire,)) for wire in wires]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for wire in wires:
        wire.close()
    assert [one.error_code for one in answers] == [Errors.NONE] * 8
    assert len({one.topic_id for one in answers}) == 1


def test_a_fetch_with_a_divergence_reads_no_records_into_memory(wire, topic, monkeypatch):
    def read(region):
        raise AssertionError("read on the network thread, which must not wait for a disk")

    monkeypatch.setattr(FileRegion, "read", read)
    other = make_topic(wire, topic + "-other")
    produce(wire, topic, batch(b"x"))
    produce(wire, other, batch(b"y"))
    asked = fetch_request(topic, 5, fetched_epoch=0)
    asked.topics += fetch_request(other).topics
    first, second = (one.partitions[0] for one in wire.call(FETCH, FETCH_VERSION, asked).responses)
    assert (first.diverging_epoch.epoch, first.diverging_epoch.end_offset) == (0, 1)
    assert (second.error_code, second.high_watermark) == (Errors.NONE, 1)


def test_a_name_too_long_for_a_response_closes_the_connection_even_if_a_topic_is_created(broker):
    """Each byte that is invalid UTF-8 becomes three bytes, and then the name is too long for a response."""
    other = Wire(broker.bootstrap_servers)
    make = METADATA.Request
    names = [make.Topics(name=name) for name in ("f-made-beside", "Q" * 20_000)]
    frame = request_frame(METADATA, 12, 1, "wire", make(topics=names, allow_auto_topic_creation=True))
    other.socket.settimeout(10)
    other.socket.sendall(frame.replace(b"Q", b"\xff"))
    assert other.closed()
    other.close()
