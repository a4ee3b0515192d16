"""Converts consumer groups to and from their group metadata records in `__consumer_offsets`.

A group's record is written when its members have got their assignments in a new generation, when a static member
rejoins with a new member id, and when the last member has left. So a loaded group is stable or empty. Source: Kafka's
GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkapy.coordinator.groups.group import EMPTY, STABLE, Group
from kafkapy.coordinator.groups.member import Member
from kafkapy.coordinator.offset_records import (
    GROUP_METADATA_VALUE,
    NO_TIMESTAMP,
    encode_group,
    encode_group_key,
)

if TYPE_CHECKING:
    from kafkapy.coordinator.shard import Record
    from kafkapy.runtime.clock import Clock

_NO_REBALANCE_MS = -1
_NO_MEMBERS: Mapping[str, Member] = {}


def group_record(
    group: Group, assignments: Mapping[str, bytes], returning: Mapping[str, Member] = _NO_MEMBERS
) -> Record:
    """Return the key and value of the group's record, with the members' assignments. `assignments` are by current
    member id; a missing assignment is written as empty.

    returning: by instance id, members to write instead of the current members with these instance ids.
    """
    leader = group.leader
    members = []
    for member in group.members.values():
        written = member if member.instance_id is None else returning.get(member.instance_id, member)
        if member.id == leader:
            leader = written.id
        assert group.protocol is not None
        members.append(
            GROUP_METADATA_VALUE.Message.Members(
                member_id=written.id,
                group_instance_id=written.instance_id,
                client_id=written.client_id,
                client_host=written.client_host,
                rebalance_timeout=written.rebalance_ms,
                session_timeout=written.session_ms,
                subscription=written.metadata(group.protocol),
                assignment=assignments.get(member.id, b""),
            )
        )
    since = group.current_state_timestamp_ms
    value = encode_group(
        group.protocol_type or "",
        group.generation,
        group.protocol,
        leader,
        NO_TIMESTAMP if since is None else since,
        members,
    )
    return encode_group_key(group.id), value


def group_tombstone(group: Group) -> list[Record]:
    """Return a list with the tombstone of the group's record. The list is empty if the group never had members, since
    such a group has no record."""
    return [(encode_group_key(group.id), None)] if group.generation > 0 else []


def group_of(group_id: str, found: Any, clock: Clock) -> Group:
    """Return the group that a decoded group metadata record describes. `found` is the record's value, a
    GROUP_METADATA_VALUE.Message."""
    group = Group(group_id, clock)
    for stored in found.members:
        # Records of Kafka 0.9 have no rebalance time-out: the session time-out served as both.
        no_rebalance = stored.rebalance_timeout == _NO_REBALANCE_MS
        member = Member(
            stored.member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            rebalance_ms=stored.session_timeout if no_rebalance else stored.rebalance_timeout,
            session_ms=stored.session_timeout,
            protocols=((found.protocol or "", stored.subscription),),
            assignment=stored.assignment,
        )
        group.add(member, found.protocol_type, None)
    group.state = STABLE if found.members else EMPTY
    group.generation = found.generation
    group.protocol_type = found.protocol_type or None
    group.protocol = found.protocol
    # Only a damaged record names a leader that is not a member; the code relies on the leader being one.
    group.leader = found.leader if found.leader in group.members else next(iter(group.members), None)
    group.current_state_timestamp_ms = (
        None if found.current_state_timestamp == NO_TIMESTAMP else found.current_state_timestamp
    )
    group.update_subscribed_topics()
    return group
