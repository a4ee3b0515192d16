"""The group protocol, request by request: every version and every error code, as in Kafka 3.9.

The same requests are sent to Apache Kafka with KAFKAPY_INTEROP_BROKER=kafka, so that the tests require only what Apache
Kafka does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kafkapy.client.connection import Connection
from kafkapy.errors import Errors
from kafkapy.protocol.apis import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
    Api,
)
from tests.harness import brokers
from tests.harness.waiting import eventually

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.max.session.timeout.ms": "60000",
    "group.max.size": "3",
    "offsets.topic.num.partitions": "3",
}
NOT_YET = (
    Errors.COORDINATOR_LOAD_IN_PROGRESS,
    Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_COORDINATOR,
    Errors.LEADER_NOT_AVAILABLE,
)
SOON = 15.0  # seconds: more than any step of these tests takes
QUIET = 0.3  # seconds within which a response would have arrived


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    running = brokers.start(tmp_path_factory.mktemp("groups"), SETTINGS)
    yield running
    running.stop()


_numbers = count(1)


@pytest.fixture
def group(broker: brokers.Broker) -> Iterator[Clients]:
    """Return clients of a new group, when its coordinator is available."""
    clients = Clients(broker, f"group-{next(_numbers)}")
    clients.wait_for_coordinator()
    yield clients
    clients.close()


class Clients:
    """The connections of one test, and requests about one group."""

    def __init__(self, broker: brokers.Broker, name: str) -> None:
        self.broker = broker
        self.name = name
        self._open: list[Connection] = []
        self.admin = self.connect()

    def connect(self) -> Connection:
        connection = Connection("127.0.0.1", self.broker.port, client_id="raw")
        self._open.append(connection)
        return connection

    def close(self) -> None:
        for connection in self._open:
            connection.close()

    def wait_for_coordinator(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            found = self.admin.call(FIND_COORDINATOR, FIND_COORDINATOR.Request(key=self.name), at_most=3)
            code = found.error_code or self.describe(0).error_code
            if code not in NOT_YET:
                assert code == Errors.NONE
                return
            assert time.monotonic() < deadline, f"no coordinator after 30 s: error {code}"
            time.sleep(0.05)

    def member(self, instance: str | None = None, **how: Any) -> Member:
        return Member(self, instance, **how)

    def describe(self, version: int | None = None) -> Any:
        request = DESCRIBE_GROUPS.Request(groups=[self.name])
        return self.admin.call(DESCRIBE_GROUPS, request, at_most=version).groups[0]

    def delete(self, *names: str, version: int | None = None) -> dict[str, int]:
        request = DELETE_GROUPS.Request(groups_names=list(names) or [self.name])
        return {
            one.group_id: one.error_code for one in self.admin.call(DELETE_GROUPS, request, at_most=version).results
        }

    def leave(self, *leaving: tuple[str, str | None], version: int | None = None) -> Any:
        """Send a LeaveGroup request for these (member id, instance id) pairs."""
        members = [LEAVE_GROUP.Request.Members(member_id=id, group_instance_id=instance) for id, instance in leaving]
        request = LEAVE_GROUP.Request(group_id=self.name, members=members)
        return self.admin.call(LEAVE_GROUP, request, at_most=version)

    def stable(self, instances: Sequence[str | None], **how: Any) -> list[Member]:
        """Return members in one generation, with the leader first. Each member's assignment is its number."""
        members = [self.member(instance, **how) for instance in instances]
        for member in members:
            member.take_an_id()
        return gather(members)


class Member:
    """A member with its own connection. Its requests have the ids of its last responses, unless given otherwise."""

    def __init__(
        self,
        clients: Clients,
        instance: str | None,
        *,
        protocols: Sequence[tuple[str, bytes]] = (("range", b"r"),),
        session_ms: int = 30_000,
        rebalance_ms: int = 30_000,
    ) -> None:
        self.clients = clients
        self.connection = clients.connect()
        self.instance = instance
        self.id = ""
        self.generation = -1
        self.protocols = protocols
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms

    # --- requests: sent only, or sent and answered

    def send_join(self, version: int | None = None, **other: Any) -> None:
        protocols = other.pop("protocols", self.protocols)
        fields: dict[str, Any] = {
            "group_id": self.clients.name,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "session_timeout_ms": self.session_ms,
            "rebalance_timeout_ms": self.rebalance_ms,
            "protocol_type": "consumer",
            "protocols": [JOIN_GROUP.Request.Protocols(name=name, metadata=said) for name, said in protocols],
            **other,
        }
        self.connection.send(JOIN_GROUP, JOIN_GROUP.Request(**fields), at_most=version)

    def join(self, version: int | None = None, **other: Any) -> Any:
        self.send_join(version, **other)
        return self.joined()

    def joined(self) -> Any:
        answer = self.answer()
        if answer.error_code == Errors.NONE:
            self.id, self.generation = answer.member_id, answer.generation_id
        return answer

    def take_an_id(self) -> None:
        if self.instance is None:
            answer = self.join()
            assert answer.error_code == Errors.MEMBER_ID_REQUIRED
            self.id = answer.member_id

    def send_sync(self, assignments: dict[str, bytes] | None = None, version: int | None = None, **other: Any) -> None:
        given = [
            SYNC_GROUP.Request.Assignments(member_id=id, assignment=mine) for id, mine in (assignments or {}).items()
        ]
        fields: dict[str, Any] = {
            "group_id": self.clients.name,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": given,
            **other,
        }
        self.connection.send(SYNC_GROUP, SYNC_GROUP.Request(**fields), at_most=version)

    def sync(self, assignments: dict[str, bytes] | None = None, version: int | None = None, **other: Any) -> Any:
        self.send_sync(assignments, version, **other)
        return self.answer()

    def heartbeat(self, version: int | None = None, **other: Any) -> int:
        fields: dict[str, Any] = {
            "group_id": self.clients.name,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
            **other,
        }
        answer = self.connection.call(HEARTBEAT, HEARTBEAT.Request(**fields), at_most=version)
        return int(answer.error_code)

    def leave(self) -> None:
        answer = self.clients.leave((self.id, self.instance))
        assert [one.error_code for one in answer.members] == [Errors.NONE]

    def answer(self) -> Any:
        return self.connection.receive(SOON)[1]

    @property
    def waits(self) -> bool:
        """True if there is no response to the last request within QUIET seconds."""
        return not self.connection.wait_for_answer(QUIET)


def gather(members: Sequence[Member]) -> list[Member]:
    """Let all members join one generation, with the first as leader. Assign each member its number."""
    first, *others = members
    assert first.join().error_code == Errors.NONE  # alone, so the group does not wait for others
    if others:
        for member in others:
            member.send_join()
        eventually(lambda: len(first.clients.describe().members) == len(members))
        first.send_join()
        assert {member.joined().error_code for member in members} == {Errors.NONE}
    assert len({member.generation for member in members}) == 1
    for member in others:
        member.send_sync()
    first.send_sync({member.id: str(number).encode() for number, member in enumerate(members)})
    for number, member in enumerate(members):
        answer = member.answer()
        assert (answer.error_code, answer.assignment) == (Errors.NONE, str(number).encode())
    return list(members)


def versions(api: Api) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", range(api.min_version, api.max_version + 1))


# --- every version


@versions(JOIN_GROUP)
def test_join_in_every_version(group: Clients, version: int) -> None:
    member = group.member()
    other: dict[str, Any] = {"rebalance_timeout_ms": -1} if version == 0 else {}
    answer = member.join(version, **other)
    if version >= 4:
        assert (answer.error_code, answer.generation_id) == (Errors.MEMBER_ID_REQUIRED, -1)
        assert (answer.protocol_name, answer.leader, answer.members) == (None if version >= 7 else "", "", [])
        member.id = answer.member_id
        answer = member.join(version)
    assert answer.error_code == Errors.NONE
    assert (answer.generation_id, answer.protocol_name) == (1, "range")
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert answer.member_id == answer.leader == member.id
    assert answer.member_id.startswith("raw-")
    assert [(one.member_id, one.metadata) for one in answer.members] == [(member.id, b"r")]
    assert not answer.skip_assignment


@versions(SYNC_GROUP)
def test_sync_in_every_version(group: Clients, version: int) -> None:
    (member,) = group.stable([None])
    answer = member.sync(version=version, **({} if version >= 5 else {"protocol_type": None, "protocol_name": None}))
    assert (answer.error_code, answer.assignment) == (Errors.NONE, b"0")
    expected = ("consumer", "range") if version >= 5 else (None, None)
    assert (answer.protocol_type, answer.protocol_name) == expected


@versions(HEARTBEAT)
def test_heartbeat_in_every_version(group: Clients, version: int) -> None:
    (member,) = group.stable([None])
    assert member.heartbeat(version) == Errors.NONE
    assert member.heartbeat(version, generation_id=7) == Errors.ILLEGAL_GENERATION


@versions(LEAVE_GROUP)
def test_leave_in_every_version(group: Clients, version: int) -> None:
    (member,) = group.stable([None])
    if version >= 3:
        answer = group.leave((member.id, None), ("nobody", None), version=version)
        assert answer.error_code == Errors.NONE
        assert [(one.member_id, one.error_code) for one in answer.members] == [
            (member.id, Errors.NONE),
            ("nobody", Errors.UNKNOWN_MEMBER_ID),
        ]
    else:
        for expected in (Errors.NONE, Errors.UNKNOWN_MEMBER_ID):
            request = LEAVE_GROUP.Request(group_id=group.name, member_id=member.id)
            assert group.admin.call(LEAVE_GROUP, request, at_most=version).error_code == expected
    assert group.describe().group_state == "Empty"


@versions(DESCRIBE_GROUPS)
def test_describe_in_every_version(group: Clients, version: int) -> None:
    (member,) = group.stable(["i1"])
    found = group.describe(version)
    assert (found.error_code, found.group_id, found.group_state) == (Errors.NONE, group.name, "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    assert found.authorized_operations == -(2**31)
    (one,) = found.members
    assert (one.member_id, one.client_id, one.client_host) == (member.id, "raw", "/127.0.0.1")
    assert one.group_instance_id == ("i1" if version >= 4 else None)
    assert (one.member_metadata, one.member_assignment) == (b"r", b"0")


@versions(LIST_GROUPS)
def test_list_in_every_version(group: Clients, version: int) -> None:
    group.stable([None])
    answer = group.admin.call(LIST_GROUPS, LIST_GROUPS.Request(), at_most=version)
    assert answer.error_code == Errors.NONE
    (found,) = (one for one in answer.groups if one.group_id == group.name)
    assert found.protocol_type == "consumer"
    assert found.group_state == ("Stable" if version >= 4 else "")
    assert found.group_type == ("classic" if version >= 5 else "")


@versions(DELETE_GROUPS)
def test_delete_in_every_version(group: Clients, version: int) -> None:
    (member,) = group.stable([None])
    assert group.delete(version=version) == {group.name: Errors.NON_EMPTY_GROUP}
    member.leave()
    assert group.delete(group.name, "nobody", version=version) == {
        group.name: Errors.NONE,
        "nobody": Errors.GROUP_ID_NOT_FOUND,
    }
    assert group.describe().group_state == "Dead"


# --- JoinGroup


@pytest.mark.parametrize("session_ms", [499, 60_001, 0, -1])
def test_a_session_timeout_out_of_bounds(group: Clients, session_ms: int) -> None:
    answer = group.member(session_ms=session_ms).join()
    assert (answer.error_code, answer.generation_id, answer.member_id) == (Errors.INVALID_SESSION_TIMEOUT, -1, "")
    assert group.describe().group_state == "Dead"


def test_an_unknown_member(group: Clients) -> None:
    member = group.member()
    member.id, member.generation = "nobody", 1
    answer = member.join()
    assert (answer.error_code, answer.member_id, answer.leader) == (Errors.UNKNOWN_MEMBER_ID, "nobody", "")
    assert answer.generation_id == -1
    assert group.describe().group_state == "Dead"
    assert member.sync().error_code == Errors.UNKNOWN_MEMBER_ID
    assert member.heartbeat() == Errors.UNKNOWN_MEMBER_ID
    group.stable([None])
    assert member.join().error_code == Errors.UNKNOWN_MEMBER_ID
    assert member.sync().error_code == Errors.UNKNOWN_MEMBER_ID
    assert member.heartbeat() == Errors.UNKNOWN_MEMBER_ID
    assert [one.error_code for one in group.leave(("nobody", None)).members] == [Errors.UNKNOWN_MEMBER_ID]
    assert group.describe().group_state == "Stable"


def test_a_group_without_a_name(group: Clients) -> None:
    group.name = ""
    member = group.member()
    assert member.join().error_code == Errors.INVALID_GROUP_ID
    assert member.sync().error_code == Errors.INVALID_GROUP_ID
    assert member.heartbeat() == Errors.INVALID_GROUP_ID
    answer = group.leave(("nobody", None))
    assert (answer.error_code, answer.members) == (Errors.INVALID_GROUP_ID, [])
    assert group.describe().group_state == "Dead"
    assert group.delete("") == {"": Errors.GROUP_ID_NOT_FOUND}


def test_inconsistent_protocols(group: Clients) -> None:
    assert group.member().join(protocols=()).error_code == Errors.INCONSISTENT_GROUP_PROTOCOL
    assert group.member().join(protocol_type="").error_code == Errors.INCONSISTENT_GROUP_PROTOCOL
    (member,) = group.stable([None])
    for protocols, kind in (((("sticky", b""),), "consumer"), ((("range", b""),), "connect"), ((), "consumer")):
        answer = group.member().join(protocols=protocols, protocol_type=kind)
        assert (answer.error_code, answer.member_id) == (Errors.INCONSISTENT_GROUP_PROTOCOL, "")
        answer = member.join(protocols=protocols, protocol_type=kind)
        if kind == "connect" or not protocols:
            assert (answer.error_code, answer.member_id) == (Errors.INCONSISTENT_GROUP_PROTOCOL, member.id)
            continue
        break
    assert group.describe().group_id == group.name


def test_more_members_than_a_group_may_have(group: Clients) -> None:
    group.stable(["i1", "i2", "i3"])
    refused = group.member("i4").join()
    assert (refused.error_code, refused.member_id) == (Errors.GROUP_MAX_SIZE_REACHED, "")
    refused = group.member().join()
    assert (refused.error_code, refused.member_id) == (Errors.GROUP_MAX_SIZE_REACHED, "")
    assert group.describe().group_state == "Stable"


def test_a_static_member_cannot_use_the_id_of_a_dynamic_one(group: Clients) -> None:
    member = group.member()
    member.take_an_id()
    assert member.join(group_instance_id="i1").error_code == Errors.UNKNOWN_SERVER_ERROR
    found = group.describe()
    assert (found.group_state, found.members) == ("Empty", [])
    assert member.join().error_code == Errors.NONE


def test_a_rebalance_waits_for_a_new_member_id_until_its_session_expires(group: Clients) -> None:
    (member,) = group.stable([None])
    never = group.member(session_ms=1500)
    never.take_an_id()
    member.send_join()
    assert member.waits
    assert member.joined().generation_id == 2


def test_a_follower_that_joins_again_gets_the_current_generation(group: Clients) -> None:
    leader, follower = group.stable([None, None])
    answer = follower.join()
    assert (answer.error_code, answer.generation_id, answer.members) == (Errors.NONE, leader.generation, [])
    assert answer.leader == leader.id
    assert group.describe().group_state == "Stable"


def test_a_leader_that_joins_again_starts_a_rebalance(group: Clients) -> None:
    leader, follower = group.stable([None, None])
    leader.send_join()
    assert leader.waits
    assert follower.heartbeat() == Errors.REBALANCE_IN_PROGRESS
    assert follower.sync().error_code == Errors.REBALANCE_IN_PROGRESS
    found = group.describe()
    assert (found.group_state, found.protocol_data) == ("PreparingRebalance", "")
    assert {(one.member_metadata, one.member_assignment) for one in found.members} == {(b"", b"")}
    follower.send_join()
    assert leader.joined().generation_id == follower.joined().generation_id
    assert group.describe().group_state == "CompletingRebalance"


def test_a_member_with_changed_metadata_starts_a_rebalance(group: Clients) -> None:
    leader, follower = group.stable([None, None])
    follower.send_join(protocols=(("range", b"other"),))
    assert follower.waits
    leader.send_join()
    answer = leader.joined()
    assert {one.metadata for one in answer.members} == {b"r", b"other"}
    assert follower.joined().generation_id == answer.generation_id


def test_the_protocol_with_the_most_votes_is_chosen(group: Clients) -> None:
    both, other = (("a", b""), ("b", b"")), (("b", b""), ("a", b""))
    members = [group.member(protocols=protocols) for protocols in (both, other, other)]
    for member in members:
        member.take_an_id()
    members[0].join()
    for member in reversed(members):  # the first rejoins last, after the others began a rebalance
        member.send_join()
        eventually(lambda known=member: known.id in {one.member_id for one in group.describe().members})
    assert {member.joined().protocol_name for member in members} == {"b"}


def test_a_rebalance_continues_without_members_that_do_not_join_in_time(group: Clients) -> None:
    leader, lost = group.stable([None, None], rebalance_ms=1000)
    answer = leader.join()
    assert [one.member_id for one in answer.members] == [leader.id]
    assert lost.heartbeat() == Errors.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_join_in_time_is_replaced(group: Clients) -> None:
    leader, other = group.stable([None, None], rebalance_ms=1000)
    answer = other.join(protocols=(("range", b"new"),))
    assert answer.leader == other.id
    assert [one.member_id for one in answer.members] == [other.id]
    assert leader.heartbeat() == Errors.UNKNOWN_MEMBER_ID


# --- SyncGroup


def test_an_inconsistent_sync(group: Clients) -> None:
    (member,) = group.stable([None])
    assert member.sync(generation_id=0).error_code == Errors.ILLEGAL_GENERATION
    assert member.sync(generation_id=member.generation + 1).error_code == Errors.ILLEGAL_GENERATION
    assert member.sync(protocol_name="sticky").error_code == Errors.INCONSISTENT_GROUP_PROTOCOL
    assert member.sync(protocol_type="connect").error_code == Errors.INCONSISTENT_GROUP_PROTOCOL
    for missing in ("protocol_type", "protocol_name"):
        answer = member.sync(**{missing: None})
        assert (answer.error_code, answer.assignment) == (Errors.INCONSISTENT_GROUP_PROTOCOL, b"")
    assert member.sync(group_instance_id="i1").error_code == Errors.UNKNOWN_MEMBER_ID
    assert member.sync().error_code == Errors.NONE


def test_a_member_missing_from_the_assignment_gets_nothing(group: Clients) -> None:
    first, second = (group.member() for _ in range(2))
    first.take_an_id()
    second.take_an_id()
    first.join()
    second.send_join()
    eventually(lambda: len(group.describe().members) == 2)
    first.send_join()
    assert first.joined().generation_id == second.joined().generation_id
    second.send_sync()
    assert second.waits
    assert first.heartbeat() == Errors.NONE
    assert first.sync({first.id: b"all", "nobody": b"?"}).assignment == b"all"
    answer = second.answer()
    assert (answer.error_code, answer.assignment) == (Errors.NONE, b"")


def test_members_that_never_sync_are_removed(group: Clients) -> None:
    first, second = group.stable([None, None])
    # The test waits for this time-out once. It must also be long enough for each of the first member's next requests.
    first.rebalance_ms = second.rebalance_ms = 3000
    second.send_join(protocols=(("range", b"new"),))
    first.send_join()
    assert first.joined().generation_id == second.joined().generation_id
    assert first.sync({first.id: b"1", second.id: b"2"}).error_code == Errors.NONE
    eventually(lambda: first.heartbeat() == Errors.REBALANCE_IN_PROGRESS)
    assert second.heartbeat() == Errors.UNKNOWN_MEMBER_ID
    assert first.join().error_code == Errors.NONE


def test_a_rebalance_ends_the_wait_for_an_assignment(group: Clients) -> None:
    first, second = group.stable([None, None])
    second.send_join(protocols=(("range", b"new"),))
    first.send_join()
    assert first.joined().generation_id == second.joined().generation_id
    second.send_sync()
    assert second.waits
    first.leave()
    assert second.answer().error_code == Errors.REBALANCE_IN_PROGRESS
    assert second.join().error_code == Errors.NONE


# --- sessions, leaving


def test_a_member_without_heartbeats_is_removed(group: Clients) -> None:
    first, second = group.member(), group.member(session_ms=2000)
    first.take_an_id()
    second.take_an_id()
    gather([first, second])
    eventually(lambda: first.heartbeat() != Errors.NONE)
    assert second.heartbeat() == Errors.UNKNOWN_MEMBER_ID
    assert first.join(session_timeout_ms=1000).error_code == Errors.NONE
    eventually(lambda: group.describe().group_state == "Empty")
    assert first.heartbeat() == Errors.UNKNOWN_MEMBER_ID


def test_the_last_member_that_leaves_leaves_an_empty_group(group: Clients) -> None:
    (member,) = group.stable([None])
    member.leave()
    found = group.describe()
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Empty", "consumer", "")
    assert member.heartbeat() == Errors.UNKNOWN_MEMBER_ID
    again = group.member()
    again.take_an_id()
    assert again.join().generation_id == member.generation + 2


def test_members_leave_by_their_instances(group: Clients) -> None:
    first, _ = group.stable(["i1", "i2"])
    answer = group.leave(("", "i2"), ("", "i9"), ("", None), ("nobody", "i1"), (first.id, "i9"))
    assert [(one.group_instance_id, one.error_code) for one in answer.members] == [
        ("i2", Errors.NONE),
        ("i9", Errors.UNKNOWN_MEMBER_ID),
        (None, Errors.UNKNOWN_MEMBER_ID),
        ("i1", Errors.FENCED_INSTANCE_ID),
        ("i9", Errors.UNKNOWN_MEMBER_ID),
    ]
    assert first.heartbeat() == Errors.REBALANCE_IN_PROGRESS


def test_a_member_id_that_has_not_joined_may_leave(group: Clients) -> None:
    (member,) = group.stable([None])
    never = group.member()
    never.take_an_id()
    never.leave()
    assert group.describe().group_state == "Stable"
    assert never.join().error_code == Errors.UNKNOWN_MEMBER_ID
    assert member.heartbeat() == Errors.NONE


# --- static members


def test_a_static_member_that_rejoins_keeps_its_assignment(group: Clients) -> None:
    leader, follower = group.stable(["i1", "i2"])
    back = group.member("i2")
    answer = back.join()
    assert (answer.error_code, answer.generation_id, answer.leader) == (Errors.NONE, leader.generation, leader.id)
    assert (answer.members, answer.skip_assignment) == ([], False)
    assert back.id != follower.id
    assert back.id.startswith("i2-")
    assert group.describe().group_state == "Stable"
    assert back.sync().assignment == b"1"
    assert follower.heartbeat() == Errors.FENCED_INSTANCE_ID
    assert follower.sync().error_code == Errors.FENCED_INSTANCE_ID
    assert follower.join().error_code == Errors.FENCED_INSTANCE_ID
    assert [one.error_code for one in group.leave((follower.id, "i2")).members] == [Errors.FENCED_INSTANCE_ID]
    assert [one.error_code for one in group.leave((follower.id, None)).members] == [Errors.UNKNOWN_MEMBER_ID]
    assert follower.heartbeat(group_instance_id=None) == Errors.UNKNOWN_MEMBER_ID
    assert leader.heartbeat() == back.heartbeat() == Errors.NONE


@pytest.mark.parametrize("version", [8, 9])
def test_a_static_leader_that_rejoins_computes_no_assignment(group: Clients, version: int) -> None:
    leader, _ = group.stable(["i1", "i2"])
    back = group.member("i1")
    answer = back.join(version)
    assert answer.error_code == Errors.NONE
    assert answer.skip_assignment == (version == 9)
    assert answer.leader == (back.id if version == 9 else leader.id)
    assert len(answer.members) == (2 if version == 9 else 0)
    assert back.sync().assignment == b"0"


def test_a_static_member_that_rejoins_during_a_rebalance_fences_its_waiting_predecessor(group: Clients) -> None:
    leader, follower = group.stable(["i1", "i2"])
    leader.send_join()
    assert leader.waits
    back = group.member("i1")
    back.send_join()
    answer = leader.answer()
    assert (answer.error_code, answer.member_id) == (Errors.FENCED_INSTANCE_ID, leader.id)
    follower.send_join()
    answer = back.joined()
    assert answer.generation_id == follower.joined().generation_id
    assert answer.leader == back.id


def test_a_static_member_that_rejoins_before_the_assignment_restarts_the_rebalance(group: Clients) -> None:
    leader, follower = group.stable(["i1", "i2"])
    leader.send_join()
    assert leader.waits
    follower.send_join()
    assert leader.joined().generation_id == follower.joined().generation_id
    follower.send_sync()
    assert follower.waits
    back = group.member("i2")
    back.send_join()
    assert follower.answer().error_code == Errors.FENCED_INSTANCE_ID
    assert leader.heartbeat() == Errors.REBALANCE_IN_PROGRESS
    leader.send_join()
    assert leader.joined().generation_id == back.joined().generation_id


def test_a_static_member_stays_in_the_group_until_its_session_expires(group: Clients) -> None:
    leader, absent = group.stable(["i1", "i2"], rebalance_ms=1000)
    answer = leader.join()
    assert {one.member_id for one in answer.members} == {leader.id, absent.id}
    assert {one.group_instance_id for one in answer.members} == {"i1", "i2"}


def test_an_unknown_instance_id(group: Clients) -> None:
    (member,) = group.stable([None])
    assert member.heartbeat(group_instance_id="i1") == Errors.UNKNOWN_MEMBER_ID
    assert member.join(group_instance_id="i1").error_code == Errors.UNKNOWN_MEMBER_ID


# --- describing, listing, deleting


def test_a_missing_group_is_dead(group: Clients) -> None:
    found = group.describe()
    assert (found.error_code, found.group_state, found.members) == (Errors.NONE, "Dead", [])
    assert (found.protocol_type, found.protocol_data) == ("", "")


def test_authorized_operations_of_a_group(group: Clients) -> None:
    request = DESCRIBE_GROUPS.Request(groups=[group.name], include_authorized_operations=True)
    assert group.admin.call(DESCRIBE_GROUPS, request).groups[0].authorized_operations == 1 << 3 | 1 << 6 | 1 << 8


@pytest.mark.parametrize(
    ("states", "types", "is_listed"),
    [
        ([], [], True),
        (["Stable"], [], True),
        (["stable", "Empty"], ["CLASSIC"], True),
        (["Empty"], [], False),
        (["no such state"], [], False),
        ([], ["consumer"], False),
        ([], ["no such type"], False),
        ([], ["consumer", "classic"], True),
    ],
)
def test_groups_are_listed_by_state_and_type(
    group: Clients, states: list[str], types: list[str], is_listed: bool
) -> None:
    group.stable([None])
    answer = group.admin.call(LIST_GROUPS, LIST_GROUPS.Request(states_filter=states, types_filter=types))
    assert answer.error_code == Errors.NONE
    assert (group.name in {one.group_id for one in answer.groups}) == is_listed


def test_a_deleted_group_can_be_created_again(group: Clients) -> None:
    (member,) = group.stable([None])
    member.leave()
    assert group.delete(group.name, group.name) == {group.name: Errors.NONE}
    assert group.delete() == {group.name: Errors.GROUP_ID_NOT_FOUND}
    again = group.member()
    again.take_an_id()
    assert again.join().generation_id == 1


def test_many_groups_are_deleted_by_one_request(group: Clients) -> None:
    (member,) = group.stable([None])
    missing = [f"{group.name}-{number}" for number in range(50)]
    assert group.delete(group.name, *missing) == {
        group.name: Errors.NON_EMPTY_GROUP,
        **dict.fromkeys(missing, Errors.GROUP_ID_NOT_FOUND),
    }
    member.leave()
    assert group.delete(*missing, group.name)[group.name] == Errors.NONE


def test_a_stable_group_is_there_after_a_restart(tmp_path: Path) -> None:
    running = brokers.start(tmp_path, SETTINGS)
    try:
        before = Clients(running, "kept")
        before.wait_for_coordinator()
        members = before.stable(["i1", None])
        before.close()
        running.stop()
        running = brokers.start(tmp_path, SETTINGS)
        after = Clients(running, "kept")
        after.wait_for_coordinator()
        assert after.describe().group_state == "Stable"
        for number, member in enumerate(members):
            member.clients, member.connection = after, after.connect()
            assert member.heartbeat() == Errors.NONE
            assert member.sync().assignment == str(number).encode()
        back = after.member("i1")
        assert back.join().generation_id == members[0].generation
        assert members[0].heartbeat() == Errors.FENCED_INSTANCE_ID
        after.close()
    finally:
        running.stop()
