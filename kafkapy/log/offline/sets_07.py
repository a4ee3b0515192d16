"""Segment files of Kafka 0.7 as sets of format 0, which whatever reads later formats can take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafkapy.log.offline.files_07 import Reader07
from kafkapy.record.conversion_07 import as_format_0
from kafkapy.record.kafka07 import CorruptMessage

GROUP = 1 << 18  # bytes that are handed on at a time


class Set07(NamedTuple):
    """`end`: where the last of the messages ends in the file."""

    data: bytearray
    end: int


def sets_of_07(path: Path, base_offset: int) -> Iterator[Set07]:
    """The messages of a segment file; they have no timestamps, and those of a compressed one all have its offset.

    Ends before a message that is not all there. Raises CorruptMessage, with its position in the file, when what was
    before it has been given; OSError, OfflineError.
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
