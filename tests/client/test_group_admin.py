"""Administration of groups: which brokers get the requests, and how responses and errors are read."""

import pytest

from kafkapy.client.administration.group_admin import GroupAdmin, GroupDescription, GroupListing, Member
from kafkapy.client.cluster import Broker, Cluster
from kafkapy.client.groups.group_types import OffsetAndMetadata
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol import apis
from kafkapy.protocol.consumer_protocol import ASSIGNMENT, SUBSCRIPTION


@pytest.fixture
def groups(fake_broker):
    """Return an administration client; broker 1 is the coordinator of every group."""
    shape = apis.FIND_COORDINATOR.Response
    fake_broker.answers[apis.FIND_COORDINATOR.key] = lambda request: shape(
        coordinators=[shape.Coordinators(key=key, node_id=1) for key in request.coordinator_keys]
    )
    with Cluster(fake_broker.address, timeout_s=5) as cluster:
        yield GroupAdmin(cluster)


def listing(*names, error_code=0):
    shape = apis.LIST_GROUPS.Response
    return shape(
        error_code=error_code,
        groups=[
            shape.Groups(group_id=name, protocol_type="consumer", group_state="Empty", group_type="classic")
            for name in names
        ],
    )


def test_groups_are_listed_by_all_brokers(fake_broker, second_broker, groups):
    fake_broker.answers[apis.LIST_GROUPS.key] = lambda _: listing("b")
    second_broker.answers[apis.LIST_GROUPS.key] = lambda _: listing("a", "b")
    assert groups.list_groups(["Empty"], ["classic"]) == [
        GroupListing("a", "consumer", "Empty", "classic", 2),
        GroupListing("b", "consumer", "Empty", "classic", 2),
    ]
    (request,) = fake_broker.requests("ListGroups")
    assert (request.states_filter, request.types_filter) == (["Empty"], ["classic"])


def test_a_broker_that_loads_its_groups_is_asked_again(fake_broker, groups):
    answers = iter([listing(error_code=Errors.COORDINATOR_LOAD_IN_PROGRESS), listing("a")])
    fake_broker.answers[apis.LIST_GROUPS.key] = lambda _: next(answers)
    assert [one.id for one in groups.list_groups()] == ["a"]


def described(**fields):
    shape = apis.DESCRIBE_GROUPS.Response
    members = [
        shape.Groups.Members(member_id=f"m{number}", client_id="c", client_host="/10.0.0.1", **member)
        for number, member in enumerate(fields.pop("members", ()))
    ]
    return lambda request: shape(
        groups=[shape.Groups(group_id=group, members=members, **fields) for group in request.groups]
    )


def test_a_group_is_described_with_what_its_members_have(fake_broker, groups):
    shape = ASSIGNMENT.Message
    assigned = shape(assigned_partitions=[shape.AssignedPartitions(topic="t", partitions=[2, 0])])
    fake_broker.answers[apis.DESCRIBE_GROUPS.key] = described(
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=[
            {
                "group_instance_id": "i",
                "member_metadata": SUBSCRIPTION.encode(SUBSCRIPTION.Message(topics=["t", "u"]), 0),
                "member_assignment": ASSIGNMENT.encode(assigned, 0),
            },
            {"group_instance_id": None, "member_metadata": b"", "member_assignment": b""},
        ],
    )
    assert groups.describe(["g"])["g"] == GroupDescription(
        "g",
        "Stable",
        "consumer",
        "range",
        (
            Member("m0", "i", "c", "10.0.0.1", ("t", "u"), (("t", 0), ("t", 2))),
            Member("m1", None, "c", "10.0.0.1", None, ()),
        ),
        Broker(1, "127.0.0.1", fake_broker.port),
    )


@pytest.mark.parametrize(("kind", "data"), [("connect", b"\0\1\0\0"), ("consumer", b"\0\0\xff"), ("consumer", b"\0")])
def test_metadata_of_members_in_another_protocol_is_not_decoded(fake_broker, groups, kind, data):
    fake_broker.answers[apis.DESCRIBE_GROUPS.key] = described(
        group_state="Stable", protocol_type=kind, members=[{"member_metadata": data, "member_assignment": data}]
    )
    (member,) = groups.describe(["g"])["g"].members
    assert (member.topics, member.partitions) == (None, None)


def test_a_group_that_cannot_be_described_is_an_error_of_its_own(fake_broker, groups):
    fake_broker.answers[apis.DESCRIBE_GROUPS.key] = described(error_code=Errors.GROUP_AUTHORIZATION_FAILED)
    assert str(groups.describe(["g"])["g"]) == "GROUP_AUTHORIZATION_FAILED: group 'g': Not allowed on this group."


def fetched(shape, **fields):
    partition = shape.Topics.Partitions
    return shape(
        topics=[
            shape.Topics(
                name="t",
                partitions=[
                    partition(partition_index=0, committed_offset=5, committed_leader_epoch=3, metadata="m"),
                    partition(partition_index=1, committed_offset=-1, committed_leader_epoch=-1, metadata=""),
                    partition(partition_index=2, committed_offset=0, committed_leader_epoch=-1, metadata=None),
                ],
            )
        ],
        **fields,
    )


COMMITTED = {("t", 0): OffsetAndMetadata(5, "m", 3), ("t", 2): OffsetAndMetadata(0)}


def test_offsets_of_several_groups_are_asked_for_at_once(fake_broker, groups):
    shape = apis.OFFSET_FETCH.Response
    fake_broker.answers[apis.OFFSET_FETCH.key] = lambda request: shape(
        groups=[
            fetched(shape.Groups, group_id=one.group_id)
            if one.group_id == "a"
            else shape.Groups(group_id=one.group_id, error_code=Errors.GROUP_AUTHORIZATION_FAILED)
            for one in request.groups
        ]
    )
    answers = groups.offsets(["a", "b"])
    assert answers["a"] == COMMITTED
    assert answers["b"].code == Errors.GROUP_AUTHORIZATION_FAILED
    (request,) = fake_broker.requests("OffsetFetch")
    assert [one.topics for one in request.groups] == [None, None]


def test_a_broker_that_takes_one_group_at_a_time_gets_one_request_for_each(fake_broker, groups):
    fake_broker.versions[apis.OFFSET_FETCH.key] = (0, 7)
    fake_broker.answers[apis.OFFSET_FETCH.key] = lambda _: fetched(apis.OFFSET_FETCH.Response)
    assert groups.offsets(["a", "b"]) == {"a": COMMITTED, "b": COMMITTED}
    assert [one.group_id for one in fake_broker.requests("OffsetFetch")] == ["a", "b"]


def test_offsets_are_committed_without_a_member_id(fake_broker, groups):
    shape = apis.OFFSET_COMMIT.Response.Topics
    codes = iter([Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.NONE, Errors.UNKNOWN_MEMBER_ID])

    def answer(request):
        code = next(codes)
        return apis.OFFSET_COMMIT.Response(
            topics=[
                shape(
                    name=topic.name,
                    partitions=[
                        shape.Partitions(partition_index=one.partition_index, error_code=code)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    fake_broker.answers[apis.OFFSET_COMMIT.key] = answer
    groups.commit("g", {("t", 1): OffsetAndMetadata(7, "why", 2), ("t", 0): OffsetAndMetadata(8)})
    request = fake_broker.requests("OffsetCommit")[1]
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", -1, "")
    (topic,) = request.topics
    assert [
        (one.partition_index, one.committed_offset, one.committed_leader_epoch, one.committed_metadata)
        for one in topic.partitions
    ] == [(1, 7, 2, "why"), (0, 8, -1, "")]
    with pytest.raises(KafkaError, match=r"UNKNOWN_MEMBER_ID: group 'g', t-0: "):
        groups.commit("g", {("t", 0): OffsetAndMetadata(1)})


def test_each_group_is_deleted_or_has_an_error(fake_broker, groups):
    shape = apis.DELETE_GROUPS.Response
    codes = {"full": Errors.NON_EMPTY_GROUP}
    fake_broker.answers[apis.DELETE_GROUPS.key] = lambda request: shape(
        results=[shape.Results(group_id=name, error_code=codes.get(name, 0)) for name in request.groups_names]
    )
    answers = groups.delete(["empty", "full"])
    assert answers["empty"] is None
    assert answers["full"].code == Errors.NON_EMPTY_GROUP


def test_offsets_are_deleted_partition_by_partition(fake_broker, groups):
    shape = apis.OFFSET_DELETE.Response
    codes = {1: Errors.GROUP_SUBSCRIBED_TO_TOPIC}
    fake_broker.answers[apis.OFFSET_DELETE.key] = lambda request: shape(
        error_code=Errors.GROUP_ID_NOT_FOUND if request.group_id == "nobody" else 0,
        topics=[
            shape.Topics(
                name=topic.name,
                partitions=[
                    shape.Topics.Partitions(
                        partition_index=one.partition_index, error_code=codes.get(one.partition_index, 0)
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
    answers = groups.delete_offsets("g", [("t", 0), ("t", 1)])
    assert answers["t", 0] is None
    assert str(answers["t", 1]) == "GROUP_SUBSCRIBED_TO_TOPIC: t-1: The group is subscribed to this topic."
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND: group 'nobody'"):
        groups.delete_offsets("nobody", [("t", 0)])


def test_a_coordinator_that_is_not_among_the_brokers_is_looked_up_again(fake_broker, groups):
    answer = described(group_state="Empty")

    def once_gone(request):
        if len(fake_broker.requests("DescribeGroups")) == 1:
            groups.cluster.brokers.pop(1)
        return answer(request)

    fake_broker.answers[apis.DESCRIBE_GROUPS.key] = once_gone
    assert groups.describe(["g"])["g"].coordinator.node_id == 1
    assert len(fake_broker.requests("DescribeGroups")) == 2
