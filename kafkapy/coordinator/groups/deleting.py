"""Deletes groups: on a DeleteGroups request, or when the last offset of an empty group has expired or has been
deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkapy.coordinator.groups.group import DEAD, EMPTY, Group
from kafkapy.coordinator.groups.records import group_tombstone
from kafkapy.coordinator.shard import Effects
from kafkapy.errors import Errors, KafkaError

if TYPE_CHECKING:
    from kafkapy.coordinator.group_machine import GroupMachine
    from kafkapy.coordinator.shard import Record


def delete(machine: GroupMachine, group_id: str, done: Callable[[KafkaError | None], object]) -> Effects:
    """Delete an empty group and its committed offsets: return the tombstones to append. `done` is called with None or
    the error when the append has finished.

    Raises KafkaError GROUP_ID_NOT_FOUND if there is no such group, NON_EMPTY_GROUP if the group has members.
    """
    group = machine.groups.get(group_id)
    if group is None or group.state == DEAD:
        raise KafkaError(Errors.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    if group.state != EMPTY:
        raise KafkaError(Errors.NON_EMPTY_GROUP, f"group {group_id!r} has {len(group.members)} members")
    return end(machine, group, machine.offsets.tombstones(group_id), done)


def end(
    machine: GroupMachine,
    group: Group,
    tombstones: Sequence[Record],
    done: Callable[[KafkaError | None], object] | None = None,
) -> Effects:
    """Delete an empty group: return its tombstone and `tombstones`, those of its committed offsets, as records to
    append.

    If the append fails, the group stays. `done` is called with None or the error when the append has finished.
    """
    group.state = DEAD  # refuses joins and commits until the append is done

    def then(error: KafkaError | None) -> None:
        if error is None:
            group.session_alarm.cancel()
            if machine.groups.get(group.id) is group:
                del machine.groups[group.id]
            # Offsets in an open transaction remain, so the group must exist, as it would after a load.
            if machine.offsets.count(group.id):
                machine.group(group.id, create=True)
        else:
            group.state = EMPTY
        if done is not None:
            done(error)

    return Effects([*tombstones, *group_tombstone(group)], then)
