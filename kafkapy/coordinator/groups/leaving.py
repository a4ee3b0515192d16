"""Handles LeaveGroup requests, which remove one member or, if sent by an administrator, several members (KIP-345)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafkapy.coordinator.groups.group import Group
from kafkapy.coordinator.groups.member import Member, Reply, named
from kafkapy.coordinator.shard import Effects
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import LEAVE_GROUP

if TYPE_CHECKING:
    from kafkapy.coordinator.groups.rebalances import Rebalances


def leave(rebalances: Rebalances, group_id: str, leaving: Sequence[Any], reply: Reply) -> Effects | None:
    """Remove the members named in a LeaveGroup request from the group, call `reply` with a response that has an error
    code for each of them, and begin a rebalance if a member was removed.

    `leaving` has the members of the request. Return records to append, or None. Raises KafkaError
    COORDINATOR_NOT_AVAILABLE if the group is being deleted.
    """
    group = rebalances.machine.groups.get(group_id)
    if group is not None:
        group.check_alive()
    answers = []
    left: list[Member] = []
    for member in leaving:
        code = Errors.UNKNOWN_MEMBER_ID
        if group is not None:
            code = _leave(rebalances, group, member.member_id, member.group_instance_id, left)
        answers.append(
            LEAVE_GROUP.Response.Members(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
            )
        )
    reply(LEAVE_GROUP.Response(error_code=Errors.NONE, members=answers))
    if group is None:
        return None
    if not left:  # at most pending ids were removed
        return rebalances.try_complete(group)
    reasons = {member.reason for member in leaving if member.reason}
    return rebalances.members_changed(group, named(left), f"left ({', '.join(sorted(reasons)) or 'no reason given'})")


def _leave(rebalances: Rebalances, group: Group, member_id: str, instance_id: str | None, left: list[Member]) -> int:
    """Remove one member, or a member id that has not joined yet, from the group and return the error code for the
    response. A removed member is appended to the list `left`."""
    if not member_id:  # by instance id only: an administrator's request
        present = group.static.get(instance_id) if instance_id is not None else None
        if present is None:
            return Errors.UNKNOWN_MEMBER_ID
        member_id = present
    elif member_id in group.pending:
        group.remove(member_id)
        return Errors.NONE
    else:
        try:
            group.check_member(member_id, instance_id)
        except KafkaError as error:
            return error.code
    left.append(group.members[member_id])
    rebalances.remove(group, left[-1])
    return Errors.NONE
