"""Partition names in the two layouts that Kafka has used for topics in ZooKeeper.

0.8 and later: a topic's znode has JSON with the partitions, which are numbers. 0.7: a topic's znode has a child for
each broker, whose data is the number of partitions on that broker. Partitions are then named BROKER-NUMBER and sort as
text.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping

from kafkapy.errors import Errors, KafkaError


class Layout(enum.Enum):
    """A layout of the znodes of brokers and topics, named after the Kafka versions that use it."""

    V08 = "0.8 and later"
    V07 = "0.7"


def layout_of_topic(data: bytes) -> Layout:
    """Return the layout in use, given the data of a znode /brokers/topics/TOPIC, which is empty in 0.7."""
    return Layout.V08 if data.strip() else Layout.V07


def layout_of_broker(data: bytes) -> Layout:
    """Return the layout in use, given the data of a znode /brokers/ids/ID: JSON, or creator:host:port in 0.7."""
    return Layout.V08 if data.lstrip().startswith(b"{") else Layout.V07


def partitions_in(path: str, data: bytes) -> list[str]:
    """Return the names of a topic's partitions, in order, from the data of the topic's znode (0.8 and later).

    Raises KafkaError, whose message has the path and the data, if the data is malformed.
    """
    try:
        found = json.loads(data)["partitions"]
        numbers = sorted(int(one) for one in found)
        if numbers and not 0 <= numbers[0] <= numbers[-1] < 1 << 31:
            raise ValueError
        return [str(number) for number in numbers]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise KafkaError(
            Errors.UNKNOWN_SERVER_ERROR, f"{path} in ZooKeeper has {data[:200]!r}, which does not name partitions"
        ) from None


def partitions_07(path: str, counts: Mapping[str, bytes]) -> list[str]:
    """Return the names of a topic's partitions, sorted, in the layout of Kafka 0.7.

    `counts` has the number of partitions on each broker, as read from the children of the topic's znode at `path`.
    Raises KafkaError if a count is malformed.
    """
    found = []
    for broker, data in counts.items():
        try:
            found += [f"{int(broker)}-{number}" for number in range(int(data))]
        except ValueError:
            raise KafkaError(
                Errors.UNKNOWN_SERVER_ERROR,
                f"{path}/{broker} in ZooKeeper has {data[:200]!r}, which is not a number of partitions",
            ) from None
    return sorted(found)
