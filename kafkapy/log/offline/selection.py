"""Which partitions are meant: by path, and of those by topic and number."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from kafkapy.log.names import KRAFT_METADATA
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.places import Place, places_in

# Of a whole log directory these are read only when they are asked for.
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", KRAFT_METADATA})
SHOWN = 10


def selected(
    paths: Iterable[Path], topics: Collection[str] | None = None, partitions: Collection[int] | None = None
) -> list[Place]:
    """The partitions behind the paths, of these topics and numbers; None: of all, but for Kafka's own topics.

    Raises OfflineError: a path, a topic or a partition is not there, or a partition is there twice; OSError.
    """
    asked = [Path(path) for path in paths]
    places = _without_parts(places_in(asked))
    where = ", ".join(map(str, asked))
    if topics is None:
        places = [place for place in places if place.topic not in INTERNAL or _is_asked(place, asked)]
    else:
        known = sorted({place.topic for place in places if place.topic is not None})
        if missing := sorted(set(topics) - set(known)):
            there = ", ".join(known[:SHOWN]) + (", ..." if len(known) > SHOWN else "")
            raise OfflineError(f"{where} has no partition of topic {missing[0]!r}; the topics there are: {there}.")
        places = [place for place in places if place.topic in topics]
    if partitions is not None:
        if missing_number := sorted(set(partitions) - {place.partition for place in places}):
            raise OfflineError(f"{where} has no partition {missing_number[0]} of what is to be read.")
        places = [place for place in places if place.partition in partitions]
    _refuse_twice(places)
    return places


def _without_parts(places: list[Place]) -> list[Place]:
    """Segments of a partition that is there as a whole are in it already."""
    whole = {place.directory.absolute() for place in places if place.whole}
    return [place for place in places if place.whole or place.directory.absolute() not in whole]


def _is_asked(place: Place, asked: list[Path]) -> bool:
    """By a path that is its own, or that of its topic."""
    directory = place.directory.absolute()
    own = {directory, directory.with_name(str(place.topic)), *(one.path.absolute() for one in place.segments)}
    return any(path.absolute() in own for path in asked)


def _refuse_twice(places: list[Place]) -> None:
    """Replicas, or a copy beside the original: their records would come twice."""
    seen: dict[tuple[str, int], Path] = {}
    for place in places:
        if place.topic is not None and place.partition is not None:
            directory = place.directory.absolute()
            other = seen.setdefault((place.topic, place.partition), directory)
            if other != directory:
                raise OfflineError(
                    f"{place.name} is there twice, in {other} and in {directory}: its records would come twice. "
                    "Name the one that is to be read."
                )
