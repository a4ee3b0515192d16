"""A group as `__consumer_offsets` keeps it: who its members are, and what they were assigned.

A record is written when a generation has its assignments, when a static member comes back under a new id, and when the
last member has left; so a group that is read is stable or empty. Source: GroupMetadataManager.
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


def group_record(
    group: Group, assignments: Mapping[str, bytes], *, returning: tuple[Member, Member] | None = None
) -> Record:
    """The group with these assignments by member id (none: no bytes).

    returning: a member and what is to stand in its place.
    """
    gone, back = returning if returning is not None else (None, None)
    leader = group.leader
    if gone is not None and back is not None and leader == gone.id:
        leader = back.id
    members = []
    for member in group.members.values():
        assignment = assignments.get(member.id, b"")
        one = back if member is gone and back is not None else member
        assert group.protocol is not None
        members.append(
            GROUP_METADATA_VALUE.Message.Members(
                member_id=one.id,
                group_instance_id=one.instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                rebalance_timeout=one.rebalance_ms,
                session_timeout=one.session_ms,
                subscription=one.metadata(group.protocol),
                assignment=assignment,
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
    """What deletes the group's record, if there is one: a group that had no members has written none."""
    return [(encode_group_key(group.id), None)] if group.generation > 0 else []


def group_of(group_id: str, found: Any, clock: Clock) -> Group:
    """The group as a record (a GROUP_METADATA_VALUE.Message) has it."""
    group = Group(group_id, clock)
    for one in found.members:
        # Records of Kafka 0.9 have no rebalance time-out: the session's was good for both.
        no_rebalance = one.rebalance_timeout == _NO_REBALANCE_MS
        member = Member(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            rebalance_ms=one.session_timeout if no_rebalance else one.rebalance_timeout,
            session_ms=one.session_timeout,
            protocols=((found.protocol or "", one.subscription),),
            assignment=one.assignment,
        )
        group.add(member, found.protocol_type, None)
    group.state = STABLE if found.members else EMPTY
    group.generation = found.generation
    group.protocol_type = found.protocol_type or None
    group.protocol = found.protocol
    # A leader that is no member (nothing but a damaged record names one) would be asked for all the same.
    group.leader = found.leader if found.leader in group.members else next(iter(group.members), None)
    group.current_state_timestamp_ms = (
        None if found.current_state_timestamp == NO_TIMESTAMP else found.current_state_timestamp
    )
    group.find_subscribed_topics()
    return group
