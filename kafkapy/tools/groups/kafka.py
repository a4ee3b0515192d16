"""The backend of `kafkapy groups` for groups that have a group coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from kafkapy.client.administration.admin import LATEST, Admin
from kafkapy.client.administration.group_admin import DEAD, GroupAdmin, GroupDescription, Member
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.groups.group_types import OffsetAndMetadata
from kafkapy.errors import Errors, KafkaError
from kafkapy.runtime.addresses import host_port
from kafkapy.tools.common.errors import ToolError, fail_if_any
from kafkapy.tools.common.output import counted
from kafkapy.tools.common.partition_ranges import partitions_text
from kafkapy.tools.groups.interface import DescribedGroup, Document, Refusal
from kafkapy.tools.main import sentence_of

if TYPE_CHECKING:
    from kafkapy.client.original.assignment import Partition

T = TypeVar("T")


class KafkaGroups:
    """A GroupBackend that sends requests to the group coordinators of a cluster."""

    place = ""

    def __init__(self, cluster: Cluster) -> None:
        self.admin = Admin(cluster)
        self.problems: list[str] = []
        self._groups = GroupAdmin(cluster)

    def names(self) -> list[str]:
        return [group.id for group in self._groups.list_groups()]

    def listing(self, states: Sequence[str], types: Sequence[str]) -> list[Document]:
        return [
            {
                "group": group.id,
                "state": group.state,
                "type": group.type,
                "protocolType": group.protocol_type,
                "coordinator": group.coordinator,
            }
            for group in self._groups.list_groups(states, types)
        ]

    def describe(self, names: Sequence[str], *, offsets: bool) -> tuple[list[DescribedGroup], list[str]]:
        groups, failed = self._existing(names or self.names())
        documents = [_document(group) for group in groups]
        if offsets:
            committed, refused = _found_and_refused(self._groups.offsets(group.id for group in groups))
            failed += refused
            owners = {
                group.id: {where: member for member in group.members for where in member.partitions or ()}
                for group in groups
            }
            partitions = {where for by_group in (owners, committed) for its in by_group.values() for where in its}
            ends = end_offsets(self.admin, partitions)
            for group, document in zip(groups, documents, strict=True):
                document["offsets"] = _offset_documents(owners[group.id], committed.get(group.id, {}), ends)
        return [
            DescribedGroup(
                document,
                f"{group.coordinator.node_id} ({host_port(group.coordinator.host, group.coordinator.port)})",
            )
            for group, document in zip(groups, documents, strict=True)
        ], failed

    def delete(self, names: Sequence[str]) -> Iterator[tuple[str, Refusal | None]]:
        for name, error in self._groups.delete(names).items():
            if error is None:
                yield name, None
            else:
                yield name, Refusal(_refusal(name, error), error.code == Errors.GROUP_ID_NOT_FOUND)

    def delete_offsets(self, name: str, wanted: Mapping[str, list[int] | None]) -> Iterator[str]:
        answers = self._groups.delete_offsets(name, self._committed_in(name, wanted))
        if deleted := [where for where, error in answers.items() if error is None]:
            yield f"Deleted {counted(len(deleted), 'offset')} of group {name}: {partitions_text(deleted)}."
        refused = {where: error for where, error in answers.items() if error is not None}
        for error in refused.values():
            if error.code != Errors.GROUP_SUBSCRIBED_TO_TOPIC:
                raise error
        if refused:
            topics = ", ".join(repr(topic) for topic in dict.fromkeys(topic for topic, _ in refused))
            raise ToolError(
                f"members of group {name!r} subscribe to {topics}, so its offsets there stay: stop them first "
                "(GROUP_SUBSCRIBED_TO_TOPIC)"
            )

    def check_there(self, names: Sequence[str]) -> None:
        fail_if_any(self._existing(names)[1])

    def committed(self, names: Sequence[str]) -> dict[str, dict[Partition, int]]:
        found, refused = _found_and_refused(self._groups.offsets(names))
        fail_if_any(refused)
        return {
            name: {(topic, str(index)): one.offset for (topic, index), one in offsets.items()}
            for name, offsets in found.items()
        }

    def refuse_active(self, names: Sequence[str]) -> None:
        described, refused = _found_and_refused(self._groups.describe(names))
        fail_if_any(refused)
        for group in described.values():
            if group.is_active:
                raise ToolError(
                    f"group {group.id!r} is {group.state} with {counted(len(group.members), 'member')}: offsets can be "
                    "reset only while a group has none, so stop them first; nothing was changed"
                )

    def commit(self, name: str, offsets: Mapping[Partition, int]) -> None:
        if old := [f"{topic}/{number}" for topic, number in offsets if not number.isdecimal()]:
            raise ToolError(f"{old[0]} is a partition of Kafka 0.7, which a group that Kafka keeps cannot have")
        try:
            self._groups.commit(
                name, {(topic, int(number)): OffsetAndMetadata(at) for (topic, number), at in offsets.items()}
            )
        except KafkaError as error:
            if error.code != Errors.UNKNOWN_MEMBER_ID:
                raise
            raise ToolError(f"group {name!r} has members by now; stop them first; its offsets are unchanged") from error

    def _existing(self, names: Iterable[str]) -> tuple[list[GroupDescription], list[str]]:
        """Return the descriptions of the named groups that exist, and a sentence for each name that has no group."""
        found, failed = _found_and_refused(self._groups.describe(names))
        failed += [_not_there(name) for name, group in found.items() if group.state == DEAD]
        return [group for group in found.values() if group.state != DEAD], failed

    def _committed_in(self, name: str, wanted: Mapping[str, list[int] | None]) -> list[TopicPartition]:
        """Return the partitions in `wanted` that have a committed offset of the group. Raise ToolError if a partition
        named there has none."""
        found = self._groups.offsets([name])[name]
        if isinstance(found, KafkaError):
            raise found
        if not found:
            self.check_there([name])
        chosen: list[TopicPartition] = []
        for topic, numbers in wanted.items():
            its = [where for where in found if where[0] == topic] if numbers is None else [(topic, n) for n in numbers]
            missing = [where for where in its if where not in found]
            if missing or not its:
                what = partitions_text(missing) if missing else f"topic {topic!r}"
                raise ToolError(f"group {name!r} has committed nothing for {what}")
            chosen += its
        return chosen


def end_offsets(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end offsets of the partitions. Partitions that do not exist or have no leader are left out."""
    wanted = sorted(set(partitions))
    if not wanted:
        return {}
    admin.cluster.refresh(dict.fromkeys(topic for topic, _ in wanted))
    with_leader = {}
    for topic, index in wanted:
        known = admin.cluster.topics[topic].partitions.get(index)
        if known is not None and known.leader >= 0:
            with_leader[topic, index] = LATEST
    return {where: found.offset for where, found in admin.offsets(with_leader).items()}


def _document(group: GroupDescription) -> Document:
    return {
        "group": group.id,
        "state": group.state,
        "protocolType": group.protocol_type,
        "assignor": group.protocol,
        "coordinator": group.coordinator.node_id,
        "members": [_member_document(member) for member in group.members],
    }


def _member_document(member: Member) -> Document:
    partitions = member.partitions
    return {
        "member": member.id,
        "instanceId": member.instance_id,
        "clientId": member.client_id,
        "host": member.host,
        "topics": None if member.topics is None else list(member.topics),
        "partitions": None if partitions is None else [{"topic": t, "partition": p} for t, p in partitions],
    }


def _offset_documents(
    owners: Mapping[TopicPartition, Member],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    ends: Mapping[TopicPartition, int],
) -> list[Document]:
    """Return a document for each partition that is assigned to a member or has a committed offset, sorted by topic and
    partition."""
    found = []
    for where in sorted({*owners, *committed}):
        one, end, owner = committed.get(where), ends.get(where), owners.get(where)
        found.append(
            {
                "topic": where[0],
                "partition": where[1],
                "committed": one and one.offset,
                "leaderEpoch": one and one.leader_epoch,
                "metadata": one and one.metadata,
                "end": end,
                "lag": None if one is None or end is None else end - one.offset,
                "member": owner and owner.id,
            }
        )
    return found


def _found_and_refused(answers: Mapping[str, T | KafkaError]) -> tuple[dict[str, T], list[str]]:
    """Split responses by group name: return those that are no error, and a sentence without its full stop for each
    error."""
    found = {name: answer for name, answer in answers.items() if not isinstance(answer, KafkaError)}
    return found, [_refusal(name, error) for name, error in answers.items() if isinstance(error, KafkaError)]


def _refusal(name: str, error: KafkaError) -> str:
    if error.code == Errors.GROUP_ID_NOT_FOUND:
        return _not_there(name)
    if error.code == Errors.NON_EMPTY_GROUP:
        return f"group {name!r} still has members: stop them first (NON_EMPTY_GROUP)"
    return sentence_of(error).rstrip(".")


def _not_there(name: str) -> str:
    return f"there is no group {name!r}"
