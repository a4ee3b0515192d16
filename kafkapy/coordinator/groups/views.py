"""Builds the responses to DescribeGroups and ListGroups."""

from __future__ import annotations

from typing import Any

from kafkapy.coordinator.groups.group import DEAD, STABLE, Group
from kafkapy.errors import Errors
from kafkapy.protocol.apis import DESCRIBE_GROUPS, LIST_GROUPS

CLASSIC = "classic"  # the type of every group here


def described(group_id: str, group: Group | None) -> Any:
    """Return the DescribeGroups entry of a group, or of a dead group for None.

    Metadata and assignments are included only for a stable group, as in Kafka.
    """
    make = DESCRIBE_GROUPS.Response.Groups
    if group is None:
        return make(error_code=Errors.NONE, group_id=group_id, group_state=DEAD, protocol_type="", protocol_data="")
    protocol = group.protocol if group.state == STABLE else None
    members = [
        make.Members(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=b"" if protocol is None else member.metadata(protocol),
            member_assignment=b"" if protocol is None else member.assignment,
        )
        for member in group.members.values()
    ]
    return make(
        error_code=Errors.NONE,
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=members,
    )


def listed(group: Group) -> Any:
    return LIST_GROUPS.Response.Groups(
        group_id=group.id, protocol_type=group.protocol_type or "", group_state=group.state, group_type=CLASSIC
    )
