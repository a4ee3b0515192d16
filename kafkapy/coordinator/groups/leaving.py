"""LeaveGroup: members go, one by one or, said by an administrator, many at a time (KIP-345)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafkapy.coordinator.groups.group import Group
from kafkapy.coordinator.groups.member import Reply
from kafkapy.coordinator.shard import Effects
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import LEAVE_GROUP

if TYPE_CHECKING:
    from kafkapy.coordinator.groups.rebalances import Rebalances


def leave(rebalances: Rebalances, group_id: str, leaving: Sequence[Any], reply: Reply) -> Effects | None:
    """`leaving`: the request's members, each answered with an error code of its own. Raises KafkaError."""
    group = rebalances.home.groups.get(group_id)
    if group is not None:
        group.check_alive()
    answers, before = [], len(group.members) if group is not None else 0
    for one in leaving:
        code = Errors.UNKNOWN_MEMBER_ID
        if group is not None:
            code = _leave(rebalances, group, one.member_id, one.group_instance_id)
        answers.append(
            LEAVE_GROUP.Response.Members(
                member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=code
            )
        )
    reply(LEAVE_GROUP.Response(error_code=Errors.NONE, members=answers))
    if group is None:
        return None
    left = before - len(group.members)
    if not left:  # at most ids that nobody had joined with yet
        return rebalances.try_complete(group)
    reasons = {one.reason for one in leaving if one.reason}
    return rebalances.changed(group, f"{left} members", f"left ({', '.join(sorted(reasons)) or 'no reason given'})")


def _leave(rebalances: Rebalances, group: Group, member_id: str, instance_id: str | None) -> int:
    if not member_id:  # by its instance alone: an administrator removes it
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
    rebalances.remove(group, group.members[member_id])
    return Errors.NONE
