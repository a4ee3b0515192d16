"""How a consumer group goes from one generation to the next, and how members' sessions expire.

In a rebalance the members join again (state PREPARING). When all members have joined, or the longest rebalance time-out
of a member is over, the next generation begins without the missing members (state COMPLETING). The leader of the group
sends the assignments. Once they are in the log, each member gets its assignment (state STABLE). Source: Kafka's
GroupCoordinator, DelayedJoin, InitialDelayedJoin, DelayedSync.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kafkapy.coordinator.coordinator_log import coordinator_error
from kafkapy.coordinator.groups.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Group
from kafkapy.coordinator.groups.member import Member, named
from kafkapy.coordinator.groups.records import group_record
from kafkapy.coordinator.groups.responses import (
    NO_MEMBER,
    ResponseQueue,
    join_error,
    join_response_maker,
    members_for_leader,
    sync_error,
    sync_response_maker,
)
from kafkapy.coordinator.shard import Effects
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import SYNC_GROUP

if TYPE_CHECKING:
    from kafkapy.coordinator.group_machine import GroupMachine

# The least wait for joins. Absent static members may have a rebalance time-out of 0: waiting again without delay would
# be a busy loop.
_MIN_JOIN_WAIT_MS = 1000

# The least time per member between two session checks of a group. A check goes over all members, and a client can
# cheaply create many pending ids that expire one by one; checking at each expiry would take most of a core.
_CHECK_PAUSE_S = 50e-6

log = logging.getLogger("kafkapy.coordinator.groups")


class Settings(Protocol):
    """The broker's settings by name, such as a BrokerConfig."""

    def __getitem__(self, name: str) -> Any: ...


class Rebalances:
    """The rebalances and member sessions of all groups in one partition of `__consumer_offsets`. All methods run under
    the lock of the partition's shard, as part of a step (the handling of one request or time-out)."""

    def __init__(self, machine: GroupMachine, settings: Callable[[], Settings]) -> None:
        self.machine = machine
        self.settings = settings
        self._responses = ResponseQueue()

    # --- loading and unloading

    def loaded(self) -> None:
        """Restart the sessions of all members, after the groups were loaded from the log. A group with more members
        than group.max.size begins a rebalance."""
        for group in self.machine.groups.values():
            if len(group.members) > self.settings()["group.max.size"]:
                self.prepare(group, f"{len(group.members)} members", "were loaded, which exceeds group.max.size")
            for member in group.members.values():
                group.touch(member)
            self._schedule_session_check(group)

    def unloaded(self, reason: KafkaError) -> None:
        """Mark all groups as dead and answer all members that wait for a response with the error `reason`, because
        another broker may be the coordinator now."""
        for group in self.machine.groups.values():
            group.state = DEAD
            for alarm in (group.join_alarm, group.sync_alarm, group.session_alarm):
                alarm.cancel()
            for member in group.members.values():
                self.refuse(group, member, reason.code, member.id)
        self._responses.send_all()

    # --- joining

    def members_changed(self, group: Group, who: object, reason: str) -> Effects | None:
        """Begin a rebalance, unless one is in progress, because members joined, left or changed their protocols. If all
        members have already joined the next generation, begin that generation.

        `who` and `reason` are for the log. Return records to append, or None.
        """
        if group.state in (STABLE, COMPLETING) or (group.state == EMPTY and group.members):
            self.prepare(group, who, reason)
        return self.try_complete(group)

    def prepare(self, group: Group, who: object, reason: str) -> None:
        """Begin a rebalance, in which the coordinator waits for the members to join again. `who` and `reason` are for
        the log."""
        log.info("group %r rebalances after generation %d: %.500s %.500s", group.id, group.generation, who, reason)
        if group.state == COMPLETING:
            self.answer_syncs(group, Errors.REBALANCE_IN_PROGRESS, {})
        group.unsynced.clear()
        group.sync_alarm.cancel()
        is_first = group.state == EMPTY
        group.move_to(PREPARING)
        if is_first:
            delay_ms = self.settings()["group.initial.rebalance.delay.ms"]
            group.delay_left_ms = max(group.rebalance_ms - delay_ms, 0)
            self._delay(group, delay_ms)
        else:
            self._wait_for_joins(group)

    def _delay(self, group: Group, delay_ms: int) -> None:
        group.join_alarm.set(self.machine.shard, delay_ms / 1000, lambda: self._delay_is_over(group, delay_ms))

    def _delay_is_over(self, group: Group, delay_ms: int) -> Effects | None:
        """Begin the first generation of a group, or extend the initial delay if members have joined during the last
        delay. The delay is extended at most up to the longest rebalance time-out of a member."""
        left_ms = group.delay_left_ms
        if not group.joined_in_delay or not left_ms:
            return self._complete(group)
        group.joined_in_delay = False
        group.delay_left_ms = max(left_ms - delay_ms, 0)
        self._delay(group, min(self.settings()["group.initial.rebalance.delay.ms"], left_ms))
        return None

    def _wait_for_joins(self, group: Group, at_least_ms: int = 0) -> None:
        group.delay_left_ms = None
        wait_ms = max(group.rebalance_ms, at_least_ms)
        group.join_alarm.set(self.machine.shard, wait_ms / 1000, lambda: self._complete(group))

    def try_complete(self, group: Group) -> Effects | None:
        """Begin the next generation if the group is rebalancing and every member has joined. Return records to append,
        or None."""
        if group.state == PREPARING and group.delay_left_ms is None and group.all_have_joined:
            return self._complete(group)
        return None

    def _complete(self, group: Group) -> Effects | None:
        group.join_alarm.cancel()
        group.delay_left_ms = None
        for member in [it for it in group.members.values() if it.join_reply is None and not it.is_static]:
            log.info("group %r removes %r, which did not rejoin in time", group.id, member)
            group.remove(member.id)
        if group.members and not group.elect_joined_leader():
            log.info(
                "group %r has only static members and none rejoined: waiting until they do or their sessions expire",
                group.id,
            )
            self._wait_for_joins(group, at_least_ms=_MIN_JOIN_WAIT_MS)
            return None
        group.next_generation()
        log.info("group %r begins generation %d, members: %d", group.id, group.generation, len(group.members))
        if group.state == EMPTY:
            return Effects([group_record(group, {})], lambda error: self._stored_empty(group, error))
        self._answer_joins(group)
        group.sync_alarm.set(self.machine.shard, group.rebalance_ms / 1000, lambda: self._sync_is_due(group))
        return None

    def _answer_joins(self, group: Group) -> None:
        now = group.clock.monotonic()
        waiting = []
        for member in group.members.values():
            if member.join_reply is not None:
                waiting.append((member.join_reply, member.id))
                group.await_join(member, None)
            member.is_new = False
            member.deadline = now + member.session_ms / 1000
        group.unsynced.update(group.members)
        self.check_sessions_by(group, min(member.deadline for member in group.members.values()))
        waiting.sort(key=lambda entry: entry[1] != group.leader)  # the leader first: all wait for its assignment
        response, leader, members = join_response_maker(group), group.leader, members_for_leader(group)
        self._responses.send(
            self.machine.shard,
            ((reply, response(member_id=id, members=members if id == leader else [])) for reply, id in waiting),
        )

    def _stored_empty(self, group: Group, error: KafkaError | None) -> None:
        # No reply depends on this record. If it is missing, a load finds the previous generation, whose members expire
        # again.
        if error is not None:
            log.warning("the record of the empty group %r could not be written: %s", group.id, error)

    # --- assignments

    def _sync_is_due(self, group: Group) -> Effects | None:
        """Remove the members that did not send SyncGroup in time, and begin another rebalance."""
        missing = [group.members[id] for id in group.unsynced]
        for member in missing:
            group.remove(member.id)
        self.prepare(group, named(missing), "sent no SyncGroup in time")
        return self.try_complete(group)

    def note_synced(self, group: Group, member: Member) -> None:
        group.unsynced.discard(member.id)
        if not group.unsynced:
            group.sync_alarm.cancel()

    def store(self, group: Group, assignments: Mapping[str, bytes]) -> Effects:
        """Return the group's record with the leader's assignments (by member id) to append. When the record is in the
        log, each waiting member gets its assignment; if the append fails, they get an error and the group rebalances
        again."""
        self.machine.counts.rebalances += 1
        generation = group.generation

        def then(error: KafkaError | None) -> None:
            # During the append, another rebalance may have begun or even completed.
            if group.state != COMPLETING or group.generation != generation:
                return
            if error is None:
                self.answer_syncs(group, Errors.NONE, assignments)
                group.move_to(STABLE)
            else:
                self.answer_syncs(group, self.member_error(error), {})
                self.prepare(group, "its assignments", f"could not be written: {error}")

        return Effects([group_record(group, assignments)], then)

    def answer_syncs(self, group: Group, code: int, assignments: Mapping[str, bytes]) -> None:
        """Send a SyncGroup response to every member that waits for one: its assignment if `code` is NONE, otherwise the
        error `code`. `assignments` are by member id."""
        now = group.clock.monotonic()
        waiting = []
        for member in group.members.values():
            member.assignment = assignments.get(member.id, b"")
            if member.sync_reply is not None:
                waiting.append((member.sync_reply, member.assignment))
                member.sync_reply = None
                member.deadline = now + member.session_ms / 1000
        self._schedule_session_check(group)
        response = sync_response_maker(group) if code == Errors.NONE else partial(SYNC_GROUP.Response, error_code=code)
        self._responses.send(
            self.machine.shard, ((reply, response(assignment=assignment)) for reply, assignment in waiting)
        )

    def member_error(self, error: KafkaError) -> int:
        """Return the error code to send to members when the group's record could not be written. A time-out becomes
        REBALANCE_IN_PROGRESS, which makes the members join again."""
        return Errors.REBALANCE_IN_PROGRESS if error.code == Errors.REQUEST_TIMED_OUT else coordinator_error(error)

    # --- one member

    def refuse(self, group: Group, member: Member, code: int, member_id: str = NO_MEMBER) -> None:
        """Answer the JoinGroup and the SyncGroup that the member is waiting on, if any, with the error `code`.
        `member_id` is the member id in the JoinGroup response."""
        if member.join_reply is not None:
            member.join_reply(join_error(code, member_id))
            group.await_join(member, None)
        if member.sync_reply is not None:
            member.sync_reply(sync_error(code))
            member.sync_reply = None

    def remove(self, group: Group, member: Member) -> None:
        """Remove a member from the group. If the member still waits for a response, it gets UNKNOWN_MEMBER_ID, which
        makes its client join as a new member."""
        self.refuse(group, member, Errors.UNKNOWN_MEMBER_ID)
        group.remove(member.id)

    # --- sessions

    def check_sessions_by(self, group: Group, deadline: float) -> None:
        """Schedule a check for expired sessions of the group at `deadline` (monotonic seconds), unless an earlier check
        is scheduled.

        A heartbeat only extends the member's deadline and does not move the scheduled check. A check that finds no
        expired session schedules the next check.
        """
        if deadline < group.next_session_check:
            group.next_session_check = deadline
            delay = max(0.0, deadline - group.clock.monotonic())
            group.session_alarm.set(self.machine.shard, delay, lambda: self._check_sessions(group))

    def _schedule_session_check(self, group: Group) -> None:
        deadlines = [member.deadline for member in group.members.values() if not member.awaits_response]
        deadlines += group.pending.values()
        soonest = group.clock.monotonic() + len(deadlines) * _CHECK_PAUSE_S
        self.check_sessions_by(group, max(min(deadlines, default=float("inf")), soonest))

    def _check_sessions(self, group: Group) -> Effects | None:
        group.next_session_check = float("inf")
        now = group.clock.monotonic()
        expired = [it for it in group.members.values() if it.deadline <= now and not it.awaits_response]
        never_joined = [id for id, deadline in group.pending.items() if deadline <= now]
        for member in expired:
            log.info("group %r removes %r, whose session has expired", group.id, member)
            self.remove(group, member)
        for id in never_joined:
            group.remove(id)
        self._schedule_session_check(group)
        if expired:
            return self.members_changed(group, named(expired), "session expired")
        return self.try_complete(group)
