"""Parses options whose value is JSON: a list of partitions, or an offset or timestamp for each partition.

Source: JsonUtils of Spark's Kafka source.
"""

import json
import re
from typing import Any

from kafkapy.client.cluster import TopicPartition
from kafkapy.spark.options.given import LARGEST_LONG, BadOption

LATEST, EARLIEST = -1, -2  # offsets in JSON that mean the end and the beginning
_LARGEST_INDEX = (1 << 31) - 1

OFFSETS_EXAMPLE = '{"orders":{"0":23,"1":-1},"payments":{"0":-2}} (-1: latest, -2: earliest)'
TIMESTAMPS_EXAMPLE = '{"orders":{"0":1718000000000}} (ms since 1970)'
PARTITIONS_EXAMPLE = '{"orders":[0,1],"payments":[0]}'


def partitions_of(option: str, text: str) -> list[TopicPartition]:
    """Return the partitions in an option's value `text`, such as `{"topic":[0,1]}`. Raises BadOption for other text."""
    loaded = _object(option, text, PARTITIONS_EXAMPLE)
    found: set[TopicPartition] = set()
    for topic, indexes in loaded.items():
        if not isinstance(indexes, list) or not all(_whole(index, 0, _LARGEST_INDEX) for index in indexes):
            raise _bad(option, text, PARTITIONS_EXAMPLE)
        found.update((topic, index) for index in indexes)
    if not found:
        raise _bad(option, text, PARTITIONS_EXAMPLE)
    return sorted(found)


def offsets_of(option: str, text: str) -> dict[TopicPartition, int]:
    """Return the offset of each partition in an option's value `text`, such as `{"topic":{"0":5}}`.

    An offset may be -1 (latest) or -2 (earliest). Raises BadOption for other text.
    """
    return _numbers(option, text, OFFSETS_EXAMPLE, least=EARLIEST)


def timestamps_of(option: str, text: str) -> dict[TopicPartition, int]:
    """Return the timestamp (ms) of each partition in an option's value `text`, such as `{"topic":{"0":1718000000000}}`.

    Raises BadOption for other text.
    """
    return _numbers(option, text, TIMESTAMPS_EXAMPLE, least=0)


def _numbers(option: str, text: str, example: str, *, least: int) -> dict[TopicPartition, int]:
    """Return the integer for each partition in an option's value `text`, such as `{"topic":{"0":5}}`.

    Raises BadOption for other text, or for an integer that is less than `least`. `example` is for the message.
    """
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _object(option, text, example).items():
        if not isinstance(numbers, dict):
            raise _bad(option, text, example)
        for index, number in numbers.items():
            if not re.fullmatch("[0-9]{1,10}", index) or int(index) > _LARGEST_INDEX:
                raise _bad(option, text, example)
            if not _whole(number, least, LARGEST_LONG):
                raise _bad(option, text, example)
            found[topic, int(index)] = number
    return found


def _object(option: str, text: str, example: str) -> dict[str, Any]:
    """Return the JSON object in an option's value `text`.

    Raise BadOption, with `example`, if the text is no JSON object.
    """
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError):
        loaded = None
    if not isinstance(loaded, dict):
        raise _bad(option, text, example)
    return loaded


def _whole(number: Any, least: int, most: int) -> bool:
    """Return True if a value from JSON is an integer from `least` to `most`, both included."""
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= most


def _bad(option: str, text: str, example: str) -> BadOption:
    return BadOption(f"{option} is {text!r}: write {example}")
