"""Requests about groups and transactions that ask for too much, or for the same thing often, have a bounded cost."""

import time

import pytest

from kafkapy.coordinator.groups.coordinator import GroupCoordinator
from kafkapy.errors import Errors
from kafkapy.protocol.apis import (
    DESCRIBE_GROUPS,
    DESCRIBE_TRANSACTIONS,
    FIND_COORDINATOR,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
)
from kafkapy.server.handlers import markers, offset_commit, offset_delete, offset_fetch
from tests.server.lab import InlineReads

MANY = 3000


def topics_of(api, field="partitions"):
    make = api.Request.Topics
    if field == "partition_indexes":
        return [make(name="nowhere", partition_indexes=list(range(MANY)))]
    return [make(name="nowhere", partitions=[make.Partitions(partition_index=index) for index in range(MANY)])]


def members(make):
    return [make(member_id=str(number)) for number in range(MANY)]


def large_requests():
    commits, fetches = topics_of(OFFSET_COMMIT), topics_of(OFFSET_FETCH, "partition_indexes")
    groups = [OFFSET_FETCH.Request.Groups(group_id=str(number), topics=[]) for number in range(MANY)]
    protocols = [JOIN_GROUP.Request.Protocols(name=str(number), metadata=b"") for number in range(MANY)]
    producers = [WRITE_TXN_MARKERS.Request.Markers(producer_id=number, topics=[]) for number in range(MANY)]
    return {
        "OffsetCommit v0": (OFFSET_COMMIT, 0, {"topics": commits}, offset_commit, "_commit"),
        "OffsetCommit": (OFFSET_COMMIT, 8, {"topics": commits}, offset_commit, "_commit"),
        "TxnOffsetCommit": (
            TXN_OFFSET_COMMIT,
            3,
            {"topics": topics_of(TXN_OFFSET_COMMIT)},
            offset_commit,
            "_commit_in_transaction",
        ),
        "OffsetFetch v0": (OFFSET_FETCH, 0, {"topics": fetches}, offset_fetch, "_from_metadata"),
        "OffsetFetch": (OFFSET_FETCH, 7, {"topics": fetches}, offset_fetch, "_fetch"),
        "OffsetFetch of groups": (OFFSET_FETCH, 8, {"groups": groups}, offset_fetch, "_fetch"),
        "OffsetDelete": (OFFSET_DELETE, 0, {"topics": topics_of(OFFSET_DELETE)}, offset_delete, "_delete"),
        "JoinGroup": (JOIN_GROUP, 9, {"protocols": protocols}, GroupCoordinator, "join"),
        "SyncGroup": (
            SYNC_GROUP,
            3,
            {"assignments": members(SYNC_GROUP.Request.Assignments)},
            GroupCoordinator,
            "sync",
        ),
        "LeaveGroup": (LEAVE_GROUP, 5, {"members": members(LEAVE_GROUP.Request.Members)}, GroupCoordinator, "leave"),
        "WriteTxnMarkers": (WRITE_TXN_MARKERS, 1, {"markers": producers}, markers, "_write_all"),
    }


LARGE = large_requests()


@pytest.mark.parametrize("name", LARGE)
def test_a_large_request_does_not_hold_up_the_network_thread(wire, monkeypatch, name):
    api, version, fields, where, function = LARGE[name]
    seen = InlineReads(monkeypatch, where, function)
    wire.call(api, version, api.Request(**fields))
    assert len(seen.threads) == 1
    assert not seen.on_network()


def test_a_request_that_fails_in_the_pool_ends_its_connection(wire, monkeypatch):
    def fails(*args):
        raise ZeroDivisionError

    monkeypatch.setattr(offset_delete, "_delete", fails)
    wire.send(OFFSET_DELETE, 0, OFFSET_DELETE.Request(topics=topics_of(OFFSET_DELETE)))
    assert wire.closed()


def test_partitions_that_a_request_repeats_are_answered_once(wire):
    make = OFFSET_FETCH.Request.Groups
    twice = make.Topics(name="t", partition_indexes=[0, 1, 0, 0])
    group = make(group_id="once", topics=[twice, make.Topics(name="t", partition_indexes=[2, 1])])
    wire.call(FIND_COORDINATOR, 4, FIND_COORDINATOR.Request(key_type=0, coordinator_keys=["once"]))
    deadline = time.monotonic() + 30
    while True:
        (answer,) = wire.call(OFFSET_FETCH, 8, OFFSET_FETCH.Request(groups=[group, group])).groups
        if answer.error_code == Errors.NONE:
            break
        assert time.monotonic() < deadline, answer
    assert [[one.partition_index for one in topic.partitions] for topic in answer.topics] == [[0, 1, 2]]
    described = wire.call(DESCRIBE_GROUPS, 5, DESCRIBE_GROUPS.Request(groups=["once", "other", "once"])).groups
    assert [one.group_id for one in described] == ["once", "other"]
    ids = DESCRIBE_TRANSACTIONS.Request(transactional_ids=["once", "other", "once"])
    states = wire.call(DESCRIBE_TRANSACTIONS, 0, ids).transaction_states
    assert [one.transactional_id for one in states] == ["once", "other"]
