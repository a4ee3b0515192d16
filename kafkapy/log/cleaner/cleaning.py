"""Clean one log: find the last offset of each key, rewrite the segments, and swap them in (Kafka's Cleaner.doClean)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from kafkapy._ext.compactor import Compactor
from kafkapy._ext.cursor import Writer
from kafkapy._ext.decided_txns import DecidedTransactions
from kafkapy._ext.keymap import KeyMap
from kafkapy.log.cleaner.candidates import Candidate
from kafkapy.log.cleaner.indexing import aborted_from, index_keys
from kafkapy.log.cleaner.pieces import Pieces
from kafkapy.log.cleaner.rewriting import Rewriter
from kafkapy.log.cleaner.settings import CleanerSettings
from kafkapy.log.cleaner.stats import CleanerStats
from kafkapy.log.cleaner.swapping import swap_in
from kafkapy.log.config import LogConfig
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.segments.segment import MAX_RELATIVE_OFFSET, Segment

_log = logging.getLogger(__name__)


def clean(chosen: Candidate, settings: CleanerSettings, pace: Callable[[int], None]) -> tuple[int, CleanerStats]:
    """Clean the log of the Candidate `chosen`; return (first offset that is still dirty, statistics).

    The caller holds the log's `upkeep` lock. `pace(bytes)` is called after every read and write. It may wait, and an
    exception that it raises ends the cleaning. Whenever an exception ends the cleaning, every group of segments is
    either replaced completely or unchanged. Also raises OSError, CorruptEntry, DecompressionError, MemoryError.
    """
    log = chosen.log
    # A cleaning may remove a durable record because a later record has the same key. The later record must be durable
    # first: otherwise a power cut could lose both records.
    if chosen.first_uncleanable > log.recovery_point:
        log.flusher.flush_to(chosen.first_uncleanable, active=False)
    stats = CleanerStats(began=log.clock.monotonic())
    now_ms = log.clock.time_ms()
    keys = KeyMap(settings.map_bytes, settings.load_factor)
    pieces, payload = Pieces(settings.read_bytes, pace), Writer(1024)
    _log.info("%s: cleaning offsets %d to %d", log.name, chosen.first_dirty, chosen.first_uncleanable - 1)
    mapped_to = index_keys(log, chosen.first_dirty, chosen.first_uncleanable, keys, pieces, payload, stats)
    stats.map_done = log.clock.monotonic()
    segments = log.segments.between(0, mapped_to + 1)
    transactions = DecidedTransactions(aborted_from(log, segments[0].base_offset if segments else 0))
    compactor = Compactor(
        keys, transactions, mapped_to=mapped_to, now=now_ms, delete_retention=log.config.delete_retention_ms
    )
    rewriter = Rewriter(log, compactor, transactions, pieces, payload, _legacy_horizon_ms(log, chosen.first_dirty))
    for group in group_segments(segments, log.config, chosen.first_uncleanable):
        swap_in(log, rewriter.rewrite(group), group)
    stats.bytes_read, stats.records_read = compactor.bytes_read, compactor.records_read
    stats.records_kept, stats.keyless = compactor.records_kept, compactor.keyless
    stats.bytes_written = rewriter.bytes_written
    stats.ended = log.clock.monotonic()
    return mapped_to + 1, stats


def _legacy_horizon_ms(log: PartitionLog, first_dirty: int) -> int:
    """Return the modification time (ms since 1970) up to which a segment file loses its tombstones of formats 0 and 1.

    Those tombstones have no delete horizon of their own. The time is when the last clean segment was last modified,
    minus delete.retention.ms. It is 0, so that all tombstones stay, if the log has no clean segment.
    """
    clean_segments = log.segments.between(0, first_dirty)
    if not clean_segments:
        return 0
    last = clean_segments[-1]
    return last.files.modified_ms(last.handle()) - log.config.delete_retention_ms


def group_segments(segments: Sequence[Segment], config: LogConfig, first_uncleanable: int) -> list[list[Segment]]:
    """Divide adjacent segments into groups; each group is later merged into one new segment.

    The files of a group together have at most segment.bytes, and their indexes at most segment.index.bytes, unless the
    group is a single segment. All offsets of a group must fit into index entries relative to the base offset of the
    group's first segment. The base offset of the next segment serves as the upper bound of a segment's offsets. The
    offsets of an empty segment do not count. As Kafka's Cleaner.groupSegmentsBySize, this keeps a log from ending up
    with ever smaller segments.
    """
    groups: list[list[Segment]] = []
    size = offsets = times = 0
    for at, segment in enumerate(segments):
        following = segments[at + 1].base_offset if at + 1 < len(segments) else first_uncleanable
        offset_bytes = segment.offset_index.count * segment.offset_index.width
        time_bytes = segment.time_index.count * segment.time_index.width
        if groups and (
            size + segment.size <= config.segment_bytes
            and offsets + offset_bytes <= config.segment_index_bytes
            and times + time_bytes <= config.segment_index_bytes
            and (segment.size == 0 or following - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = offsets = times = 0
        size += segment.size
        offsets += offset_bytes
        times += time_bytes
    return groups
