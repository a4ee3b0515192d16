"""Reads the directory of one partition: the topic id, the highest leader epoch and the highest producer id."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kafkapy.log import leader_epochs, names
from kafkapy.log.directories.checkpoints import CheckpointError, numbers, parse_lines
from kafkapy.log.directories.partition_metadata import PartitionMetadataError, read_topic_id
from kafkapy.log.producers.producer_snapshots import SnapshotError, parse_snapshot
from kafkapy.log.storage.files import Files
from kafkapy.server.adoption.errors import AdoptionError
from kafkapy.server.adoption.log_walk import Highest, walk_segment

TRANSACTIONS = "__transaction_state"
_SUFFIX_07 = ".kafka"


class FoundPartition(NamedTuple):
    """A partition found in a log directory. `topic_id` is None if a Kafka before 2.8 wrote the directory. `highest` has
    the highest leader epoch and producer id, -1 where unknown. `segments` is the number of the .log files, `size` their
    size in bytes."""

    topic: str
    partition: int
    directory: Path
    topic_id: bytes | None
    highest: Highest
    segments: int
    size: int


def read_partition(topic: str, partition: int, directory: Path, show: Callable[[int], None]) -> FoundPartition:
    """Read the directory of a partition and return a description of it, with the highest leader epoch and producer id
    in its files. `show` is called with the number of bytes read so far. Raise AdoptionError or OSError."""
    sizes = {entry.name: entry.size for entry in Files().entries(str(directory)) if not entry.is_dir}
    logs = [name for name in sizes if name.endswith(names.LOG)]
    highest = Highest(-1, _stored_epoch(directory))
    for name in sizes:
        if name.endswith(names.SNAPSHOT):
            highest = highest.with_(_in_snapshot(directory / name))
    done = 0
    for name in logs:
        highest = walk_segment(directory / name, highest, shifted(show, done), of_transactions=topic == TRANSACTIONS)
        done += sizes[name]
    return FoundPartition(topic, partition, directory, _topic_id(directory), highest, len(logs), done)


def refuse_07(directory: Path) -> None:
    """Raise AdoptionError if Kafka 0.7 wrote the directory, which means that it contains .kafka files."""
    if any(entry.name.endswith(_SUFFIX_07) for entry in Files().entries(str(directory))):
        raise AdoptionError(
            f"{directory} was written by Kafka 0.7, whose offsets are byte positions: it cannot be adopted; import it "
            "into a topic with `kafkapy log import`, or serve it to clients of 0.7 (kafkapy.kafka07.properties)"
        )


def shifted(show: Callable[[int], None], done: int) -> Callable[[int], None]:
    """Return a progress callback for a part of the work: it adds `done`, the bytes read before that part, to its
    argument and calls `show` with the sum."""
    return lambda more: show(done + more)


def _topic_id(directory: Path) -> bytes | None:
    try:
        return read_topic_id(Files(), str(directory))
    except PartitionMetadataError as error:
        raise AdoptionError(f"{error}: take the file from another partition of the topic, or remove it") from error


def _stored_epoch(directory: Path) -> int:
    """Return the latest leader epoch in the partition's leader epoch checkpoint file, or -1 if the file is missing or
    damaged: the record batches contain their leader epochs too."""
    path = directory / leader_epochs.NAME
    try:
        lines = parse_lines(path.read_bytes(), str(path))
        return max((numbers(line, 2, str(path))[0] for line in lines), default=-1)
    except (FileNotFoundError, CheckpointError):
        return -1


def _in_snapshot(path: Path) -> Highest:
    """Return a Highest with the highest producer id in the producer snapshot file at `path`, and leader epoch -1.

    The producer id is -1 if the file has no producers or is damaged; the broker ignores a damaged file, too.
    """
    try:
        entries = parse_snapshot(path.read_bytes(), str(path))
    except SnapshotError:
        return Highest()
    return Highest(max((entry.producer_id for entry in entries), default=-1))
