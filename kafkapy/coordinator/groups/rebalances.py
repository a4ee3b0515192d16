"""From one generation of a group to the next: who is waited for and how long, and what everybody is told then.

The members of a group that rebalances join again (PREPARING); when all of them have, or the time of the slowest is
over, the next generation begins without those that did not (COMPLETING); its leader sends the assignments, they are
written to the log, and everybody who asks gets his (STABLE). Source: GroupCoordinator, DelayedJoin, InitialDelayedJoin,
DelayedSync.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kafkapy.coordinator.coordinator_log import coordinator_error
from kafkapy.coordinator.groups.answers import (
    NO_MEMBER,
    Answers,
    assignment_of,
    generation_of,
    join_refused,
    members_of,
    sync_refused,
)
from kafkapy.coordinator.groups.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Group
from kafkapy.coordinator.groups.member import Member, named
from kafkapy.coordinator.groups.records import group_record
from kafkapy.coordinator.shard import Effects
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import SYNC_GROUP

if TYPE_CHECKING:
    from kafkapy.coordinator.group_counts import GroupCounts
    from kafkapy.coordinator.shard import Record, Shard

# Static members that are away may have asked for a rebalance timeout of nothing: waiting for them must not be a circle.
_LEAST_WAIT_MS = 1000

# A look at the sessions of a group goes over all its members. So that a crowd which ends one by one (ids that nobody
# joins with cost a client little) does not make looking a full-time job, the next look is later by this for each.
_LOOK_PAUSE_S = 50e-6

log = logging.getLogger("kafkapy.coordinator.groups")


class Offsets(Protocol):
    """The offsets of the shard's groups, as far as groups need them."""

    def tombstones(self, group_id: str) -> list[Record]:
        """What deletes all offsets of the group."""
        ...

    def count(self, group_id: str) -> int:
        """How many offsets the group has, or is about to have."""
        ...


class Home(Protocol):
    """What a shard of `__consumer_offsets` has."""

    shard: Shard[Any]
    groups: dict[str, Group]
    counts: GroupCounts

    @property
    def offsets(self) -> Offsets: ...

    def group(self, group_id: str, *, create: bool = False) -> Group | None: ...


class Settings(Protocol):
    """The broker's settings by name."""

    def __getitem__(self, name: str) -> Any: ...


class Rebalances:
    """Of all groups of one shard. Everything here is part of a step, or a step itself."""

    def __init__(self, home: Home, settings: Callable[[], Settings]) -> None:
        self.home = home
        self.settings = settings
        self._answers = Answers()

    # --- life of the shard

    def loaded(self) -> None:
        """The groups were read from the log: their members' sessions begin anew."""
        for group in self.home.groups.values():
            if len(group.members) > self.settings()["group.max.size"]:
                self.prepare(group, f"{len(group.members)} members", "were loaded, more than group.max.size")
            for member in group.members.values():
                group.touch(member)
            self._watch_all(group)

    def unloaded(self, reason: KafkaError) -> None:
        """Another broker may be the coordinator now: whoever waits is told to look for it."""
        for group in self.home.groups.values():
            group.state = DEAD
            for alarm in (group.join_alarm, group.sync_alarm, group.session_alarm):
                alarm.cancel()
            for member in group.members.values():
                self.refuse(group, member, reason.code, member.id)
        self._answers.give_all()

    # --- joining

    def changed(self, group: Group, who: object, reason: str) -> Effects | None:
        """Members came, left or changed their minds: where no rebalance is under way, one begins."""
        if group.state in (STABLE, COMPLETING) or (group.state == EMPTY and group.members):
            self.prepare(group, who, reason)
        return self.try_complete(group)

    def prepare(self, group: Group, who: object, reason: str) -> None:
        log.info("group %r rebalances after generation %d: %.500s %.500s", group.id, group.generation, who, reason)
        if group.state == COMPLETING:
            self.tell_synced(group, Errors.REBALANCE_IN_PROGRESS, {})
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
        group.join_alarm.set(self.home.shard, delay_ms / 1000, lambda: self._delay_is_over(group, delay_ms))

    def _delay_is_over(self, group: Group, delay_ms: int) -> Effects | None:
        """Whoever comes to a new group brings others: as long as some do, they are waited for a little longer."""
        left_ms = group.delay_left_ms
        if not group.more_came or not left_ms:
            return self._complete(group)
        group.more_came = False
        group.delay_left_ms = max(left_ms - delay_ms, 0)
        self._delay(group, min(self.settings()["group.initial.rebalance.delay.ms"], left_ms))
        return None

    def _wait_for_joins(self, group: Group, at_least_ms: int = 0) -> None:
        group.delay_left_ms = None
        wait_ms = max(group.rebalance_ms, at_least_ms)
        group.join_alarm.set(self.home.shard, wait_ms / 1000, lambda: self._complete(group))

    def try_complete(self, group: Group) -> Effects | None:
        """The next generation begins if it has only waited for what has just happened."""
        if group.state == PREPARING and group.delay_left_ms is None and group.all_have_joined:
            return self._complete(group)
        return None

    def _complete(self, group: Group) -> Effects | None:
        group.join_alarm.cancel()
        group.delay_left_ms = None
        for member in [one for one in group.members.values() if one.join_reply is None and not one.is_static]:
            log.info("group %r goes on without %r, which did not join in time", group.id, member)
            group.remove(member.id)
        if group.members and not group.elect_joined_leader():
            log.info("group %r has static members only, and none joined: it waits for their sessions", group.id)
            self._wait_for_joins(group, at_least_ms=_LEAST_WAIT_MS)
            return None
        group.next_generation()
        log.info("group %r begins generation %d, members: %d", group.id, group.generation, len(group.members))
        if group.state == EMPTY:
            return Effects([group_record(group, {})], lambda error: self._stored_empty(group, error))
        self._tell_joined(group)
        group.sync_alarm.set(self.home.shard, group.rebalance_ms / 1000, lambda: self._sync_is_due(group))
        return None

    def _tell_joined(self, group: Group) -> None:
        now = group.clock.monotonic()
        waiting = []
        for member in group.members.values():
            if member.join_reply is not None:
                waiting.append((member.join_reply, member.id))
                group.await_join(member, None)
            member.is_new = False
            member.deadline = now + member.session_ms / 1000
        group.unsynced.update(group.members)
        self.watch(group, min(member.deadline for member in group.members.values()))
        waiting.sort(key=lambda one: one[1] != group.leader)  # the leader first: the others wait for what it says
        answer, leader, members = generation_of(group), group.leader, members_of(group)
        self._answers.give(
            self.home.shard,
            ((reply, answer(member_id=id, members=members if id == leader else [])) for reply, id in waiting),
        )

    def _stored_empty(self, group: Group, error: KafkaError | None) -> None:
        # Nobody waits for it: at worst the last generation is loaded once more, and its members time out again.
        if error is not None:
            log.warning("that group %r is empty could not be written: %s", group.id, error)

    # --- assignments

    def _sync_is_due(self, group: Group) -> Effects | None:
        """Members that never asked for their assignment do not consume: the group goes on without them."""
        missing = [group.members[id] for id in group.unsynced]
        for member in missing:
            group.remove(member.id)
        self.prepare(group, named(missing), "did not ask for their assignment in time")
        return self.try_complete(group)

    def has_synced(self, group: Group, member: Member) -> None:
        group.unsynced.discard(member.id)
        if not group.unsynced:
            group.sync_alarm.cancel()

    def store(self, group: Group, assignments: Mapping[str, bytes]) -> Effects:
        """The leader has decided."""
        self.home.counts.rebalances += 1
        generation = group.generation

        def then(error: KafkaError | None) -> None:
            # While the record was on its way another rebalance may have begun, or ended.
            if group.state != COMPLETING or group.generation != generation:
                return
            if error is None:
                self.tell_synced(group, Errors.NONE, assignments)
                group.move_to(STABLE)
            else:
                self.tell_synced(group, self.append_error(error), {})
                self.prepare(group, "its assignments", f"could not be written: {error}")

        return Effects([group_record(group, assignments)], then)

    def tell_synced(self, group: Group, code: int, assignments: Mapping[str, bytes]) -> None:
        """Everybody who waits for his assignment gets it, or the error."""
        now = group.clock.monotonic()
        waiting = []
        for member in group.members.values():
            member.assignment = assignments.get(member.id, b"")
            if member.sync_reply is not None:
                waiting.append((member.sync_reply, member.assignment))
                member.sync_reply = None
                member.deadline = now + member.session_ms / 1000
        self._watch_all(group)
        answer = assignment_of(group) if code == Errors.NONE else partial(SYNC_GROUP.Response, error_code=code)
        self._answers.give(self.home.shard, ((reply, answer(assignment=mine)) for reply, mine in waiting))

    def append_error(self, error: KafkaError) -> int:
        """What members are told when a group's record could not be written: after a time-out they join again."""
        return Errors.REBALANCE_IN_PROGRESS if error.code == Errors.REQUEST_TIMED_OUT else coordinator_error(error)

    # --- one member

    def refuse(self, group: Group, member: Member, code: int, member_id: str = NO_MEMBER) -> None:
        """Whatever the member waits for is answered with the error."""
        if member.join_reply is not None:
            member.join_reply(join_refused(code, member_id))
            group.await_join(member, None)
        if member.sync_reply is not None:
            member.sync_reply(sync_refused(code))
            member.sync_reply = None

    def remove(self, group: Group, member: Member) -> None:
        """The member is gone; if it waits after all, it may come as a new one."""
        self.refuse(group, member, Errors.UNKNOWN_MEMBER_ID)
        group.remove(member.id)

    # --- sessions

    def watch(self, group: Group, deadline: float) -> None:
        """Looks for members that are gone at `deadline`, if not before. Whoever is heard of only notes a later
        deadline: the look finds that there is nothing to do yet."""
        if deadline < group.next_look:
            group.next_look = deadline
            delay = max(0.0, deadline - group.clock.monotonic())
            group.session_alarm.set(self.home.shard, delay, lambda: self._look(group))

    def _watch_all(self, group: Group) -> None:
        deadlines = [member.deadline for member in group.members.values() if not member.is_excused]
        deadlines += group.pending.values()
        soonest = group.clock.monotonic() + len(deadlines) * _LOOK_PAUSE_S
        self.watch(group, max(min(deadlines, default=float("inf")), soonest))

    def _look(self, group: Group) -> Effects | None:
        group.next_look = float("inf")
        now = group.clock.monotonic()
        gone = [one for one in group.members.values() if one.deadline <= now and not one.is_excused]
        never_came = [id for id, deadline in group.pending.items() if deadline <= now]
        for member in gone:
            log.info("group %r goes on without %r, which was not heard of in time", group.id, member)
            self.remove(group, member)
        for id in never_came:
            group.remove(id)
        self._watch_all(group)
        if gone:
            return self.changed(group, named(gone), "not heard of in time")
        return self.try_complete(group)
