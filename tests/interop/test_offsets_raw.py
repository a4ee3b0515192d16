"""Requests about committed offsets, built by hand, with every error code: kafkapy and Apache Kafka answer alike."""

import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol import apis
from tests.harness import brokers
from tests.harness.group_wire import GROUP, GroupWire
from tests.harness.raw import Connection

NOTHING = (-1, -1, "", Errors.NONE)


@pytest.fixture
def wire(coordinator: brokers.Broker) -> Iterator[GroupWire]:
    connection = GroupWire(coordinator.bootstrap)
    yield connection
    connection.close()


@pytest.fixture
def topic(wire: GroupWire, topic_name: str) -> str:
    wire.make_topic(topic_name)
    return topic_name


@pytest.fixture
def group(wire: GroupWire, topic_name: str) -> str:
    name = f"group-{topic_name}"
    wire.find_coordinator(name)
    return name


# --- commit and fetch


@pytest.mark.parametrize("version", range(1, 10))
def test_committed_offsets_are_fetched_in_every_version(wire: GroupWire, topic: str, group: str, version: int) -> None:
    epoch: dict[str, Any] = {"committed_leader_epoch": 3} if version >= 6 else {}
    stamp: dict[str, Any] = {"commit_timestamp": int(time.time() * 1000) - 1000} if version == 1 else {}
    asked = {(topic, 0): (5, "why"), (topic, 1): (1 << 40, None), (topic, 2): 0}
    codes = wire.commit(group, asked, version=version, **epoch, **stamp)
    assert codes == dict.fromkeys(asked, Errors.NONE)
    leader_epoch = 3 if version >= 6 else -1
    for fetched in range(1, 10):
        shown = leader_epoch if fetched >= 5 else -1
        assert wire.fetch(group, {topic: [0, 1, 2, 3]}, version=fetched) == {
            (topic, 0): (5, shown, "why", Errors.NONE),
            (topic, 1): (1 << 40, shown, "", Errors.NONE),
            (topic, 2): (0, shown, "", Errors.NONE),
            (topic, 3): NOTHING,
        }
        if fetched >= 2:
            assert wire.fetch(group, None, version=fetched).keys() == asked.keys()


def test_the_last_commit_is_used_and_an_offset_may_go_back(wire: GroupWire, topic: str, group: str) -> None:
    for offset in (10, 20, 3):
        assert wire.commit(group, {(topic, 0): offset}) == {(topic, 0): Errors.NONE}
        assert wire.offsets(group) == {(topic, 0): offset}


def test_several_groups_are_fetched_at_once(wire: GroupWire, topic: str, group: str) -> None:
    request = apis.OFFSET_FETCH.Request
    for number in range(3):
        wire.find_coordinator(f"{group}-{number}")
        wire.commit(f"{group}-{number}", {(topic, number): number + 1})
    groups = [
        request.Groups(group_id=f"{group}-0", topics=None),
        request.Groups(group_id=f"{group}-1", topics=[request.Groups.Topics(name=topic, partition_indexes=[1, 2])]),
        request.Groups(group_id=f"{group}-2", topics=[]),
        request.Groups(group_id=f"{group}-unknown", topics=None),
    ]
    for version in (8, 9):
        answer = wire.call(apis.OFFSET_FETCH, version, request(groups=groups, require_stable=True))
        assert [one.group_id for one in answer.groups] == [one.group_id for one in groups]
        assert [one.error_code for one in answer.groups] == [Errors.NONE] * 4
        found = [
            {
                (topic.name, one.partition_index): one.committed_offset
                for topic in group.topics
                for one in topic.partitions
            }
            for group in answer.groups
        ]
        assert found == [{(topic, 0): 1}, {(topic, 1): 2, (topic, 2): -1}, {}, {}]


def test_a_missing_group_has_no_committed_offsets(wire: GroupWire, topic: str, group: str) -> None:
    assert wire.fetch(group, {topic: [0]}) == {(topic, 0): NOTHING}
    assert wire.fetch(group, {"no-such-topic": [7]}) == {("no-such-topic", 7): NOTHING}
    assert wire.fetch(group, None) == {}


def test_a_group_without_a_name_may_keep_offsets(wire: GroupWire, topic: str) -> None:
    wire.find_coordinator("x")  # the topic is there
    deadline = time.monotonic() + 20
    while (codes := wire.commit("", {(topic, 0): 5})) != {(topic, 0): Errors.NONE}:
        assert codes[topic, 0] in (Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.NOT_COORDINATOR)
        assert time.monotonic() < deadline
    assert wire.fetch("", {topic: [0]})[topic, 0][0] == 5
    assert wire.delete_offsets("", {topic: [0]})[0] == Errors.INVALID_GROUP_ID
    assert wire.commit_in_transaction("id", (1, 0), "", {(topic, 0): 5}) == {(topic, 0): Errors.INVALID_GROUP_ID}


def test_thousands_of_partitions_at_once(wire: GroupWire, topic: str, group: str) -> None:
    """The request names partitions repeatedly, and the last offset of each is committed."""
    many = [(topic, index % 4) for index in range(10_000)]
    request = apis.OFFSET_COMMIT.Request
    partitions = [
        request.Topics.Partitions(partition_index=index, committed_offset=number, committed_metadata="")
        for number, (_, index) in enumerate(many)
    ]
    message = request(group_id=group, member_id="", topics=[request.Topics(name=topic, partitions=partitions)])
    answer = wire.call(apis.OFFSET_COMMIT, 8, message)
    assert {one.error_code for one in answer.topics[0].partitions} == {Errors.NONE}
    assert wire.offsets(group) == {(topic, index): 9996 + index for index in range(4)}
    found = wire.fetch(group, {topic: [index % 4 for index in range(5_000)], "no-such-topic": list(range(5_000))})
    assert {offset for (name, _), (offset, *_) in found.items() if name == topic} == {9996, 9997, 9998, 9999}
    assert len(found) == 5_004


# --- refused requests


def test_unknown_topics_and_partitions_are_refused_one_by_one(wire: GroupWire, topic: str, group: str) -> None:
    asked = {(topic, 0): 1, (topic, 4): 1, (topic, -1): 1, ("no-such-topic", 0): 1, ("", 0): 1}
    unknown = Errors.UNKNOWN_TOPIC_OR_PARTITION
    for version in (2, 5, 9):
        assert wire.commit(group, asked, version=version) == {
            (topic, 0): Errors.NONE,
            (topic, 4): unknown,
            (topic, -1): unknown,
            ("no-such-topic", 0): unknown,
            ("", 0): unknown,
        }
    assert wire.offsets(group) == {(topic, 0): 1}


def test_metadata_that_are_too_long_are_refused_one_by_one(wire: GroupWire, topic: str, group: str) -> None:
    codes = wire.commit(
        group,
        {(topic, 0): (1, "m" * 4096), (topic, 1): (1, "m" * 4097), (topic, 2): (1, "é" * 4096), (topic, 3): 1},
    )
    assert codes == {
        (topic, 0): Errors.NONE,
        (topic, 1): Errors.OFFSET_METADATA_TOO_LARGE,
        (topic, 2): Errors.NONE,
        (topic, 3): Errors.NONE,
    }
    assert wire.offsets(group) == {(topic, 0): 1, (topic, 2): 1, (topic, 3): 1}
    assert wire.commit(group, {(topic, 0): (2, "m" * 32767)}) == {(topic, 0): Errors.OFFSET_METADATA_TOO_LARGE}
    assert wire.fetch(group, {topic: [0]})[topic, 0] == (1, -1, "m" * 4096, Errors.NONE)


def test_a_megabyte_of_metadata_closes_the_connection(coordinator: brokers.Broker, group: str) -> None:
    """In Kafka's protocol a string has at most 32,767 bytes, so this request is invalid."""
    metadata = uvarint((1 << 20) + 1) + b"m" * (1 << 20)
    partition = bytes(4) + bytes(8) + b"\xff" * 4 + metadata + b"\0"
    topic = uvarint(2) + b"t" + uvarint(2) + partition + b"\0"
    name = uvarint(len(group) + 1) + group.encode()
    body = name + b"\xff" * 4 + uvarint(1) + b"\0" + uvarint(2) + topic + b"\0"
    with Connection(coordinator.bootstrap) as connection:
        header = struct.pack(">hhi", apis.OFFSET_COMMIT.key, 9, 7) + b"\xff\xff" + b"\0"
        connection.send(struct.pack(">i", len(header) + len(body)) + header + body)
        assert connection.is_closed_by_broker()


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def test_a_generation_of_a_missing_group(wire: GroupWire, topic: str, group: str) -> None:
    assert wire.commit(group, {(topic, 0): 1}, generation=0) == {(topic, 0): Errors.ILLEGAL_GENERATION}
    assert wire.commit(group, {(topic, 0): 1}, generation=7, member="m") == {(topic, 0): Errors.ILLEGAL_GENERATION}
    assert wire.offsets(group) == {}
    assert wire.commit(group, {(topic, 0): 1}, member="whoever") == {(topic, 0): Errors.NONE}


def test_only_members_of_this_generation_commit(wire: GroupWire, topic: str, group: str) -> None:
    member, generation = wire.join(group, [topic])
    one = {(topic, 0): 1}
    assert wire.commit(group, one) == {(topic, 0): Errors.UNKNOWN_MEMBER_ID}
    assert wire.commit(group, one, member="nobody", generation=generation) == {(topic, 0): Errors.UNKNOWN_MEMBER_ID}
    assert wire.commit(group, one, member=member, generation=generation - 1) == {(topic, 0): Errors.ILLEGAL_GENERATION}
    assert wire.commit(group, one, member=member, generation=generation + 1) == {(topic, 0): Errors.ILLEGAL_GENERATION}
    assert wire.commit(group, one, member=member, generation=-1) == {(topic, 0): Errors.ILLEGAL_GENERATION}
    assert wire.offsets(group) == {}
    assert wire.commit(group, one, member=member, generation=generation) == {(topic, 0): Errors.NONE}
    assert wire.offsets(group) == one


def test_a_member_waits_with_its_commit_until_the_group_is_stable(wire: GroupWire, topic: str, group: str) -> None:
    member, generation = wire.join(group, [topic], sync=False)
    codes = wire.commit(group, {(topic, 0): 1}, member=member, generation=generation)
    assert codes == {(topic, 0): Errors.REBALANCE_IN_PROGRESS}


def test_a_replaced_instance_is_fenced(wire: GroupWire, topic: str, group: str) -> None:
    member, generation = wire.join(group, [topic], instance="i")
    one = {(topic, 0): 1}
    fenced = wire.commit(group, one, member="another", instance="i", generation=generation)
    assert fenced == {(topic, 0): Errors.FENCED_INSTANCE_ID}
    unknown = wire.commit(group, one, member=member, instance="j", generation=generation)
    assert unknown == {(topic, 0): Errors.UNKNOWN_MEMBER_ID}
    assert wire.commit(group, one, member=member, instance="i", generation=generation) == {(topic, 0): Errors.NONE}


# --- deletion


def test_offsets_are_deleted_and_the_group_with_the_last(wire: GroupWire, topic: str, group: str) -> None:
    wire.commit(group, {(topic, 0): 1, (topic, 1): 2})
    assert wire.delete_offsets(group, {topic: [1, 2, 9], "no-such-topic": [0]}) == (
        Errors.NONE,
        {
            (topic, 1): Errors.NONE,
            (topic, 2): Errors.NONE,
            (topic, 9): Errors.UNKNOWN_TOPIC_OR_PARTITION,
            ("no-such-topic", 0): Errors.UNKNOWN_TOPIC_OR_PARTITION,
        },
    )
    assert wire.offsets(group) == {(topic, 0): 1}
    assert wire.state_of(group) == "Empty"
    assert wire.delete_offsets(group, {topic: [0]}) == (Errors.NONE, {(topic, 0): Errors.NONE})
    assert wire.offsets(group) == {}
    assert wire.state_of(group) == "Dead"
    assert wire.delete_offsets(group, {topic: [0]})[0] == Errors.GROUP_ID_NOT_FOUND


def test_offsets_of_subscribed_topics_are_not_deleted(wire: GroupWire, topic: str, group: str) -> None:
    wire.make_topic(f"{topic}-other")
    wire.commit(group, {(topic, 0): 1, (f"{topic}-other", 0): 2})
    wire.join(group, [topic])
    assert wire.delete_offsets(group, {topic: [0], f"{topic}-other": [0]}) == (
        Errors.NONE,
        {(topic, 0): Errors.GROUP_SUBSCRIBED_TO_TOPIC, (f"{topic}-other", 0): Errors.NONE},
    )
    assert wire.offsets(group) == {(topic, 0): 1}


def test_the_offsets_of_a_deleted_topic_are_deleted(wire: GroupWire, topic: str, group: str) -> None:
    wire.make_topic(f"{topic}-other")
    wire.commit(group, {(topic, 0): 1, (topic, 3): 2, (f"{topic}-other", 0): 3})
    deleted = wire.call(apis.DELETE_TOPICS, 3, apis.DELETE_TOPICS.Request(topic_names=[topic], timeout_ms=20_000))
    assert deleted.responses[0].error_code == Errors.NONE
    deadline = time.monotonic() + 20
    while wire.offsets(group) != {(f"{topic}-other", 0): 3}:
        assert time.monotonic() < deadline, wire.offsets(group)
        time.sleep(0.05)


# --- transactions


@pytest.mark.parametrize("version", range(5))
def test_a_transaction_commits_its_offsets_with_its_end(wire: GroupWire, topic: str, group: str, version: int) -> None:
    name = f"id-{topic}"
    producer = wire.begin(name)
    wire.commit(group, {(topic, 0): 1})
    for commit, seen in ((False, 1), (True, 10)):
        wire.add_offsets(name, producer, group)
        codes = wire.commit_in_transaction(name, producer, group, {(topic, 0): 10, (topic, 1): 11}, version=version)
        assert codes == {(topic, 0): Errors.NONE, (topic, 1): Errors.NONE}
        unstable = (-1, -1, "", Errors.UNSTABLE_OFFSET_COMMIT)
        assert wire.fetch(group, {topic: [0, 1, 2]}, stable=True) == {
            (topic, 0): unstable,
            (topic, 1): unstable,
            (topic, 2): NOTHING,
        }
        assert wire.fetch(group, {topic: [0, 1]}) == {(topic, 0): (1, -1, "", Errors.NONE), (topic, 1): NOTHING}
        wire.end(name, producer, commit=commit)
        deadline = time.monotonic() + 20
        while wire.fetch(group, {topic: [0]}, stable=True)[topic, 0] != (seen, -1, "", Errors.NONE):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert wire.offsets(group) == {(topic, 0): 10, (topic, 1): 11}


def test_a_later_commit_outside_of_the_transaction_is_kept_however_the_transaction_ends(
    wire: GroupWire, topic: str, group: str
) -> None:
    name = f"id-{topic}"
    producer = wire.begin(name)
    wire.add_offsets(name, producer, group)
    wire.commit_in_transaction(name, producer, group, {(topic, 0): 10, (topic, 1): 11})
    wire.commit(group, {(topic, 0): 5})
    wire.end(name, producer, commit=True)
    deadline = time.monotonic() + 20
    while wire.offsets(group) != {(topic, 0): 5, (topic, 1): 11}:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_offsets_that_were_not_added_to_the_transaction_are_refused(wire: GroupWire, topic: str, group: str) -> None:
    name = f"id-{topic}"
    producer = wire.begin(name)
    one = {(topic, 0): 1}
    assert wire.commit_in_transaction(name, producer, group, one) == {(topic, 0): Errors.INVALID_TXN_STATE}
    abortable = wire.commit_in_transaction(name, producer, group, one, version=4)
    assert abortable == {(topic, 0): Errors.TRANSACTION_ABORTABLE}
    stranger = (producer[0] + 100_000, 0)
    codes = wire.commit_in_transaction(name, stranger, group, one)
    assert codes == {(topic, 0): Errors.INVALID_PRODUCER_ID_MAPPING}
    assert wire.offsets(group) == {}


def test_a_replaced_producer_is_fenced(wire: GroupWire, topic: str, group: str) -> None:
    name = f"id-{topic}"
    old = wire.begin(name)
    wire.add_offsets(name, old, group)
    assert wire.commit_in_transaction(name, old, group, {(topic, 0): 1}) == {(topic, 0): Errors.NONE}
    new = wire.begin(name)  # aborts the old producer's transaction
    assert new[1] > old[1]
    codes = wire.commit_in_transaction(name, old, group, {(topic, 0): 2})
    assert codes == {(topic, 0): Errors.INVALID_PRODUCER_EPOCH}
    assert wire.offsets(group) == {}


def test_transactional_commits_of_a_member_are_checked_like_its_other_commits(
    wire: GroupWire, topic: str, group: str
) -> None:
    name = f"id-{topic}"
    producer = wire.begin(name)
    member, generation = wire.join(group, [topic], instance="i")
    wire.add_offsets(name, producer, group)

    def commit(**who: Any) -> int:
        code: int = wire.commit_in_transaction(name, producer, group, {(topic, 0): 1}, **who)[topic, 0]
        return code

    assert commit(member="nobody", generation=generation) == Errors.UNKNOWN_MEMBER_ID
    assert commit(member=member, generation=generation + 1) == Errors.ILLEGAL_GENERATION
    assert commit(member="other", instance="i", generation=generation) == Errors.FENCED_INSTANCE_ID
    assert commit(member=member, instance="i", generation=generation) == Errors.NONE
    assert commit() == Errors.NONE  # without a member id
    wire.end(name, producer, commit=False)


def test_a_transactional_commit_with_a_generation_of_a_missing_group(wire: GroupWire, topic: str, group: str) -> None:
    name = f"id-{topic}"
    producer = wire.begin(name)
    wire.add_offsets(name, producer, group)
    codes = wire.commit_in_transaction(name, producer, group, {(topic, 0): 1}, member="m", generation=3)
    assert codes == {(topic, 0): Errors.UNKNOWN_MEMBER_ID}
    wire.end(name, producer, commit=False)


# --- version 0


def test_version_0_keeps_offsets_apart_from_those_of_groups(wire: GroupWire, topic: str, group: str) -> None:
    assert wire.fetch(group, {topic: [0]}, version=0) == {(topic, 0): (-1, -1, "", Errors.UNKNOWN_TOPIC_OR_PARTITION)}
    asked = {(topic, 0): (5, "not kept"), (topic, 1): 1 << 40, ("no-such-topic", 0): 1, (topic, 2): (1, "m" * 4097)}
    for _ in range(2):
        assert wire.commit(group, asked, version=0) == {
            (topic, 0): Errors.NONE,
            (topic, 1): Errors.NONE,
            ("no-such-topic", 0): Errors.UNKNOWN_TOPIC_OR_PARTITION,
            (topic, 2): Errors.OFFSET_METADATA_TOO_LARGE,
        }
    unknown = (-1, -1, "", Errors.UNKNOWN_TOPIC_OR_PARTITION)
    assert wire.fetch(group, {topic: [0, 1, 2, 9], "no-such-topic": [0]}, version=0) == {
        (topic, 0): (5, -1, "", Errors.NONE),
        (topic, 1): (1 << 40, -1, "", Errors.NONE),
        (topic, 2): unknown,
        (topic, 9): unknown,
        ("no-such-topic", 0): unknown,
    }
    assert wire.offsets(group) == {}


@pytest.mark.parametrize("name", ["", ".", "..", "a/../b", "a//b", "a\0b"])
def test_version_0_refuses_groups_that_cannot_be_part_of_a_path(wire: GroupWire, topic: str, name: str) -> None:
    assert wire.commit(name, {(topic, 0): 1}, version=0) == {(topic, 0): Errors.UNKNOWN_SERVER_ERROR}
    assert wire.fetch(name, {topic: [0]}, version=0)[topic, 0][3] == Errors.UNKNOWN_SERVER_ERROR


def test_version_0_accepts_a_group_with_a_slash(wire: GroupWire, topic: str) -> None:
    assert wire.commit(f"{topic}/b", {(topic, 0): 1}, version=0) == {(topic, 0): Errors.NONE}
    assert wire.fetch(f"{topic}/b", {topic: [0]}, version=0)[topic, 0][0] == 1


def test_coordinators_are_found_for_groups_with_a_name(wire: GroupWire) -> None:
    request = apis.FIND_COORDINATOR.Request(key="some-group", key_type=GROUP)
    answer = wire.until(apis.FIND_COORDINATOR, 2, request)
    assert answer.error_code == Errors.NONE
