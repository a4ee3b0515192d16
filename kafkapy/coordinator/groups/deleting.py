"""The end of a group: deleted by DeleteGroups, or forgotten when the last of its offsets has expired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkapy.coordinator.groups.group import DEAD, EMPTY, Group
from kafkapy.coordinator.groups.records import group_tombstone
from kafkapy.coordinator.shard import Effects
from kafkapy.errors import Errors, KafkaError

if TYPE_CHECKING:
    from kafkapy.coordinator.groups.rebalances import Home
    from kafkapy.coordinator.shard import Record


def delete(home: Home, group_id: str, done: Callable[[KafkaError | None], object]) -> Effects:
    """Deletes a group and its offsets. Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
    group = home.groups.get(group_id)
    if group is None or group.state == DEAD:
        raise KafkaError(Errors.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    if group.state != EMPTY:
        raise KafkaError(Errors.NON_EMPTY_GROUP, f"group {group_id!r} has {len(group.members)} members")
    return end(home, group, home.offsets.tombstones(group_id), done)


def end(
    home: Home,
    group: Group,
    tombstones: Sequence[Record],
    done: Callable[[KafkaError | None], object] | None = None,
) -> Effects:
    """Forgets an empty group, and with `tombstones` the offsets that it has. If they cannot be written it is back."""
    group.state = DEAD  # meanwhile nobody joins and nobody commits

    def then(error: KafkaError | None) -> None:
        if error is None:
            group.session_alarm.cancel()
            if home.groups.get(group.id) is group:
                del home.groups[group.id]
            if home.offsets.count(group.id):  # an open transaction has some: a load would find the group with them
                home.group(group.id, create=True)
        else:
            group.state = EMPTY
        if done is not None:
            done(error)

    return Effects([*tombstones, *group_tombstone(group)], then)
