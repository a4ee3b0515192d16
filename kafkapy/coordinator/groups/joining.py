"""JoinGroup: a member comes, comes back, or says something else than before.

Source: GroupCoordinator, KIP-345 (static members), KIP-394 (an id first), KIP-814 (a static leader skips assigning).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkapy.coordinator.groups.answers import generation_of, join_refused, joined, members_of
from kafkapy.coordinator.groups.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Group
from kafkapy.coordinator.groups.member import Member, Protocols, Reply
from kafkapy.coordinator.groups.records import group_record
from kafkapy.coordinator.shard import Effects
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.strings import fits

if TYPE_CHECKING:
    from kafkapy.coordinator.groups.rebalances import Rebalances

log = logging.getLogger("kafkapy.coordinator.groups")

# A member that waits for its first generation cannot say that it is still there; a client that has given up and come
# again under another id would be waited for. So it is forgotten after this time, and comes again if it still waits.
NEW_MEMBER_TIMEOUT_S = 300.0


class Join(NamedTuple):
    """A request. member_id: empty for a new member. Times are milliseconds.

    needs_id   a new member gets an id first and joins with it (from version 4)
    may_skip   a static leader that comes back understands that it is not to assign anything (from version 9)
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
    """Raises KafkaError: what is wrong with the request."""
    settings = rebalances.settings()
    low, high = settings["group.min.session.timeout.ms"], settings["group.max.session.timeout.ms"]
    if not low <= request.session_ms <= high:
        raise KafkaError(
            Errors.INVALID_SESSION_TIMEOUT, f"a session timeout of {request.session_ms} ms is not in {low} to {high}"
        )
    group = rebalances.home.groups.get(group_id)
    if group is None:
        if request.member_id:
            raise KafkaError(Errors.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        group = Group(group_id, rebalances.home.shard.clock)
    if not _has_room(group, request.member_id, settings["group.max.size"]):
        group.remove(request.member_id)
        request.reply(join_refused(Errors.GROUP_MAX_SIZE_REACHED))
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
    """While a group rebalances those count who have joined: with a smaller group.max.size the last ones must go."""
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
    rebalances.home.groups[group.id] = group
    if request.instance_id is not None:
        if request.instance_id in group.static:
            return _come_back(rebalances, group, request, new_id)
    elif request.needs_id:
        # Had it joined at once, a client that never gets this answer would be a member that everybody waits for.
        group.pending[new_id] = group.clock.monotonic() + request.session_ms / 1000
        rebalances.watch(group, group.pending[new_id])
        request.reply(join_refused(Errors.MEMBER_ID_REQUIRED, new_id))
        return None
    return _add(rebalances, group, request, new_id)


def _join_known(rebalances: Rebalances, group: Group, request: Join) -> Effects | None:
    if request.member_id in group.pending:
        if request.instance_id is not None:
            raise KafkaError(
                Errors.UNKNOWN_SERVER_ERROR,
                f"{request.member_id!r} was given to a dynamic member, but comes as instance {request.instance_id!r}",
            )
        return _add(rebalances, group, request, request.member_id)
    group.check_member(request.member_id, request.instance_id)
    member = group.members[request.member_id]
    says_the_same = member.protocols == request.protocols
    # It may not have got the last answer; or a follower looks whether something has changed. A leader that joins a
    # stable group wants a rebalance: it has seen a change, of a topic for instance, that others do not see.
    if says_the_same and (group.state == COMPLETING or (group.state == STABLE and member.id != group.leader)):
        request.reply(joined(group, member.id))
        return None
    group.update(member, request.protocols, request.rebalance_ms, request.session_ms)
    group.await_join(member, request.reply)
    return rebalances.changed(group, member, f"joins again ({request.reason or 'no reason given'})")


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
        group.more_came = True
    group.add(member, request.protocol_type, request.reply)
    rebalances.watch(group, member.deadline)
    return rebalances.changed(group, member, f"joins ({request.reason or 'no reason given'})")


# --- a static member that comes back without its id


def _come_back(rebalances: Rebalances, group: Group, request: Join, new_id: str) -> Effects | None:
    """In a stable group nothing needs to change but its id, which is written down first."""
    assert request.instance_id is not None
    member = group.members[group.static[request.instance_id]]
    if group.state != STABLE or group.would_choose(member, request.protocols) != group.protocol:
        return _replace(rebalances, group, request, new_id)
    generation = group.generation
    replacement = Member(
        new_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        rebalance_ms=request.rebalance_ms,
        session_ms=request.session_ms,
        protocols=request.protocols,
    )
    assignments = {one.id: one.assignment for one in group.members.values()}

    def then(error: KafkaError | None) -> None:
        if error is not None:
            request.reply(join_refused(rebalances.append_error(error)))
        else:
            rebalances.home.shard.run(lambda _: _replace(rebalances, group, request, new_id, written=generation))

    return Effects([group_record(group, assignments, returning=(member, replacement))], then)


def _replace(
    rebalances: Rebalances, group: Group, request: Join, new_id: str, *, written: int | None = None
) -> Effects | None:
    """The new id takes the place of the old, which is fenced. `written`: the generation whose record has it."""
    assert request.instance_id is not None
    present = group.static.get(request.instance_id)
    if present is None:  # it has left while the record was on its way
        request.reply(join_refused(Errors.UNKNOWN_MEMBER_ID))
        return None
    member, former_leader = group.members[present], group.leader
    log.info("instance %r of group %r is now %r, no longer %r", request.instance_id, group.id, new_id, present)
    rebalances.refuse(group, member, Errors.FENCED_INSTANCE_ID, present)
    group.rename(member, new_id)
    group.update(member, request.protocols, request.rebalance_ms, request.session_ms)
    group.touch(member)
    rebalances.watch(group, member.deadline)
    if group.state == STABLE and group.generation == written:
        request.reply(_unchanged(group, new_id, request.may_skip, former_leader))
        return None
    group.await_join(member, request.reply)
    return rebalances.changed(group, member, "came back")


def _unchanged(group: Group, new_id: str, may_skip: bool, former_leader: str | None) -> Any:
    """The generation goes on. An assignment that the leader made now would reach nobody: it is told not to make one,
    or, where it would not understand, that the leader is another, which is its former self."""
    answer = generation_of(group)
    if not may_skip:
        return answer(member_id=new_id, leader=former_leader)
    is_leader = new_id == group.leader
    return answer(member_id=new_id, skip_assignment=is_leader, members=members_of(group) if is_leader else [])
