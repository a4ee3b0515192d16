"""Read the records of segment files as columns, for `kafkapy log export` and `kafkapy.arrow`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from kafkapy._ext.transactions import TransactionScan
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.lookups import begin_of
from kafkapy.log.offline.places import Place, Segment, siblings
from kafkapy.log.offline.sets_07 import sets_of_07
from kafkapy.record.blocks import SegmentBlocks
from kafkapy.record.columns import ColumnBuilder, Columns, DamagedBatch, column_builder, decompress_records
from kafkapy.record.kafka07 import CorruptMessage


@dataclass(frozen=True)
class Wanted:
    """Which records and columns to read. None means no bound; end bounds are exclusive; timestamps are milliseconds.

    max_rows and max_bytes limit each set of columns that is yielded. `control`: include the transaction markers.
    """

    columns: tuple[str, ...]
    max_rows: int
    max_bytes: int
    min_offset: int | None = None
    end_offset: int | None = None
    min_timestamp: int | None = None
    end_timestamp: int | None = None
    read_committed: bool = False
    control: bool = False


@dataclass
class RecordSource:
    """Reads the records of partitions as columns.

    `damage` collects a sentence for each file that could not be read to its end. `progress` is called with the number
    of bytes read so far in all files. With read_committed, bytes that are read twice, because transactions are looked
    for first, count twice.
    """

    wanted: Wanted
    progress: Callable[[int], object] = lambda _: None
    damage: list[str] = field(default_factory=list)
    _done: int = 0

    def work(self, places: list[Place]) -> int:
        """Return the number of bytes with which `progress` will have been called when all these partitions are read."""
        twice = self.wanted.read_committed
        return sum(place.size + (sum(one.size for one in siblings(place)) if twice else 0) for place in places)

    def read(self, place: Place) -> Iterator[Columns]:
        """Yield the wanted records of a partition as columns, in offset order. After damage, continue with the next
        segment.

        Raises OfflineError for a file that cannot be opened or read.
        """
        wanted = self.wanted
        end = wanted.end_offset
        segments = _not_before(place.segments, wanted.min_offset)
        aborted: list[tuple[int, int]] = []
        if wanted.read_committed and not place.kafka_07:
            scan = self._transactions(place)
            stable = min(scan.open().values(), default=None)
            end = min((bound for bound in (end, stable) if bound is not None), default=None)
            # Only aborts whose marker is read are passed on: of any other aborted transaction the builder would not see
            # the end.
            begin = segments[0].base_offset if segments else 0
            aborted = [(producer, first) for producer, first, last in scan.aborted() if last >= begin]
        builder = column_builder(
            wanted.columns,
            max_rows=wanted.max_rows,
            max_bytes=wanted.max_bytes,
            skip_control=not wanted.control,
            min_offset=wanted.min_offset,
            end_offset=end,
            min_timestamp=wanted.min_timestamp,
            end_timestamp=wanted.end_timestamp,
            aborted=aborted,
            partition=-1 if place.partition is None else place.partition,
        )
        for segment in segments:
            if end is None or segment.base_offset < end:
                with reading(segment):
                    yield from (self._read_07 if place.kafka_07 else self._read)(builder, segment)
            self._done += segment.size
            self.progress(self._done)
        if rest := builder.finish():
            yield rest

    def _read(self, builder: ColumnBuilder, segment: Segment) -> Iterator[Columns]:
        # With read_committed the segment is read from its start: the marker that ends an aborted transaction may lie
        # before the first record that is wanted.
        wanted = self.wanted
        begin = 0 if wanted.read_committed else begin_of(segment, wanted.min_offset, wanted.min_timestamp)
        with SegmentBlocks(segment.path, begin) as blocks:
            try:
                for block in blocks:
                    yield from builder.feed(block)
                    blocks.used(builder.consumed)
                    self.progress(self._done + blocks.position)
                    if builder.past_end:
                        return
            except DamagedBatch as error:
                self.damage.append(damage_sentence(blocks, error))
                return
            if left := left_over_sentence(blocks):
                self.damage.append(left)

    def _read_07(self, builder: ColumnBuilder, segment: Segment) -> Iterator[Columns]:
        end = 0
        try:
            for group in sets_of_07(segment.path, segment.base_offset):
                yield from builder.feed(group.data)
                end = group.end
                self.progress(self._done + end)
        except CorruptMessage as error:
            self.damage.append(f"{segment.path} is damaged: the message at position {error.position} has {error}.")
            return
        size = segment.path.stat().st_size
        if end < size:
            self.damage.append(_left_over(segment, end, size))

    def _transactions(self, place: Place) -> TransactionScan:
        scan = transactions_of(place, lambda position: self.progress(self._done + position))
        self._done += sum(segment.size for segment in siblings(place))
        return scan


def transactions_of(place: Place, progress: Callable[[int], object] = lambda _: None) -> TransactionScan:
    """Scan all segments of the partition for transactions; the returned TransactionScan has the aborted and open ones.

    `progress` is called with the number of bytes read so far. Damage is ignored here, because reading the records
    reports it. Raises OfflineError for a file that cannot be read.
    """
    scan = TransactionScan(decompress_records)
    done = 0
    for segment in siblings(place):
        with reading(segment), SegmentBlocks(segment.path) as blocks:
            try:
                for block in blocks:
                    blocks.used(scan.feed(block))
                    progress(done + blocks.position)
            except DamagedBatch:
                pass
        done += segment.size
    return scan


@contextmanager
def reading(segment: Segment) -> Iterator[None]:
    """Turn an OSError in the block into an OfflineError about the segment's file.

    Except BrokenPipeError, which comes from writing the output.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OfflineError(f"{segment.path} could not be read: {error.strerror or error}.") from error


def damage_sentence(blocks: SegmentBlocks, error: DamagedBatch) -> str:
    """Return a sentence that says at which position a segment file is damaged, and how."""
    return (
        f"{blocks.path} is damaged: the batch at position {blocks.position + error.position} {error.reason}. "
        "The rest of the file is left out."
    )


def left_over_sentence(blocks: SegmentBlocks) -> str | None:
    """Return a sentence about the incomplete batch at the end of a segment file, None if there is none."""
    if blocks.position == blocks.end:
        return None
    return (
        f"{blocks.path} has no whole batch from position {blocks.position} on: "
        f"{blocks.end - blocks.position} bytes are left over."
    )


def _left_over(segment: Segment, position: int, end: int) -> str:
    return f"{segment.path} has no whole message from position {position} on: {end - position} bytes are left over."


def _not_before(segments: list[Segment], offset: int | None) -> list[Segment]:
    """Return the segments that have, or could have, records at or after `offset`; all segments if `offset` is None."""
    if offset is None:
        return segments
    ended = sum(following.base_offset <= offset for _, following in pairwise(segments))
    return segments[ended:]
