"""What `kafkapy groups describe` shows: the rows and documents of a group."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafkapy.client.admin import LATEST, Admin
from kafkapy.client.cluster import Broker, TopicPartition
from kafkapy.client.group_admin import GroupDescription, Member
from kafkapy.client.group_types import OffsetAndMetadata
from kafkapy.runtime.addresses import host_port
from kafkapy.tools.output import counted, print_table
from kafkapy.tools.partition_words import in_words


class Progress(NamedTuple):
    """How far a group has come in one partition; None: nothing committed, no such partition, no member."""

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    end: int | None
    member: Member | None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else self.end - self.committed.offset


def end_offsets(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where the partitions end now; those that are not there, or have no leader, are left out."""
    wanted = sorted(set(partitions))
    if not wanted:
        return {}
    admin.cluster.refresh(dict.fromkeys(topic for topic, _ in wanted))
    there = {}
    for topic, index in wanted:
        known = admin.cluster.topics[topic].partitions.get(index)
        if known is not None and known.leader >= 0:
            there[topic, index] = LATEST
    return {where: found.offset for where, found in admin.offsets(there).items()}


def progress_of(
    group: GroupDescription,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    ends: Mapping[TopicPartition, int],
) -> list[Progress]:
    """Every partition that is assigned to a member or has an offset, in order."""
    owners = {where: member for member in group.members for where in member.partitions or ()}
    return [
        Progress(where, committed.get(where), ends.get(where), owners.get(where))
        for where in sorted({*owners, *committed})
    ]


def print_offsets(group: GroupDescription, progress: list[Progress]) -> None:
    lags = [one.lag for one in progress if one.lag is not None]
    print(f"{_head(group)}{f', lag {sum(lags):,}' if lags else ''}")
    if not progress:
        print("It has committed nothing, and nothing is assigned to it.")
        return
    owned = any(one.member for one in progress)
    rows: list[tuple[object, ...]] = []
    for one in progress:
        who = (one.member.id, one.member.host, one.member.client_id) if one.member else ("-", "-", "-")
        offset = one.committed and one.committed.offset
        rows.append((*one.partition, _dash(offset), _dash(one.end), _dash(one.lag), *(who if owned else ())))
    columns = ["topic", "partition>", "committed>", "end>", "lag>"]
    print_table([*columns, "member", "host", "client id"] if owned else columns, rows)


def print_members(group: GroupDescription) -> None:
    print(_head(group))
    if not group.members:
        return
    print_table(
        ["member", "instance id", "host", "client id", "partitions>", "assignment"],
        [
            (
                member.id,
                _dash(member.instance_id),
                member.host,
                member.client_id,
                _dash(None if member.partitions is None else len(member.partitions)),
                in_words(member.partitions or ()),
            )
            for member in group.members
        ],
    )


def print_states(groups: Iterable[GroupDescription]) -> None:
    print_table(
        ["group", "state", "protocol type", "assignor", "members>", "coordinator"],
        [
            (g.id, g.state, g.protocol_type or "-", g.protocol or "-", len(g.members), _coordinator(g.coordinator))
            for g in groups
        ],
    )


def document(group: GroupDescription, progress: list[Progress] | None) -> dict[str, Any]:
    """A group in JSON; `progress` None leaves the offsets out."""
    described: dict[str, Any] = {
        "group": group.id,
        "state": group.state,
        "protocolType": group.protocol_type,
        "assignor": group.protocol,
        "coordinator": group.coordinator.node_id,
        "members": [_member(member) for member in group.members],
    }
    if progress is not None:
        described["offsets"] = [
            {
                "topic": one.partition[0],
                "partition": one.partition[1],
                "committed": one.committed and one.committed.offset,
                "leaderEpoch": one.committed and one.committed.leader_epoch,
                "metadata": one.committed and one.committed.metadata,
                "end": one.end,
                "lag": one.lag,
                "member": one.member and one.member.id,
            }
            for one in progress
        ]
    return described


def _member(member: Member) -> dict[str, Any]:
    partitions = member.partitions
    return {
        "member": member.id,
        "instanceId": member.instance_id,
        "clientId": member.client_id,
        "host": member.host,
        "topics": None if member.topics is None else list(member.topics),
        "partitions": None if partitions is None else [{"topic": t, "partition": p} for t, p in partitions],
    }


def _head(group: GroupDescription) -> str:
    members = counted(len(group.members), "member") if group.members else "no members"
    assignor = f", {group.protocol} assignor" if group.protocol else ""
    return f"Group {group.id}: {group.state}, {members}{assignor}, coordinator {_coordinator(group.coordinator)}"


def _coordinator(broker: Broker) -> str:
    return f"{broker.node_id} ({host_port(broker.host, broker.port)})"


def _dash(value: object) -> object:
    return "-" if value is None else value
