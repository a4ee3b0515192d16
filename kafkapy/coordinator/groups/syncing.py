"""Handles SyncGroup requests, by which members get the assignments that the leader has computed, and Heartbeat
requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkapy.coordinator.groups.group import COMPLETING, EMPTY, PREPARING, Group
from kafkapy.coordinator.groups.member import Reply
from kafkapy.coordinator.groups.responses import sync_response_maker
from kafkapy.coordinator.shard import Effects
from kafkapy.errors import Errors, KafkaError

if TYPE_CHECKING:
    from kafkapy.coordinator.groups.rebalances import Rebalances


class Sync(NamedTuple):
    """A SyncGroup request. `protocol_type` and `protocol` are None if the request's version does not have them.
    `assignments` is empty unless the leader sends the request."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]
    reply: Reply


def sync(rebalances: Rebalances, group_id: str, request: Sync) -> Effects | None:
    """Handle a SyncGroup request. The response is sent through `request.reply`: at once if the group is stable,
    otherwise when the leader's assignments are in the log.

    If the request comes from the leader, return the record with the assignments to append, else None. Raises KafkaError
    if the request is refused.
    """
    group = _group(rebalances, group_id)
    group.check_alive()
    group.check_member(request.member_id, request.instance_id)
    group.check_generation(request.generation)
    for claimed, present in ((request.protocol_type, group.protocol_type), (request.protocol, group.protocol)):
        if claimed is not None and claimed != present:
            raise KafkaError(
                Errors.INCONSISTENT_GROUP_PROTOCOL, f"group {group_id!r} uses {present!r}, not {claimed!r}"
            )
    if group.state == EMPTY:
        raise KafkaError(Errors.UNKNOWN_MEMBER_ID)
    if group.state == PREPARING:
        raise KafkaError(Errors.REBALANCE_IN_PROGRESS)
    member = group.members[request.member_id]
    rebalances.note_synced(group, member)
    if group.state != COMPLETING:
        group.touch(member)
        request.reply(sync_response_maker(group)(assignment=member.assignment))
        return None
    member.sync_reply = request.reply
    if member.id != group.leader:
        return None
    return rebalances.store(group, request.assignments)


def heartbeat(rebalances: Rebalances, group_id: str, member_id: str, instance_id: str | None, generation: int) -> int:
    """Handle a Heartbeat request: extend the member's session. Return the error code REBALANCE_IN_PROGRESS if the
    member must rejoin, else NONE. Raises KafkaError if the group does not have this member or generation."""
    group = _group(rebalances, group_id)
    group.check_alive()
    group.check_member(member_id, instance_id)
    group.check_generation(generation)
    group.touch(group.members[member_id])
    return Errors.REBALANCE_IN_PROGRESS if group.state == PREPARING else Errors.NONE


def _group(rebalances: Rebalances, group_id: str) -> Group:
    group = rebalances.machine.groups.get(group_id)
    if group is None:
        raise KafkaError(Errors.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
    return group
