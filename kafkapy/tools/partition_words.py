"""Partitions as people write and read them: `flights:0,2-4`."""

import re
from collections.abc import Iterable

from kafkapy.client.answers import grouped
from kafkapy.client.cluster import TopicPartition
from kafkapy.tools.errors import CallError

_PART = re.compile(r"([0-9]+)(?:-([0-9]+))?", re.ASCII)
_MOST = 1_000_000  # partitions in one range: more is a slip of the finger


def topics_and_partitions(option: str, texts: Iterable[str]) -> dict[str, list[int] | None]:
    """The values of an option that takes TOPIC or TOPIC:0,2-4; None for all partitions of a topic.

    Raises CallError for what is neither.
    """
    wanted: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not topic:
            raise CallError(f"{option} {text!r} names no topic; write TOPIC or TOPIC:0,2-4")
        if not colon:
            wanted[topic] = None
        elif (known := wanted.setdefault(topic, [])) is not None:
            known.extend(number for number in _numbers(option, text, numbers) if number not in known)
    return wanted


def _numbers(option: str, text: str, numbers: str) -> list[int]:
    found: list[int] = []
    for part in numbers.split(","):
        match = _PART.fullmatch(part.strip())
        first = int(match[1]) if match else 0
        last = int(match[2] or first) if match else -1
        if not match or last < first or last - first > _MOST:
            raise CallError(f"{option} {text!r}: {part.strip()!r} is no partition; write TOPIC:0,2-4")
        found += range(first, last + 1)
    return found


def in_words(partitions: Iterable[TopicPartition]) -> str:
    """`flights:0-2,5 weather:0`; a dash where there is none."""
    return " ".join(f"{topic}:{_ranges(numbers)}" for topic, numbers in grouped(sorted(partitions)).items()) or "-"


def _ranges(numbers: list[int]) -> str:
    """Of ascending numbers."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
