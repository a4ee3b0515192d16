"""Computes the plan of an offset reset: the offsets that it would commit. Nothing is changed here.

Source: the scenarios of Kafka's ConsumerGroupCommand. An offset before the partition's first offset becomes the first
offset, and an offset after its end becomes the end.
"""

import enum
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafkapy.client.administration.admin import EARLIEST, LATEST, Admin
from kafkapy.client.cluster import TopicPartition
from kafkapy.client.groups.group_types import OffsetAndMetadata
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.common.partition_ranges import partitions_text


class Goal(enum.Enum):
    """The kinds of positions that offsets are reset to. The comments say what the number of a goal means."""

    EARLIEST = enum.auto()
    LATEST = enum.auto()
    CURRENT = enum.auto()  # the committed offset; the end if there is none
    TIME = enum.auto()  # ms since 1970
    AGE = enum.auto()  # ms before now
    OFFSET = enum.auto()  # the offset
    SHIFT = enum.auto()  # added to the committed offset; may be negative


class Reset(NamedTuple):
    """A line of a reset plan: the committed offset of a partition (None if there is none) and the new offset. `note`
    says why the new offset is not the requested one; it is empty if both are the same."""

    group: str
    topic: str
    partition: int
    committed: int | None
    new: int
    note: str


def plan_goal(
    admin: Admin,
    group: str,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    goal: Goal,
    number: int,
) -> list[Reset]:
    """Return the plan that resets each partition to the goal. Raises ToolError if offsets are to be shifted and a
    partition has no committed offset."""
    wanted = sorted(partitions)
    before = {where: committed[where].offset for where in wanted if where in committed}
    if goal in (Goal.EARLIEST, Goal.LATEST):
        at = _offsets(admin, wanted, EARLIEST if goal is Goal.EARLIEST else LATEST)
        return [_line(group, where, before, at[where]) for where in wanted]
    if goal is Goal.CURRENT:
        return _or_ends(admin, group, wanted, before, before, "nothing was committed: the end")
    if goal in (Goal.TIME, Goal.AGE):
        moment = number if goal is Goal.TIME else round(time.time() * 1000) - number
        at = _offsets(admin, wanted, max(moment, 0))  # negative timestamps have special meanings in ListOffsets
        at = {where: offset for where, offset in at.items() if offset >= 0}
        return _or_ends(admin, group, wanted, before, at, "no record since then: the end")
    if goal is Goal.OFFSET:
        return plan_offsets(admin, group, dict.fromkeys(wanted, number), committed)
    if missing := [where for where in wanted if where not in before]:
        raise ToolError(
            f"group {group!r} has committed nothing for {partitions_text(missing)}, so there is nothing to shift "
            "there; choose others with --topic"
        )
    return plan_offsets(admin, group, {where: before[where] + number for where in wanted}, committed)


def plan_offsets(
    admin: Admin,
    group: str,
    offsets: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[Reset]:
    """Return the plan that resets each partition to its given offset. An offset outside the partition becomes its first
    offset or its end."""
    before = {where: committed[where].offset for where in offsets if where in committed}
    starts = _offsets(admin, offsets, EARLIEST)
    ends = _offsets(admin, offsets, LATEST)
    lines = []
    for where, wanted in sorted(offsets.items()):
        note = ""
        if wanted > ends[where]:
            note = f"{wanted} is after the end"
        elif wanted < starts[where]:
            note = f"{wanted} is before the first record"
        lines.append(_line(group, where, before, min(max(wanted, starts[where]), ends[where]), note))
    return lines


def _or_ends(
    admin: Admin,
    group: str,
    wanted: list[TopicPartition],
    before: Mapping[TopicPartition, int],
    at: Mapping[TopicPartition, int],
    note: str,
) -> list[Reset]:
    """Return the plan that resets each partition in `wanted` to its offset in `at`. A partition that is not in `at` is
    reset to its end, with `note`."""
    ends = _offsets(admin, [where for where in wanted if where not in at], LATEST)
    return [
        _line(group, where, before, at[where]) if where in at else _line(group, where, before, ends[where], note)
        for where in wanted
    ]


def _offsets(admin: Admin, partitions: Iterable[TopicPartition], at: int) -> dict[TopicPartition, int]:
    return {where: found.offset for where, found in admin.offsets(dict.fromkeys(partitions, at)).items()}


def _line(group: str, where: TopicPartition, before: Mapping[TopicPartition, int], new: int, note: str = "") -> Reset:
    return Reset(group, *where, before.get(where), new, note)
