"""Plans reassignments: the target replicas of each partition, and the bytes that have to be copied."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kafkapy.client.cluster import TopicPartition
from kafkapy.tools.common.errors import CallError, ToolError


class Move(NamedTuple):
    """A partition with its present and its planned replicas. `size` is the number of bytes of one replica."""

    topic: str
    partition: int
    current: tuple[int, ...]
    target: tuple[int, ...]
    size: int

    @property
    def added(self) -> tuple[int, ...]:
        """The brokers that get a copy of the partition."""
        return tuple(broker for broker in self.target if broker not in self.current)

    @property
    def removed(self) -> tuple[int, ...]:
        """The brokers that delete their copy at the end."""
        return tuple(broker for broker in self.current if broker not in self.target)

    @property
    def copied(self) -> int:
        """The number of bytes that are copied, all new replicas together."""
        return self.size * len(self.added)


def with_factor(
    current: Mapping[TopicPartition, Sequence[int]],
    wanted: Sequence[TopicPartition],
    factor: int,
    racks: Mapping[int, str | None],
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return `factor` replicas for each wanted partition.

    The preferred leader and as many other replicas as possible stay; superfluous ones are removed from the end. A new
    replica goes to a rack that the partition is not in yet, if there is one, and there to the broker with the fewest
    replicas. `current` has the replicas of all partitions, and `racks` the racks of the brokers that run. Raise
    CallError if too few brokers run.
    """
    if factor < 1:
        raise CallError(f"--replication-factor {factor}: a partition needs at least one replica")
    counts: Counter[int] = Counter(dict.fromkeys(racks, 0))
    for replicas in current.values():
        counts.update(replicas)
    planned = {}
    for partition in wanted:
        replicas = list(current[partition])
        for broker in replicas[factor:]:
            counts[broker] -= 1
        del replicas[factor:]
        while len(replicas) < factor:
            possible = [broker for broker in racks if broker not in replicas]
            if not possible:
                raise CallError(f"--replication-factor {factor}: only {len(racks)} brokers run")
            used = {racks.get(broker) for broker in replicas}
            new = min(possible, key=lambda broker: (racks[broker] in used, counts[broker], broker))
            replicas.append(new)
            counts[new] += 1
        planned[partition] = tuple(replicas)
    return planned


def brokers_of(text: str) -> tuple[int, ...]:
    """Return the broker ids in `1,2,3`. Raise CallError for anything else, or if a broker is named twice."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise CallError(f"--replicas {text!r} is not broker ids with commas, as in 1,2,3")
    found = tuple(int(word) for word in words)
    if len(set(found)) < len(found):
        raise CallError(f"--replicas {text!r} names a broker twice")
    return found


def read_file(file: Path) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas in a file of kafka-reassign-partitions (--reassignment-json-file), by partition.

    Raise ToolError if the file cannot be read, does not have that format, or chooses log directories.
    """
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ToolError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ToolError(f"{file} is not JSON: {error}") from error
    entries = value.get("partitions") if isinstance(value, dict) and value.get("version", 1) == 1 else None
    if not isinstance(entries, list) or not entries:
        raise ToolError(f'{file} is not {{"version": 1, "partitions": [{{"topic": ..., "partition": ..., ...}}]}}')
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for entry in entries:
        partition, replicas = _entry(file, entry)
        if partition in found:
            raise ToolError(f"{file}: {partition[0]}-{partition[1]} is there twice")
        found[partition] = replicas
    return found


def _entry(file: Path, entry: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    fields: dict[str, Any] = entry if isinstance(entry, dict) else {}
    topic: Any = fields.get("topic")
    index: Any = fields.get("partition")
    replicas: Any = fields.get("replicas")
    good = isinstance(topic, str) and _is_id(index) and isinstance(replicas, list) and replicas
    if not good or not all(map(_is_id, replicas)) or len(set(replicas)) < len(replicas):
        raise ToolError(
            f"{file}: {json.dumps(entry)} has no topic, no partition, or no list of different brokers as replicas"
        )
    if any(directory != "any" for directory in fields.get("log_dirs") or ()):
        raise ToolError(f"{file}: {topic}-{index} chooses log directories: use kafka-reassign-partitions for that")
    return (topic, index), tuple(replicas)


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
