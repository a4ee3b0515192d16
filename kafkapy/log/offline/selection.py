"""Select the partitions in given paths by topic and partition number."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from kafkapy.log.names import KRAFT_METADATA
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.places import Place, places_in

# Internal topics in a log directory are read only if they are named.
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", KRAFT_METADATA})
SHOWN = 10


def selected(
    paths: Iterable[Path], topics: Collection[str] | None = None, partitions: Collection[int] | None = None
) -> list[Place]:
    """Return the partitions in `paths` that have one of these topics and one of these partition numbers.

    If `partitions` is None, all numbers are selected; if `topics` is None, all topics except Kafka's internal ones.
    Raises OSError, and OfflineError if a path, topic or partition does not exist, or the paths contain a partition
    twice.
    """
    asked = [Path(path) for path in paths]
    places = _without_parts(places_in(asked))
    where = ", ".join(map(str, asked))
    if topics is None:
        places = [place for place in places if place.topic not in INTERNAL or is_asked(place, asked)]
    else:
        known = sorted({place.topic for place in places if place.topic is not None})
        if missing := sorted(set(topics) - set(known)):
            there = ", ".join(known[:SHOWN]) + (", ..." if len(known) > SHOWN else "")
            raise OfflineError(f"{where} has no partition of topic {missing[0]!r}; the topics there are: {there}.")
        places = [place for place in places if place.topic in topics]
    if partitions is not None:
        if missing_number := sorted(set(partitions) - {place.partition for place in places}):
            raise OfflineError(f"{where} has no partition {missing_number[0]} of the selected topics.")
        places = [place for place in places if place.partition in partitions]
    _refuse_twice(places)
    return places


def _without_parts(places: list[Place]) -> list[Place]:
    """Return the places without single segments of partitions that are also given as a whole."""
    whole = {place.directory.absolute() for place in places if place.whole}
    return [place for place in places if place.whole or place.directory.absolute() not in whole]


def is_asked(place: Place, asked: Collection[Path]) -> bool:
    """Return True if one of the paths `asked` names this partition, its topic or one of its segments directly."""
    directory = place.directory.absolute()
    own = {directory, directory.with_name(str(place.topic)), *(one.path.absolute() for one in place.segments)}
    return any(path.absolute() in own for path in asked)


def _refuse_twice(places: list[Place]) -> None:
    """Raise OfflineError if a partition is in two directories (replicas, or a copy): its records would be read
    twice.
    """
    seen: dict[tuple[str, int], Path] = {}
    for place in places:
        if place.topic is not None and place.partition is not None:
            directory = place.directory.absolute()
            other = seen.setdefault((place.topic, place.partition), directory)
            if other != directory:
                raise OfflineError(
                    f"{place.name} is there twice, in {other} and in {directory}: its records would be read twice. "
                    "Name only the directory to read."
                )
