"""Where the last appends began: a consumer that keeps up always asks for one of those offsets."""

from __future__ import annotations

from kafkapy.log.segment import Segment

_REMEMBERED = 128


class Starts:
    """Where recent appends began: offset -> (segment, position). One writer, any number of readers."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[int, tuple[Segment, int]] = {}

    def note(self, offset: int, segment: Segment, position: int) -> None:
        places = self._places
        if len(places) >= _REMEMBERED:
            del places[next(iter(places))]
        places[offset] = (segment, position)

    def get(self, offset: int) -> tuple[Segment, int] | None:
        return self._places.get(offset)

    def clear(self) -> None:
        """After anything but an append changed the log. A new dict: readers may look into the old one."""
        self._places = {}
