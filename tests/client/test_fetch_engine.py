"""Fetch requests and the reading of their responses, for all consumers."""

import pytest

from kafkapy.client.fetching.engine import Turns, fetch_request, fetched_partitions
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol import apis

RESPONSE = apis.FETCH.Response
PARTITION = RESPONSE.Responses.Partitions


def response_of(*partitions, **more):
    return RESPONSE(responses=[RESPONSE.Responses(topic="t", partitions=list(partitions))], **more)


def test_a_request_keeps_the_order_of_partitions_within_a_topic():
    wanted = [(("a", 1), 10, 100), (("b", 0), 20, 200), (("a", 0), 30, 300)]
    request = fetch_request(wanted, max_wait_ms=7, min_bytes=2, max_bytes=1000, isolation=1, rack="r")
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (7, 2, 1000)
    assert (request.isolation_level, request.rack_id) == (1, "r")
    assert [
        (topic.topic, one.partition, one.fetch_offset, one.partition_max_bytes)
        for topic in request.topics
        for one in topic.partitions
    ] == [("a", 1, 10, 100), ("a", 0, 30, 300), ("b", 0, 20, 200)]


def test_each_partition_comes_first_once_in_a_round_of_turns():
    turns = Turns()
    orders = [turns.next("abc") for _ in range(3)]
    assert sorted(order[0] for order in orders) == ["a", "b", "c"]
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert turns.next("a") == ["a"]


def test_a_partition_has_its_data_offsets_and_aborted_transactions_or_its_error():
    aborted = PARTITION.AbortedTransactions(producer_id=7, first_offset=3)
    full = PARTITION(
        partition_index=1,
        high_watermark=9,
        last_stable_offset=8,
        aborted_transactions=[aborted],
        preferred_read_replica=2,
        records=b"xy",
    )
    failed = PARTITION(partition_index=2, error_code=Errors.NOT_LEADER_OR_FOLLOWER, records=None)
    first, second = fetched_partitions(response_of(full, failed))
    assert (first.where, bytes(first.data), first.high_watermark, first.last_stable_offset) == (("t", 1), b"xy", 9, 8)
    assert first.aborted == [(7, 3)]
    assert (first.replica, second.replica) == (2, -1)
    assert (second.error_code, bytes(second.data), second.aborted) == (Errors.NOT_LEADER_OR_FOLLOWER, b"", [])


def test_an_error_of_the_whole_response_is_raised():
    with pytest.raises(KafkaError) as raised:
        fetched_partitions(response_of(error_code=Errors.UNKNOWN_SERVER_ERROR))
    assert raised.value.code == Errors.UNKNOWN_SERVER_ERROR
