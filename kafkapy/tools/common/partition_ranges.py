"""Parses and formats sets of partitions as text, such as `flights:0,2-4`."""

import re
from collections.abc import Iterable

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.responses import grouped
from kafkapy.tools.common.errors import CallError

_PART = re.compile(r"([0-9]+)(?:-([0-9]+))?", re.ASCII)
_MOST = 1_000_000  # partitions in one range: a larger range is a typing error


def topics_and_partitions(option: str, texts: Iterable[str]) -> dict[str, list[int] | None]:
    """Return the partition numbers by topic for the values TOPIC or TOPIC:0,2-4 of an option. A topic without numbers
    has None, which means all its partitions.

    Raises CallError for a value in neither form.
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


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Return a set of partitions as text such as `flights:0-2,5 weather:0`; a dash if there are no partitions."""
    return " ".join(f"{topic}:{_ranges(numbers)}" for topic, numbers in grouped(sorted(partitions)).items()) or "-"


def _ranges(numbers: list[int]) -> str:
    """Return ascending numbers as text in which consecutive numbers are ranges, such as `0-2,5`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
