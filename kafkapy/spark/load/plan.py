"""Which offsets a run loads, and in which pieces."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kafkapy.client.cluster import TopicPartition
from kafkapy.spark.load.broker_side import Available
from kafkapy.spark.load.errors import LoadError
from kafkapy.spark.load.intervals import Interval, minus
from kafkapy.spark.load.state import Topic
from kafkapy.spark.load.task import Piece

SMALLEST_PIECE = 20_000  # offsets for which another task is not worth its start


@dataclass(frozen=True)
class Plan:
    """todo: what is to be loaded, by partition. lost: offsets that retention took before they were loaded."""

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
    """start, end: the offsets of the times that were asked for; without a start a partition goes on where it is, a new
    one begins with its first record. `again`: also what the directory has.

    Raises LoadError where records that were still to be loaded are gone, unless that is accepted.
    """
    todo: dict[TopicPartition, list[Interval]] = {}
    lost: dict[TopicPartition, int] = {}
    for where, has in there.items():
        topic, partition = where
        have = topics[topic].have.get(partition, []) if topic in topics else []
        reached = have[-1][1] if have else None
        if reached is not None and reached > has.latest:
            # A partition whose end went back has other records at offsets that were loaded. With read_committed the
            # end is that of what is decided, which does not go back either.
            raise LoadError(
                f"{topic}-{partition} ends at offset {has.latest}, and the directory has it up to {reached}: it has "
                "lost records, or was made anew; load it into another directory"
            )
        first = has.earliest if reached is None else reached
        if start is not None:
            first = start[where]
        if first < has.earliest:
            lost[where] = has.earliest - first
            if not accept_loss:
                raise LoadError(
                    f"{topic}-{partition} begins at offset {has.earliest}, and {first} was to be loaded next: "
                    f"{has.earliest - first:,} offsets are gone, through retention or because records were deleted; "
                    "--accept-loss goes on without them"
                )
            first = has.earliest
        last = has.latest if end is None else end[where]
        todo[where] = minus(first, last, () if again else have)
    return Plan(todo, lost)


def batches(todo: Mapping[TopicPartition, list[Interval]], rows: int) -> Iterator[list[Piece]]:
    """About `rows` offsets at a time, the same of every partition that has any left, in the order of offsets."""
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
    """Pieces of about the same size, so that so many tasks have something to do."""
    total = sum(piece.end - piece.start for piece in batch)
    size = max(SMALLEST_PIECE, -(-total // tasks))
    return [
        Piece(piece.topic, piece.partition, start, min(piece.end, start + size))
        for piece in batch
        for start in range(piece.start, piece.end, size)
    ]
