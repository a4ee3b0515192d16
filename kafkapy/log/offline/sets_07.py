"""Convert segment files of Kafka 0.7 to message sets of format 0, which all readers of later formats understand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafkapy.log.offline.files_07 import Reader07
from kafkapy.record.conversion_07 import as_format_0
from kafkapy.record.kafka07 import CorruptMessage

GROUP = 1 << 18  # the least number of bytes in a set, except the last


class Set07(NamedTuple):
    """A message set of format 0. `end`: the position in the Kafka 0.7 file where the set's last message ends."""

    data: bytearray
    end: int


def sets_of_07(path: Path, base_offset: int) -> Iterator[Set07]:
    """Yield the messages of a Kafka 0.7 segment file as message sets of format 0. The messages have no timestamps.

    The messages inside a compressed message all have its offset. Ends before an incomplete message at the end of the
    file. Raises OSError, OfflineError, and CorruptMessage with the position in the file, after all messages before that
    position were yielded.
    """
    group, end = bytearray(), 0
    damage = None
    with Reader07(path) as reader:
        try:
            for message in reader.messages():
                group += as_format_0(message, base_offset + message.position)
                end = message.end
                if len(group) >= GROUP:
                    yield Set07(group, end)
                    group = bytearray()
        except CorruptMessage as error:
            damage = error
    if group:
        yield Set07(group, end)
    if damage is not None:
        raise damage
