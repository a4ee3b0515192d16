"""What `kafkapy groups describe --zookeeper` shows: the rows and documents of a group in ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkapy.tools.group_homes_zookeeper import Kept
from kafkapy.tools.output import counted, print_table
from kafkapy.tools.partition_words import in_words

if TYPE_CHECKING:
    from kafkapy.client.original.assignment import Partition
    from kafkapy.client.original.group_nodes import OldGroup
    from kafkapy.client.original.subscriptions import Subscription


class Described(NamedTuple):
    """A group, what is committed for its partitions, and where these end now, as far as that is known."""

    group: OldGroup
    kept: Mapping[Partition, Kept]
    ends: Mapping[Partition, int]

    def offset(self, where: Partition) -> int | None:
        return self.kept[where].offset if where in self.kept else None

    def lag(self, where: Partition) -> int | None:
        return self.ends[where] - self.kept[where].offset if where in self.kept and where in self.ends else None


def in_zookeeper(group: OldGroup) -> dict[Partition, Kept]:
    """What is known to be committed without asking a broker."""
    return {where: Kept(offset, None) for where, offset in group.offsets.items()}


def print_offsets(described: Described) -> None:
    group = described.group
    lags = [lag for where in group.partitions if (lag := described.lag(where)) is not None]
    print(f"{_head(group)}{f', lag {sum(lags):,}' if lags else ''}")
    if not group.partitions:
        print("It has committed nothing, and nothing is assigned to it.")
        return
    rows: list[tuple[object, ...]] = []
    for where in group.partitions:
        numbers = (described.offset(where), described.ends.get(where), described.lag(where))
        owner = [_dash(group.owners.get(where))] if group.owners else []
        rows.append((*where, *map(_dash, numbers), _dash(described.kept.get(where)), *owner))
    columns = ["topic", "partition>", "committed>", "end>", "lag>", "kept in"]
    print_table([*columns, "owner"] if group.owners else columns, rows)


def print_members(described: Described) -> None:
    group = described.group
    print(_head(group))
    if group.members:
        print_table(
            ["member", "subscription", "partitions>", "assignment"],
            [
                (member, _subscription(wanted), len(its := _owned(group, member)), _in_words(its))
                for member, wanted in group.members.items()
            ],
        )


def document(described: Described, *, with_offsets: bool) -> dict[str, Any]:
    """A group in JSON. Partitions of Kafka 0.7 are texts, BROKER-NUMBER."""
    group = described.group
    shown: dict[str, Any] = {
        "group": group.name,
        "members": [
            {
                "member": member,
                "subscription": None if wanted is None else _subscription_document(wanted),
                "partitions": [{"topic": topic, "partition": _number(name)} for topic, name in _owned(group, member)],
            }
            for member, wanted in group.members.items()
        ],
    }
    if with_offsets:
        shown["offsets"] = [
            {
                "topic": where[0],
                "partition": _number(where[1]),
                "committed": described.offset(where),
                "inZooKeeper": described.kept[where].zookeeper if where in described.kept else None,
                "inKafka": described.kept[where].kafka if where in described.kept else None,
                "end": described.ends.get(where),
                "lag": described.lag(where),
                "owner": group.owners.get(where),
            }
            for where in group.partitions
        ]
    return shown


def _head(group: OldGroup) -> str:
    return f"Group {group.name}: {counted(len(group.members), 'member') if group.members else 'no members'}"


def _owned(group: OldGroup, member: str) -> list[Partition]:
    return [where for where in group.partitions if group.member_of(where) == member]


def _in_words(partitions: list[Partition]) -> str:
    if all(name.isdecimal() for _, name in partitions):
        return in_words((topic, int(name)) for topic, name in partitions)
    by_topic: dict[str, list[str]] = {}
    for topic, name in partitions:
        by_topic.setdefault(topic, []).append(name)
    return " ".join(f"{topic}:{','.join(names)}" for topic, names in by_topic.items())


def _subscription(wanted: Subscription | None) -> str:
    """The streams of each topic, or of all topics that a filter allows."""
    if wanted is None:
        return "cannot be read"
    if wanted.filter is None:
        return " ".join(f"{topic} ({counted(count, 'stream')})" for topic, count in wanted.counts.items()) or "-"
    kind = wanted.filter.pattern.replace("_", " ")
    return f"{kind} {wanted.filter.regex} ({counted(wanted.streams, 'stream')})"


def _subscription_document(wanted: Subscription) -> dict[str, Any]:
    if wanted.filter is None:
        return {"pattern": "static", "topics": dict(wanted.counts)}
    return {"pattern": wanted.filter.pattern, "regex": wanted.filter.regex, "streams": wanted.streams}


def _number(name: str) -> int | str:
    return int(name) if name.isdecimal() else name


def _dash(value: object) -> object:
    return "-" if value is None else value
