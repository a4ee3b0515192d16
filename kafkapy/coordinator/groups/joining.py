"""Handles JoinGroup requests: a member joins, rejoins, or changes its protocols.

Source: Kafka's GroupCoordinator, KIP-345 (static members), KIP-394 (MEMBER_ID_REQUIRED), KIP-814 (skip_assignment).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkapy.coordinator.groups.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Group
from kafkapy.coordinator.groups.member import Member, Protocols, Reply
from kafkapy.coordinator.groups.records import group_record
from kafkapy.coordinator.groups.responses import join_error, join_response, join_response_maker, members_for_leader
from kafkapy.coordinator.shard import Effects
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.strings import fits

if TYPE_CHECKING:
    from kafkapy.coordinator.groups.rebalances import Rebalances

log = logging.getLogger("kafkapy.coordinator.groups")

# A member that waits for its first generation sends no heartbeats. If its client has given up and joined again under
# another id, the rebalance would wait for the old id. So new members expire after this time (as in Kafka).
NEW_MEMBER_TIMEOUT_S = 300.0
# The most member ids of a group that were handed out and not used yet. Beyond that, the oldest id is forgotten: a
# client uses its id at once, so the oldest id will most likely never be used.
MOST_PENDING = 10_000


class Join(NamedTuple):
    """A JoinGroup request. `member_id` is empty for a new member. Times are in milliseconds. `reply` is called with the
    response.

    needs_id   a new member first gets a member id in a MEMBER_ID_REQUIRED error, and joins with that id (version 4+)
    may_skip   the client understands skip_assignment in the response (version 9+)
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: Protocols
    needs_id: bool
    may_skip: bool
    reason: str | None
    reply: Reply


def join(rebalances: Rebalances, group_id: str, request: Join) -> Effects | None:
    """Handle a JoinGroup request: add or update the member and begin a rebalance if one is needed. Return records to
    append, or None.

    The response is sent through `request.reply`, usually when the rebalance is complete. Raises KafkaError if the
    request is refused.
    """
    settings = rebalances.settings()
    low, high = settings["group.min.session.timeout.ms"], settings["group.max.session.timeout.ms"]
    if not low <= request.session_ms <= high:
        raise KafkaError(
            Errors.INVALID_SESSION_TIMEOUT,
            f"a session timeout of {request.session_ms} ms is not between {low} and {high} ms",
        )
    size = sum(len(name) + len(metadata) for name, metadata in request.protocols)
    if size > settings["message.max.bytes"]:  # the group's record, which has the member's metadata, could be too large
        raise KafkaError(
            Errors.INVALID_REQUEST,
            f"the {size} bytes of protocols are more than message.max.bytes, {settings['message.max.bytes']}",
        )
    group = rebalances.machine.groups.get(group_id)
    if group is None:
        if request.member_id:
            raise KafkaError(Errors.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        group = Group(group_id, rebalances.machine.shard.clock)
    if not _has_room(group, request.member_id, settings["group.max.size"]):
        group.remove(request.member_id)
        request.reply(join_error(Errors.GROUP_MAX_SIZE_REACHED))
        return rebalances.try_complete(group)
    group.check_alive()
    if not group.supports(request.protocol_type, request.protocols):
        raise KafkaError(
            Errors.INCONSISTENT_GROUP_PROTOCOL,
            f"the members of group {group_id!r} have no protocol of {[name for name, _ in request.protocols]} "
            f"of type {request.protocol_type!r} in common",
        )
    if not request.member_id:
        return _join_new(rebalances, group, request)
    return _join_known(rebalances, group, request)


def _has_room(group: Group, member_id: str, max_size: int) -> bool:
    """Return True if the member may join without exceeding `max_size` (group.max.size).

    During a rebalance, only the members that have joined the next generation count. So after the limit was lowered, the
    members that join last are refused.
    """
    if group.state in (EMPTY, DEAD):
        return True
    member = group.members.get(member_id)
    if group.state == PREPARING:
        return (member is not None and member.join_reply is not None) or group.waiting < max_size
    return member is not None or len(group.members) < max_size


def _join_new(rebalances: Rebalances, group: Group, request: Join) -> Effects | None:
    new_id = group.new_member_id(request.client_id, request.instance_id)
    if not fits(new_id):
        raise KafkaError(Errors.INVALID_REQUEST, "the client id or the instance id leaves no room for a member id")
    rebalances.machine.check_room(group.id)
    rebalances.machine.groups[group.id] = group
    if request.instance_id is not None:
        if request.instance_id in group.static:
            return _rejoin_static(rebalances, group, request, new_id)
    elif request.needs_id:
        # If the client never gets this response, only a pending id is left, which expires. A member added now would
        # make every rebalance wait for it.
        while len(group.pending) >= MOST_PENDING:
            del group.pending[next(iter(group.pending))]
        group.pending[new_id] = group.clock.monotonic() + request.session_ms / 1000
        rebalances.check_sessions_by(group, group.pending[new_id])
        request.reply(join_error(Errors.MEMBER_ID_REQUIRED, new_id))
        return None
    return _add(rebalances, group, request, new_id)


def _join_known(rebalances: Rebalances, group: Group, request: Join) -> Effects | None:
    if request.member_id in group.pending:
        if request.instance_id is not None:
            raise KafkaError(
                Errors.UNKNOWN_SERVER_ERROR,
                f"member id {request.member_id!r} is a dynamic member's, not of instance {request.instance_id!r}",
            )
        return _add(rebalances, group, request, request.member_id)
    group.check_member(request.member_id, request.instance_id)
    member = group.members[request.member_id]
    says_the_same = member.protocols == request.protocols
    # The client has missed the last response, or a member that is not the leader checks for changes. When the leader of
    # a stable group joins again, it wants a rebalance: it has noticed a change, for instance of a topic, that the
    # coordinator does not see.
    if says_the_same and (group.state == COMPLETING or (group.state == STABLE and member.id != group.leader)):
        request.reply(join_response(group, member.id))
        return None
    group.update(member, request.protocols, request.rebalance_ms, request.session_ms)
    group.await_join(member, request.reply)
    return rebalances.members_changed(group, member, f"joins again ({request.reason or 'no reason given'})")


def _add(rebalances: Rebalances, group: Group, request: Join, member_id: str) -> Effects | None:
    member = Member(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        rebalance_ms=request.rebalance_ms,
        session_ms=request.session_ms,
        protocols=request.protocols,
    )
    member.is_new = True
    member.deadline = group.clock.monotonic() + NEW_MEMBER_TIMEOUT_S
    if group.state == PREPARING and group.generation == 0:
        group.joined_in_delay = True
    group.add(member, request.protocol_type, request.reply)
    rebalances.check_sessions_by(group, member.deadline)
    return rebalances.members_changed(group, member, f"joins ({request.reason or 'no reason given'})")


# --- static members that rejoin without their member id


def _rejoin_static(rebalances: Rebalances, group: Group, request: Join, new_id: str) -> Effects | None:
    """Handle the JoinGroup of a static member that comes back without its member id: give the member its new id
    `new_id`. In a stable group this needs no rebalance, only a record with the new id, which is returned."""
    instance_id = request.instance_id
    assert instance_id is not None
    member = group.members[group.static[instance_id]]
    if group.state != STABLE or group.would_choose(member, request.protocols) != group.protocol:
        return _replace_static(rebalances, group, request, new_id)
    generation = group.generation
    replacement = Member(
        new_id,
        instance_id,
        member.client_id,
        member.client_host,
        rebalance_ms=request.rebalance_ms,
        session_ms=request.session_ms,
        protocols=request.protocols,
    )
    # A record holds the whole group. Several members may rejoin before the first of their records is in the log; the
    # last record must then have all the new ids, or a member left with its old id would be fenced after the next load.
    group.returning[instance_id] = replacement
    group.touch(member)  # the member is back: its session must not expire during the append
    assignments = {other.id: other.assignment for other in group.members.values()}

    def then(error: KafkaError | None) -> None:
        if group.returning.get(instance_id) is replacement:  # unless the instance has rejoined again since
            del group.returning[instance_id]
        if error is not None:
            request.reply(join_error(rebalances.member_error(error)))
        else:
            rebalances.machine.shard.run(
                lambda _: _replace_static(rebalances, group, request, new_id, written=generation)
            )

    return Effects([group_record(group, assignments, group.returning)], then)


def _replace_static(
    rebalances: Rebalances, group: Group, request: Join, new_id: str, *, written: int | None = None
) -> Effects | None:
    """Give a static member its new member id and fence the old one, so that a request with the old id gets
    FENCED_INSTANCE_ID.

    `written` is the generation in the record that has the new id, or None if there is no such record. If the group is
    still stable in this generation, no rebalance begins.
    """
    assert request.instance_id is not None
    present = group.static.get(request.instance_id)
    if present is None:  # the instance has left during the append
        request.reply(join_error(Errors.UNKNOWN_MEMBER_ID))
        return None
    if written is not None and not group.supports(request.protocol_type, request.protocols):
        # another member has changed its protocols during the append
        request.reply(join_error(Errors.INCONSISTENT_GROUP_PROTOCOL))
        return None
    member, former_leader = group.members[present], group.leader
    log.info("instance %r of group %r is now %r, no longer %r", request.instance_id, group.id, new_id, present)
    rebalances.refuse(group, member, Errors.FENCED_INSTANCE_ID, present)
    group.rename(member, new_id)
    group.update(member, request.protocols, request.rebalance_ms, request.session_ms)
    group.touch(member)
    rebalances.check_sessions_by(group, member.deadline)
    if group.state == STABLE and group.generation == written:
        request.reply(_join_response_without_rebalance(group, new_id, request.may_skip, former_leader))
        return None
    group.await_join(member, request.reply)
    return rebalances.members_changed(group, member, "rejoined")


def _join_response_without_rebalance(group: Group, new_id: str, may_skip: bool, former_leader: str | None) -> Any:
    """Return the JoinGroup response for a static member that rejoined a stable group. The group stays in its current
    generation.

    An assignment computed now would be discarded. Clients that understand skip_assignment (KIP-814) are told to skip
    the assignment. For older clients the response names their former member id as the leader, so that they do not
    compute an assignment.
    """
    answer = join_response_maker(group)
    if not may_skip:
        return answer(member_id=new_id, leader=former_leader)
    is_leader = new_id == group.leader
    return answer(member_id=new_id, skip_assignment=is_leader, members=members_for_leader(group) if is_leader else [])
