"""Reads the segments of a partition and counts their content."""

from collections.abc import Callable

from kafkapy._ext.log_tally import LogTally
from kafkapy.log.offline.places import Place, siblings
from kafkapy.log.offline.record_source import damage_sentence, left_over_sentence, reading, transactions_of
from kafkapy.record.blocks import SegmentBlocks
from kafkapy.record.columns import DamagedBatch, decompress_records
from kafkapy.tools.log.stats.kafka_07 import gather_07
from kafkapy.tools.log.stats.totals import Stats, fill


def gather(place: Place, key_memory: int, progress: Callable[[int], object]) -> Stats:
    """Count the content of a partition. `progress` is called with the number of bytes counted so far.

    Raises ToolError for a file that cannot be opened or read. Damage is part of the result, and counting continues with
    the next segment.
    """
    if place.kafka_07:
        return gather_07(place, key_memory, progress)
    tally = LogTally(decompress_records, key_memory, aborted=_aborted(place))
    stats = Stats(place.name)
    done = 0
    for segment in place.segments:
        with reading(segment), SegmentBlocks(segment.path) as blocks:
            try:
                for block in blocks:
                    blocks.used(tally.feed(block))
                    progress(done + blocks.position)
                if left := left_over_sentence(blocks):
                    stats.damage.append(left)
            except DamagedBatch as error:
                stats.damage.append(damage_sentence(blocks, error))
        done += segment.size
        progress(done)
    fill(stats, place, tally)
    return stats


def _aborted(place: Place) -> list[tuple[int, int]]:
    """Return the aborted transactions of a partition as (producer id, first offset). Compaction would not keep their
    records."""
    segments = siblings(place)
    if not any(
        index.exists() and index.stat().st_size for index in (s.path.with_suffix(".txnindex") for s in segments)
    ):
        return []
    first = place.segments[0].base_offset
    return [(producer, begin) for producer, begin, end in transactions_of(place).aborted() if end >= first]
