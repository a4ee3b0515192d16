"""A follower's decoder of Fetch responses and encoder of Fetch requests agree with the codec, also on broken bytes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext.fetched import decode_fetch_response, encode_fetch_request
from kafkapy.errors import ProtocolError
from kafkapy.protocol.apis import FETCH

Topic = FETCH.Response.Responses
Partition = Topic.Partitions
VERSIONS = range(12, 18)


def expected(frame, version, start):
    response = FETCH.decode_response(frame, version, start)
    partitions = []
    for topic in response.responses:
        for one in topic.partitions:
            name = topic.topic_id if version >= 13 else topic.topic
            end = one.diverging_epoch
            partitions.append(
                (
                    name,
                    one.partition_index,
                    one.error_code,
                    one.high_watermark,
                    one.log_start_offset,
                    (end.epoch, end.end_offset) if end.epoch >= 0 else None,
                    one.records,
                )
            )
    return response.error_code, response.session_id, partitions


def some_response(rng):
    def partition():
        one = Partition(
            partition_index=rng.randrange(100),
            error_code=rng.choice((0, 0, 1, 6, 74)),
            high_watermark=rng.randrange(-1, 1 << 62),
            last_stable_offset=rng.randrange(-1, 1 << 62),
            log_start_offset=rng.randrange(-1, 1 << 62),
            preferred_read_replica=rng.randrange(-1, 5),
            records=rng.choice((None, b"", rng.randbytes(rng.randrange(300)))),
            aborted_transactions=rng.choice((None, [], [Partition.AbortedTransactions(producer_id=5, first_offset=9)])),
        )
        if rng.random() < 0.3:
            one.diverging_epoch.epoch, one.diverging_epoch.end_offset = rng.randrange(9), rng.randrange(999)
        if rng.random() < 0.3:
            one.current_leader.leader_id = rng.randrange(9)
        if rng.random() < 0.1:
            one.snapshot_id.epoch = 3
        return one

    topics = [
        Topic(
            topic="täglich"[: rng.randrange(8)],
            topic_id=rng.randbytes(16),
            partitions=[partition() for _ in range(rng.randrange(4))],
        )
        for _ in range(rng.randrange(4))
    ]
    return FETCH.Response(session_id=rng.randrange(1 << 31), error_code=rng.choice((0, 70)), responses=topics)


def encoded(rng, version):
    message = some_response(rng)
    if version >= 16 and rng.random() < 0.3:
        message.node_endpoints = [FETCH.Response.NodeEndpoints(node_id=1, host="h", port=9)]
    for topic in message.responses:
        if version >= 13:
            topic.topic = ""
        else:
            topic.topic_id = bytes(16)
    return FETCH.encode_response(message, version)


@pytest.mark.parametrize("version", VERSIONS)
@given(seed=st.integers(0, 2**32))
def test_it_agrees_with_the_codec(version, seed):
    rng = random.Random(seed)
    start = rng.randrange(9)
    frame = memoryview(bytearray(rng.randbytes(start) + encoded(rng, version)))
    assert decode_fetch_response(frame, version, start) == expected(frame, version, start)


def test_records_are_views_of_the_frame():
    one = Topic(topic_id=b"i" * 16, partitions=[Partition(records=b"abc", aborted_transactions=None)])
    frame = memoryview(bytearray(FETCH.encode_response(FETCH.Response(responses=[one]), 17)))
    ((*_, records),) = decode_fetch_response(frame, 17, 0)[2]
    frame[frame.tobytes().index(b"abc")] = ord("x")
    assert records == b"xbc"


@pytest.mark.parametrize("version", VERSIONS)
@given(seed=st.integers(0, 2**32))
def test_broken_bytes_are_refused_where_the_codec_refuses_them(version, seed):
    rng = random.Random(seed)
    frame = bytearray(encoded(rng, version))
    for _ in range(rng.randrange(3)):
        frame[rng.randrange(len(frame))] = rng.randrange(256)
    frame = memoryview(frame)[: rng.randrange(len(frame) + 1)]
    try:
        decoded = decode_fetch_response(frame, version, 0)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            FETCH.decode_response(frame, version, 0)
        return
    try:
        wanted = expected(frame, version, 0)
    except ProtocolError:
        return  # the error is in a field that a follower skips, such as the nodes' addresses
    assert decoded == wanted


def test_other_versions_are_not_decoded():
    with pytest.raises(ValueError, match="12 to 17, not 11"):
        decode_fetch_response(b"", 11, 0)


@pytest.mark.parametrize("version", VERSIONS)
@given(seed=st.integers(0, 2**32))
def test_a_followers_requests_are_encoded_as_by_the_codec(version, seed):
    rng = random.Random(seed)
    by_id, has_state = version >= 13, version >= 15
    names = [rng.randbytes(16) if by_id else "täglich"[: rng.randrange(1, 8)] for _ in range(rng.randrange(4))]
    topics = {
        name: [
            (
                rng.randrange(1 << 31),
                (rng.randrange(9), rng.randrange(1 << 62), rng.randrange(-1, 9), rng.randrange(99)),
            )
            for _ in range(rng.randrange(1, 4))
        ]
        for name in names
    }
    forgotten = {name: [rng.randrange(1 << 31) for _ in range(rng.randrange(1, 4))] for name in names[:2]}
    broker, broker_epoch, session, epoch = rng.randrange(9), rng.randrange(-1, 1 << 62), rng.randrange(1 << 31), 7
    make, field = FETCH.Request, "topic_id" if by_id else "topic"
    message = make(
        replica_id=-1 if has_state else broker,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 24,
        session_id=session,
        session_epoch=epoch,
        topics=[
            make.Topics(
                **{field: name},
                partitions=[
                    make.Topics.Partitions(
                        partition=index,
                        current_leader_epoch=leader_epoch,
                        fetch_offset=offset,
                        last_fetched_epoch=last_epoch,
                        log_start_offset=start,
                        partition_max_bytes=1 << 20,
                    )
                    for index, (leader_epoch, offset, last_epoch, start) in partitions
                ],
            )
            for name, partitions in topics.items()
        ],
        forgotten_topics_data=[
            make.ForgottenTopicsData(**{field: name}, partitions=indexes) for name, indexes in forgotten.items()
        ],
    )
    if has_state:
        message.replica_state = make.ReplicaState(replica_id=broker, replica_epoch=broker_epoch)
    request = encode_fetch_request(
        version, broker, broker_epoch, 500, 1, 1 << 24, 1 << 20, session, epoch, topics, forgotten
    )
    assert request == FETCH.encode_request(message, version)


def test_requests_of_other_versions_and_with_wrong_topic_ids_are_refused():
    with pytest.raises(ValueError, match="12 to 17, not 11"):
        encode_fetch_request(11, 1, 1, 500, 1, 1, 1, 0, 0, {}, {})
    with pytest.raises(ValueError, match="not a topic id"):
        encode_fetch_request(13, 1, 1, 500, 1, 1, 1, 0, 0, {b"short": []}, {})
