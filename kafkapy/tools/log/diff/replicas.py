"""The comparison of two replicas of a partition, for `kafkapy log diff`.

Replicas have the same batches byte for byte, but their segments may begin at different offsets. So both logs are read
side by side, over the offsets that both have. Offsets that only one replica has are no difference: at the start after
retention, or at the end because the other replica lags behind.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafkapy.log import leader_epochs
from kafkapy.log.directories import checkpoints, partition_metadata
from kafkapy.log.directories.checkpoints import CheckpointError, OffsetCheckpoint, numbers, parse_lines
from kafkapy.log.offline.lookups import end_offset_of, position_of, records_of
from kafkapy.log.offline.places import Place
from kafkapy.log.offline.stored_batches import LogReader, StoredBatch
from kafkapy.log.storage.files import Files
from kafkapy.record.legacy import Entry
from kafkapy.record.records import Record
from kafkapy.tools.common.errors import ToolError

# The fields of a batch in the order of importance, with names for people.
_FIELDS = (
    ("last_offset", "last offset"),
    ("magic", "message format"),
    ("size", "size"),
    ("codec", "codec"),
    ("leader_epoch", "leader epoch"),
    ("producer_id", "producer id"),
    ("producer_epoch", "producer epoch"),
    ("base_sequence", "base sequence"),
    ("count", "count of records"),
    ("attributes", "attributes"),
    ("max_timestamp", "max timestamp"),
    ("crc", "CRC"),
)


@dataclass
class Replica:
    """One of the two replicas: its log from offset `start` to before `end`, and its leader epochs as (epoch, start
    offset)."""

    place: Place
    start: int
    end: int
    epochs: list[tuple[int, int]]
    topic_id: str | None

    @property
    def is_empty(self) -> bool:
        return self.start >= self.end

    @property
    def summary(self) -> dict[str, Any]:
        return {
            "directory": str(self.place.directory),
            "startOffset": self.start,
            "endOffset": self.end,
            "segments": len(self.place.segments),
            "bytes": self.place.size,
        }


@dataclass
class Comparison:
    """The result of comparing two replicas. `first` describes the first difference between the batches, and
    `other_differences` has sentences about topic ids and leader epochs.

    The compared offsets go from `begin` to before `end`. The counts are numbers of batches (messages in formats 0 and
    1), and `bytes` is the size of the equal batches.
    """

    one: Replica
    other: Replica
    begin: int = 0
    end: int = 0
    same: int = 0
    different: int = 0
    only_one: int = 0
    only_other: int = 0
    bytes: int = 0
    first: str | None = None
    first_offset: int | None = None
    other_differences: list[str] = field(default_factory=list)

    @property
    def both_empty(self) -> bool:
        return self.one.is_empty and self.other.is_empty

    @property
    def differ(self) -> bool:
        return self.first is not None or bool(self.other_differences)


def replica_of(place: Place) -> Replica:
    """Return the replica in a partition's directory, with its offset range, leader epochs and topic id. Raises
    ToolError, OSError."""
    if place.kafka_07:
        raise ToolError(f"{place.name} is of Kafka 0.7, which had no replicas.")
    start = max(place.segments[0].base_offset, _log_start_offset(place))
    end = max(end_offset_of(place.segments[-1]), place.segments[-1].base_offset)
    return Replica(place, start, end, _epochs_of(place.directory), _topic_id_of(place.directory))


def compare(one: Replica, other: Replica, advance: Callable[[int], object] = lambda _: None) -> Comparison:
    """Compare two replicas. `advance` is called with the number of bytes read so far from both together. Raises
    ToolError, OSError."""
    found = Comparison(one, other, max(one.start, other.start), min(one.end, other.end))
    if one.topic_id != other.topic_id and None not in (one.topic_id, other.topic_id):
        found.other_differences.append(f"the topic ids differ: {one.topic_id} and {other.topic_id}")
    if found.begin < found.end:
        _compare_epochs(found)
        _compare_batches(found, advance)
    return found


def _compare_batches(found: Comparison, advance: Callable[[int], object]) -> None:
    """Compare the batches of both replicas in the order of their offsets, and write the result into `found`."""
    left = _batches(found.one.place, found.begin, found.end)
    right = _batches(found.other.place, found.begin, found.end)
    a, b = next(left, None), next(right, None)
    done = 0
    while a is not None or b is not None:
        if a is not None and b is not None and a[1].data == b[1].data:
            found.same += 1
            found.bytes += a[1].header.size
            done += 2 * a[1].header.size
            a, b = next(left, None), next(right, None)
        elif b is None or (a is not None and a[1].header.last_offset < _base(b[1])):
            assert a is not None
            found.only_one += 1
            _note(found, a[1], f"only {found.one.place.directory} has {_batch_text(a[1])}")
            done += a[1].header.size
            a = next(left, None)
        elif a is None or b[1].header.last_offset < _base(a[1]):
            found.only_other += 1
            _note(found, b[1], f"only {found.other.place.directory} has {_batch_text(b[1])}")
            done += b[1].header.size
            b = next(right, None)
        else:
            found.different += 1
            if found.first is None:
                _note(found, a[1], _difference(a, b))
            done += a[1].header.size + b[1].header.size
            ends = a[1].header.last_offset, b[1].header.last_offset
            if ends[0] <= ends[1]:
                a = next(left, None)
            if ends[1] <= ends[0]:
                b = next(right, None)
        advance(done)


def _note(found: Comparison, batch: StoredBatch, sentence: str) -> None:
    if found.first is None:
        found.first, found.first_offset = sentence, _base(batch)


def _batches(place: Place, begin: int, end: int) -> Iterator[tuple[Path, StoredBatch]]:
    """Yield the batches from the batch with offset `begin` up to offset `end` (exclusive), each with the path of its
    .log file."""
    for number, segment in enumerate(place.segments):
        if number + 1 < len(place.segments) and place.segments[number + 1].base_offset <= begin:
            continue
        with LogReader(segment.path) as log:
            for batch in log.batches(position_of(segment, begin)):
                if _base(batch) >= end:
                    return
                yield segment.path, batch


def _base(batch: StoredBatch) -> int:
    """Return the base offset of a batch. In formats 0 and 1 return the last offset, because a wrapper does not contain
    its base offset."""
    header: Entry = batch.header
    return header.base_offset if header.magic == 2 else header.last_offset  # type: ignore[union-attr]


def _batch_text(batch: StoredBatch) -> str:
    header = batch.header
    what = "batch" if header.magic == 2 else "message"
    base = _base(batch)
    offsets = f"offset {base}" if base == header.last_offset else f"offsets {base} to {header.last_offset}"
    return f"the {what} with {offsets} ({header.size} bytes, CRC {header.crc})"


def _difference(a: tuple[Path, StoredBatch], b: tuple[Path, StoredBatch]) -> str:
    """Return a sentence about the first record in which two batches differ, or if all records are equal about the
    fields in which the batches differ."""
    one, other = a[1].header, b[1].header
    fields = [
        f"{name} {getattr(one, attribute)} and {getattr(other, attribute)}"
        for attribute, name in _FIELDS
        if hasattr(one, attribute)
        and hasattr(other, attribute)
        and getattr(one, attribute) != getattr(other, attribute)
    ]
    base = _base(a[1])
    where = f"the batches at offset {base} ({a[0].name} position {a[1].position}, {b[0].name} position {b[1].position})"
    if base != _base(b[1]):
        return f"{where} begin at different offsets: {base} and {_base(b[1])}"
    records = [records_of(*a), records_of(*b)]
    for first, second in zip(*records, strict=False):
        if first != second:
            parts = [name for name, x, y in zip(Record._fields, first, second, strict=True) if x != y]
            offset = min(first.offset, second.offset)
            return f"{where} differ in the {' and '.join(parts)} of the record at offset {offset}"
    if len(records[0]) != len(records[1]):
        return f"{where} hold {len(records[0])} and {len(records[1])} records"
    return f"{where} hold the same records, and differ in {', '.join(fields) or 'bytes that no field is in'}"


def _compare_epochs(found: Comparison) -> None:
    """Compare the leader epochs of both replicas, but only for offsets in both logs: a checkpoint may lack epochs
    before the log start offset."""
    one, other = (_clipped(each.epochs, found.begin, found.end) for each in (found.one, found.other))
    if one != other and one and other:
        found.other_differences.append(
            f"the leader epochs differ: {_epochs_text(one)} in {found.one.place.directory}, {_epochs_text(other)} in "
            f"{found.other.place.directory}"
        )


def _clipped(epochs: list[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    clipped: list[tuple[int, int]] = []
    for epoch, start in epochs:
        if start >= end:
            break
        if start <= begin:
            clipped = [(epoch, begin)]
        else:
            clipped.append((epoch, start))
    return clipped


def _epochs_text(epochs: list[tuple[int, int]]) -> str:
    return ", ".join(f"{epoch} from {start}" for epoch, start in epochs)


def _epochs_of(directory: Path) -> list[tuple[int, int]]:
    path = directory / leader_epochs.NAME
    try:
        lines = parse_lines(path.read_bytes(), str(path))
        pairs = [numbers(line, 2, str(path)) for line in lines]
    except FileNotFoundError:
        return []
    except CheckpointError as error:
        raise ToolError(f"{error}. See: kafkapy log verify {directory}") from error
    return [(epoch, start) for epoch, start in pairs]


def _topic_id_of(directory: Path) -> str | None:
    path = directory / partition_metadata.NAME
    try:
        topic_id = partition_metadata.parse_metadata(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ToolError(f"{error}. See: kafkapy log verify {directory}") from error
    return partition_metadata.format_metadata(topic_id).decode().rpartition(" ")[2]


def _log_start_offset(place: Place) -> int:
    """Return the partition's log start offset from the checkpoint in the log directory; 0 if the checkpoint is missing
    or damaged."""
    checkpoint = OffsetCheckpoint(Files(), str(place.directory.absolute().parent), checkpoints.LOG_START_OFFSETS)
    try:
        offsets = checkpoint.read()
    except CheckpointError:
        return 0
    return offsets.get((place.topic or "", -1 if place.partition is None else place.partition), 0)
