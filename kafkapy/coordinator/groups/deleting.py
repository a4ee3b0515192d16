"""Deletes groups: by DeleteGroups, or when the last offset of an empty group has expired or is deleted."""

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
    """Delete an empty group and its offsets. Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
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
    """Delete an empty group, and with `tombstones` its offsets. If the append fails, the group stays."""
    group.state = DEAD  # refuses joins and commits until the append is done

    def then(error: KafkaError | None) -> None:
        if error is None:
            group.session_alarm.cancel()
            if machine.groups.get(group.id) is group:
                del machine.groups[group.id]
            # staged in an open transaction: a load would create the group for them too
            if machine.offsets.count(group.id):
                machine.group(group.id, create=True)
        else:
            group.state = EMPTY
        if done is not None:
            done(error)

    return Effects([*tombstones, *group_tombstone(group)], then)
