"""Turn the paths that a user gives into partitions. A path is a segment file, a partition, a topic, or a log
directory.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kafkapy.log.names import LIVE_DIR, parse_dir_name
from kafkapy.log.offline import files_07
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.stored_batches import is_offset

LOG = ".log"
EXAMPLE = "a segment file, a partition's directory (flights-0), a topic (flights) or a log directory"


class Segment(NamedTuple):
    """A segment file. `base_offset` is the number in its name; for Kafka 0.7 this is a position in the log."""

    path: Path
    base_offset: int
    size: int


class Place(NamedTuple):
    """A partition on disk, with all its segments or only those that the user has named.

    Topic and partition are None if the directory is not named like a partition. `whole`: all segments of the partition
    are included, so the transactions before any offset can be determined.
    """

    directory: Path
    topic: str | None
    partition: int | None
    segments: list[Segment]
    kafka_07: bool
    whole: bool

    @property
    def name(self) -> str:
        """The name of the partition's directory, for messages. In Kafka 0.7 it may have an underscore (`topic_0`)."""
        return str(self.directory) if self.topic is None else self.directory.absolute().name

    @property
    def size(self) -> int:
        """The size in bytes of all segment files of this Place."""
        return sum(segment.size for segment in self.segments)


def places_in(paths: Iterable[Path]) -> list[Place]:
    """Return the partitions that the paths name, without duplicates, in the order of the paths.

    The partitions in a topic or log directory are ordered by topic and partition number. Raises OSError, and
    OfflineError for a path that names no partition.
    """
    found: dict[Path, Place] = {}
    for path in paths:
        for place in _places(path):
            key = place.directory if place.whole else place.segments[0].path
            found.setdefault(key.absolute(), place)
    return list(found.values())


def siblings(place: Place) -> list[Segment]:
    """Return all segments of the partition, even if only one was named, because transactions may begin in any
    of them.
    """
    if place.whole:
        return place.segments
    all_of_it = _partition(place.directory)
    return all_of_it.segments if all_of_it else place.segments


def _places(path: Path) -> list[Place]:
    if path.is_dir():
        if place := _partition(path):
            return [place]
        places = _partitions_below(path)
        if not places:
            raise OfflineError(f"{path} has no segments and no partitions in it: {EXAMPLE} is needed.")
        return places
    if path.exists():
        return [_file(path)]
    if path.parent.is_dir() and (places := _partitions_below(path.parent, path.name)):
        return places
    raise OfflineError(f"{path} does not exist, nor are there partitions of a topic of that name: {EXAMPLE} is needed.")


def _file(path: Path) -> Place:
    old = files_07.is_segment_07(path)
    if not old and (path.suffix != LOG or not is_offset(path.stem)):
        raise OfflineError(
            f"{path} is not a segment file: its name is not an offset and {LOG}, as in 00000000000000000042{LOG}."
        )
    return _place(path.parent, [_segment(path)], old, whole=False)


def _partition(directory: Path) -> Place | None:
    segments = [path for path in directory.iterdir() if path.suffix == LOG and is_offset(path.stem)]
    old = [] if segments else [one.path for one in files_07.segments_07(directory)]
    if not segments and not old:
        return None
    there = [segment for path in segments or old if (segment := _if_there(path))]
    found = sorted(there, key=lambda segment: segment.base_offset)
    return _place(directory, found, bool(old), whole=True) if found else None


def _partitions_below(directory: Path, topic: str | None = None) -> list[Place]:
    """Return the partitions in a log directory, only those of `topic` if given, ordered by topic and partition number.

    Without partitions that are marked as stray or for deletion: the user must name those directly.
    """
    found = []
    for inside in directory.iterdir():
        named = _named(inside.name)
        if named and topic in (None, named[0]) and inside.is_dir() and (place := _partition(inside)):
            found.append(place)
    return sorted(found, key=lambda place: (place.topic or "", place.partition or 0))


def _place(directory: Path, segments: list[Segment], old: bool, *, whole: bool) -> Place:
    topic, partition = _named(directory.absolute().name) or (None, None)
    return Place(directory, topic, partition, segments, old, whole)


def _named(name: str) -> tuple[str, int] | None:
    parsed = parse_dir_name(name)
    if parsed:
        return (parsed.topic, parsed.partition) if parsed.kind == LIVE_DIR else None
    return files_07.partition_of_07(name)


def _if_there(path: Path) -> Segment | None:
    """Return the segment file `path`, None if a broker has deleted the file since the directory was listed."""
    try:
        return _segment(path)
    except FileNotFoundError:
        return None


def _segment(path: Path) -> Segment:
    return Segment(path, int(path.stem), path.stat().st_size)
