"""An admin client for consumer groups. It lists, describes and deletes groups and their committed offsets."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafkapy.client.cluster import Broker, Cluster, TopicPartition
from kafkapy.client.connection import Connection
from kafkapy.client.groups.coordinators import GROUP, Coordinators
from kafkapy.client.groups.group_offsets import ONE_GROUP_UNTIL, commit_request, fetch_request
from kafkapy.client.groups.group_types import GroupMetadata, OffsetAndMetadata
from kafkapy.client.responses import check, error_of, grouped
from kafkapy.errors import Errors, KafkaError, ProtocolError, UnsupportedVersion
from kafkapy.protocol import apis
from kafkapy.protocol.consumer_protocol import ASSIGNMENT, PROTOCOL_TYPE, SUBSCRIPTION

# The states of a group that does not exist, and of a group with offsets but no members (DescribeGroups).
DEAD, EMPTY = "Dead", "Empty"

SEVERAL_GROUPS_FROM = 8  # the first version of OffsetFetch for several groups (KIP-709)


@dataclass(frozen=True)
class GroupListing:
    """A group in the response to ListGroups. `coordinator` is the broker id of the group's coordinator.

    `state` and `type` are empty if the response's version does not have them.
    """

    id: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


@dataclass(frozen=True)
class Member:
    """A member of a consumer group in the response to DescribeGroups.

    `topics` are the subscribed topics and `partitions` the assigned ones. Both are None if their bytes do not follow
    the consumer protocol. `host` is the member's address without the leading slash that brokers send.
    """

    id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...] | None
    partitions: tuple[TopicPartition, ...] | None


@dataclass(frozen=True)
class GroupDescription:
    """A group in the response to DescribeGroups.

    `protocol` is the name of the assignor that the group has chosen, or empty if the group has no members.
    """

    id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[Member, ...]
    coordinator: Broker

    @property
    def is_active(self) -> bool:
        """True if the group has members."""
        return self.state not in (EMPTY, DEAD)


class GroupAdmin:
    """A blocking admin client for groups.

    Methods for several groups or partitions return a result or a KafkaError for each of them. The other methods raise
    the KafkaError. All methods raise ClientError if a broker cannot be reached.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._coordinators = Coordinators(cluster, GROUP)

    def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
        """Return the groups that all brokers coordinate, sorted by group id.

        `states` and `types` (such as "classic") restrict the result to groups with one of these states and types.
        """
        self.cluster.refresh([])
        request = apis.LIST_GROUPS.Request(states_filter=list(states), types_filter=list(types))
        found: dict[str, GroupListing] = {}
        for node in sorted(self.cluster.brokers):
            for one in self.cluster.retry(lambda node=node: self._list(node, request)):  # type: ignore[misc]
                # A group whose coordinator moves meanwhile may be listed by both coordinators.
                found[one.id] = one
        return sorted(found.values(), key=lambda listing: listing.id)

    def _list(self, node: int, request: Any) -> list[GroupListing]:
        """Return the groups that the broker with id `node` coordinates."""
        response = self.cluster.connection(node).call(apis.LIST_GROUPS, request)
        check(response.error_code, f"the groups of broker {node}")
        return [
            GroupListing(one.group_id, one.protocol_type, one.group_state, one.group_type, node)
            for one in response.groups
        ]

    def describe(self, groups: Iterable[str]) -> dict[str, GroupDescription | KafkaError]:
        """Return each group's description (state, members and so on), or a KafkaError.

        A group that does not exist has the state DEAD and no members.
        """

        def ask(connection: Connection, its_groups: list[str]) -> dict[str, GroupDescription | KafkaError]:
            request = apis.DESCRIBE_GROUPS.Request(groups=its_groups)
            response = connection.call(apis.DESCRIBE_GROUPS, request)
            return {
                one.group_id: error_of(one.error_code, f"group {one.group_id!r}") or self._description(one)
                for one in response.groups
            }

        return self._coordinators.ask_each(groups, ask)

    def _description(self, one: Any) -> GroupDescription | KafkaError:
        node = self._coordinators.node_of(one.group_id)
        broker = self.cluster.brokers.get(node)
        if broker is None:
            text = f"group {one.group_id!r}: broker {node}, its coordinator, is not in the cluster at the moment"
            return KafkaError(Errors.COORDINATOR_NOT_AVAILABLE, text)
        is_consumers = one.protocol_type == PROTOCOL_TYPE
        return GroupDescription(
            one.group_id,
            one.group_state,
            one.protocol_type,
            one.protocol_data,
            tuple(_member(member, is_consumers) for member in one.members),
            broker,
        )

    def offsets(self, groups: Iterable[str]) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | KafkaError]:
        """Return each group's committed offsets by partition, or a KafkaError.

        A group that does not exist has no offsets. Offsets in transactions that are still open are not included.
        """
        return self._coordinators.ask_each(groups, _fetch_offsets)

    def offsets_of(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return a group's committed offsets in these partitions. Partitions without a committed offset are left out.

        Partitions that do not exist are left out, too. Brokers before Kafka 0.10.2 are supported. Raise KafkaError for
        any other error of the group or of a partition.
        """
        request = fetch_request(group, partitions, stable=False)
        if not request.topics:
            return {}

        def ask(connection: Connection) -> dict[TopicPartition, int]:
            response = connection.call(apis.OFFSET_FETCH, request, at_most=ONE_GROUP_UNTIL)
            check(response.error_code, f"the offsets of group {group!r}")
            found = {}
            for topic in response.topics:
                for one in topic.partitions:
                    if one.error_code != Errors.UNKNOWN_TOPIC_OR_PARTITION:
                        check(one.error_code, f"the offset of group {group!r} in {topic.name}-{one.partition_index}")
                        found[topic.name, one.partition_index] = one.committed_offset
            return {where: offset for where, offset in found.items() if offset >= 0}

        return self._coordinators.ask(group, ask)

    def commit(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets for a group that has no members.

        Raise KafkaError for the first error; the error code is UNKNOWN_MEMBER_ID if the group has members.
        """
        request = commit_request(GroupMetadata(group), offsets)

        def ask(connection: Connection) -> None:
            for topic in connection.call(apis.OFFSET_COMMIT, request).topics:
                for answer in topic.partitions:
                    check(answer.error_code, f"group {group!r}, {topic.name}-{answer.partition_index}")

        self._coordinators.ask(group, ask)

    def delete(self, groups: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete groups that have no members, with their committed offsets.

        Return None for each group that was deleted, and a KafkaError for each group that was not.
        """

        def ask(connection: Connection, its_groups: list[str]) -> dict[str, bool | KafkaError]:
            response = connection.call(apis.DELETE_GROUPS, apis.DELETE_GROUPS.Request(groups_names=its_groups))
            return {
                one.group_id: error_of(one.error_code, f"group {one.group_id!r}") or True for one in response.results
            }

        answers = self._coordinators.ask_each(groups, ask)
        return {group: answer if isinstance(answer, KafkaError) else None for group, answer in answers.items()}

    def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete a group's committed offsets in these partitions.

        Return None for each partition that has no committed offset now, even if it had none before. Return a KafkaError
        for the others, such as GROUP_SUBSCRIBED_TO_TOPIC if a member subscribes to the topic.

        Raises:
            KafkaError: The error concerns the whole group, such as GROUP_ID_NOT_FOUND.
        """
        shape = apis.OFFSET_DELETE.Request.Topics
        topics = [
            shape(name=topic, partitions=[shape.Partitions(partition_index=index) for index in indexes])
            for topic, indexes in grouped(partitions).items()
        ]
        request = apis.OFFSET_DELETE.Request(group_id=group, topics=topics)

        def ask(connection: Connection) -> dict[TopicPartition, KafkaError | None]:
            response = connection.call(apis.OFFSET_DELETE, request)
            check(response.error_code, f"group {group!r}")
            return {
                (topic.name, one.partition_index): error_of(one.error_code, f"{topic.name}-{one.partition_index}")
                for topic in response.topics
                for one in topic.partitions
            }

        return self._coordinators.ask(group, ask)


def _fetch_offsets(
    connection: Connection, groups: list[str]
) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | KafkaError]:
    """Return all committed offsets of each of these groups, which have the same coordinator, or a KafkaError."""
    shape = apis.OFFSET_FETCH.Request
    if connection.version_of(apis.OFFSET_FETCH) >= SEVERAL_GROUPS_FROM:
        request = shape(groups=[shape.Groups(group_id=group, topics=None) for group in groups])
        response = connection.call(apis.OFFSET_FETCH, request)
        return {one.group_id: _committed(one.group_id, one) for one in response.groups}
    return {
        group: _committed(group, connection.call(apis.OFFSET_FETCH, shape(group_id=group, topics=None)))
        for group in groups
    }


def _committed(group: str, answer: Any) -> dict[TopicPartition, OffsetAndMetadata] | KafkaError:
    """Return the committed offsets in the OffsetFetch response for one group, or its first error as a KafkaError."""
    if error := error_of(answer.error_code, f"group {group!r}"):
        return error
    found = {}
    for topic in answer.topics:
        for one in topic.partitions:
            if error := error_of(one.error_code, f"group {group!r}, {topic.name}-{one.partition_index}"):
                return error
            if one.committed_offset >= 0:
                found[topic.name, one.partition_index] = OffsetAndMetadata(
                    one.committed_offset, one.metadata or "", one.committed_leader_epoch
                )
    return found


def _member(member: Any, is_consumers: bool) -> Member:
    """Return the Member for a member in a DescribeGroups response.

    `is_consumers` is True if the group's protocol type is "consumer"; only then are subscription and assignment
    decoded.
    """
    topics: tuple[str, ...] | None = None
    partitions: tuple[TopicPartition, ...] | None = None
    if is_consumers:
        try:
            if member.member_metadata:
                topics = tuple(SUBSCRIPTION.decode(member.member_metadata)[1].topics)
            partitions = _partitions(member.member_assignment)
        except (ProtocolError, UnsupportedVersion):
            pass  # members may send any bytes
    host = member.client_host.removeprefix("/")
    return Member(member.member_id, member.group_instance_id, member.client_id, host, topics, partitions)


def _partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions in an encoded assignment, sorted.

    Return () for empty bytes, which mean no assignment yet.
    """
    if not assignment:
        return ()
    topics = ASSIGNMENT.decode(assignment)[1].assigned_partitions
    return tuple(sorted((one.topic, index) for one in topics for index in one.partitions))
