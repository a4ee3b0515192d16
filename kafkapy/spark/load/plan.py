"""Plans a run: finds the offsets to load, divides them into batches, and each batch into ranges for tasks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kafkapy.client.cluster import TopicPartition
from kafkapy.spark.load.broker_side import Available
from kafkapy.spark.load.errors import LoadError
from kafkapy.spark.load.intervals import Interval, minus
from kafkapy.spark.load.state import Topic
from kafkapy.spark.load.task import Piece

SMALLEST_PIECE = 20_000  # fewer offsets are not worth another task


@dataclass(frozen=True)
class Plan:
    """The offsets that a run has to load.

    Attributes:
        todo: The offsets to load, by partition.
        lost: The number of offsets that were deleted before they were loaded, by partition.
    """

    todo: dict[TopicPartition, list[Interval]]
    lost: dict[TopicPartition, int]


def plan(
    topics: Mapping[str, Topic],
    there: Mapping[TopicPartition, Available],
    start: Mapping[TopicPartition, int] | None,
    end: Mapping[TopicPartition, int] | None,
    *,
    again: bool = False,
    accept_loss: bool = False,
) -> Plan:
    """Return the offsets to load from each partition.

    Args:
        topics: The offsets that the directory has or leaves out, by topic name.
        there: The offsets that the brokers have, by partition.
        start: The first offset to load. None: continue after the last offset that was loaded or left out, or begin at
            the earliest offset.
        end: The offset to stop before. None: load up to the latest offset.
        again: Include offsets that the directory already has.
        accept_loss: Leave out offsets that were deleted before they were loaded, instead of raising LoadError.
    Raises:
        LoadError: Offsets were deleted before they were loaded, or a partition ends before its last loaded offset.
    """
    todo: dict[TopicPartition, list[Interval]] = {}
    lost: dict[TopicPartition, int] = {}
    for where, has in there.items():
        topic, partition = where
        known = topics.get(topic, Topic())
        have = known.have.get(partition, [])
        reached = have[-1][1] if have else None
        if reached is not None and reached > has.latest:
            # If the end of a partition has moved back, the offsets that were loaded have other records now. The last
            # stable offset, the end with read_committed, does not move back either.
            raise LoadError(
                f"{topic}-{partition} ends at offset {has.latest}, but the directory has it up to {reached}: the topic "
                "has lost records, or was recreated; load it into another directory"
            )
        first = start[where] if start is not None else known.next_offset(partition)
        if first is None:
            first = has.earliest
        if first < has.earliest:
            lost[where] = has.earliest - first
            if not accept_loss:
                raise LoadError(
                    f"{topic}-{partition} begins at offset {has.earliest}, but {first} was to be loaded next: "
                    f"{has.earliest - first:,} offsets were deleted by retention or by a user; "
                    "--accept-loss continues without them"
                )
            first = has.earliest
        last = has.latest if end is None else end[where]
        todo[where] = minus(first, last, () if again else have)
    return Plan(todo, lost)


def batches(todo: Mapping[TopicPartition, list[Interval]], rows: int) -> Iterator[list[Piece]]:
    """Yield batches of about `rows` offsets. A batch is a list of pieces, each a range of offsets of one partition.

    Each batch has the same number of offsets from every partition that is not finished, in the order of the offsets.
    """
    left = {where: list(pairs) for where, pairs in todo.items() if pairs}
    while left:
        share = max(1, rows // len(left))
        batch = []
        for where in list(left):
            room = share
            while room and left.get(where):
                start, end = left[where].pop(0)
                cut = min(end, start + room)
                batch.append(Piece(*where, start, cut))
                room -= cut - start
                if cut < end:
                    left[where].insert(0, (cut, end))
            if not left[where]:
                del left[where]
        yield batch


def cut(batch: list[Piece], tasks: int) -> list[Piece]:
    """Return the pieces of a batch divided into smaller pieces of about equal size, for `tasks` parallel tasks."""
    total = sum(piece.end - piece.start for piece in batch)
    size = max(SMALLEST_PIECE, -(-total // tasks))
    return [
        Piece(piece.topic, piece.partition, start, min(piece.end, start + size))
        for piece in batch
        for start in range(piece.start, piece.end, size)
    ]
