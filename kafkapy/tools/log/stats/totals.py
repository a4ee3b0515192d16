"""The statistics of `kafkapy log stats`: those of one partition, and sums over several."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from kafkapy._ext.key_totals import KeyTotals
from kafkapy._ext.log_tally import LogTally
from kafkapy.log.offline.places import Place
from kafkapy.record.compression import NAMES

GAPS = 10  # how many of the largest gaps are listed
# The most keys and producers kept for several partitions together. ext/log_tally and ext/key_totals have the limits
# for one partition.
MOST_KEYS = 8192
MOST_PRODUCERS = 65536


@dataclass
class Key:
    """A record key, or only its first bytes, with its totals. `bytes` may include up to `error` bytes of other keys.
    The number of records is exact if `error` is 0, else a lower bound."""

    name: bytes
    length: int
    bytes: int
    error: int
    records: int


@dataclass
class Producer:
    """The totals of one producer. `open_first` is the first offset of its open transaction, -1 if there is none."""

    id: int
    epoch: int
    batches: int
    records: int
    bytes: int
    last_sequence: int
    open_first: int


@dataclass
class Stats:
    """The statistics of one partition or of several. `counts` has the names of ext/log_tally.pxd; `codecs` and
    `formats` are by name.

    batch_bytes, batch_records: element i counts the batches that have from 2^(i-1) to below 2^i bytes or records.
    sample: 1 if figures about keys are exact; otherwise they are estimated from 1 in `sample` keys.
    kept_bytes, tombstones_kept, tombstone_bytes_kept: what compaction would keep.
    moments: (start, records, bytes) for intervals of `moment_ms`.
    """

    name: str
    partitions: int = 0
    segments: int = 0
    file_bytes: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    first_time: int | None = None
    last_time: int | None = None
    codecs: dict[str, dict[str, int]] = field(default_factory=dict)
    formats: dict[str, dict[str, int]] = field(default_factory=dict)
    batch_bytes: list[int] = field(default_factory=list)
    batch_records: list[int] = field(default_factory=list)
    producers: dict[int, Producer] = field(default_factory=dict)
    producers_left_out: int = 0
    gaps: list[tuple[str, int, int]] = field(default_factory=list)
    keys: dict[tuple[bytes, int], Key] = field(default_factory=dict)
    distinct_keys: int = 0
    kept_bytes: int = 0
    tombstones_kept: int = 0
    tombstone_bytes_kept: int = 0
    sample: int = 1
    moment_ms: int = 1
    moments: list[tuple[int, int, int]] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)

    @property
    def exact_keys(self) -> bool:
        return self.sample == 1

    def add(self, other: "Stats") -> None:
        """Add the statistics of another partition. Offsets and epochs, which belong to one partition, are meaningless
        afterwards."""
        self.partitions += other.partitions
        self.segments += other.segments
        self.file_bytes += other.file_bytes
        largest = {name: max(self.counts.get(name, 0), other.counts[name]) for name in _LARGEST}
        self.counts = _summed(self.counts, other.counts) | largest
        self.first_time = _of_both(min, self.first_time, other.first_time)
        self.last_time = _of_both(max, self.last_time, other.last_time)
        for sums, theirs in ((self.codecs, other.codecs), (self.formats, other.formats)):
            for name, figures in theirs.items():
                sums[name] = _summed(sums.get(name, {}), figures)
        self.batch_bytes = _added(self.batch_bytes, other.batch_bytes)
        self.batch_records = _added(self.batch_records, other.batch_records)
        self._add_producers(other)
        self.gaps = sorted((*self.gaps, *other.gaps), key=lambda gap: -gap[2])[:GAPS]
        for place, key in other.keys.items():
            mine = self.keys.setdefault(place, Key(key.name, key.length, 0, 0, 0))
            mine.bytes += key.bytes
            mine.error += key.error
            mine.records += key.records
        if len(self.keys) > MOST_KEYS:
            self.keys = {(key.name, key.length): key for key in _largest(self.keys.values(), MOST_KEYS // 2)}
        self.distinct_keys += other.distinct_keys
        self.kept_bytes += other.kept_bytes
        self.tombstones_kept += other.tombstones_kept
        self.tombstone_bytes_kept += other.tombstone_bytes_kept
        self.sample = max(self.sample, other.sample)
        width = max(self.moment_ms, other.moment_ms)
        self.moments = _joined((*self.moments, *other.moments), width)
        self.moment_ms = width
        self.damage += other.damage

    def _add_producers(self, other: "Stats") -> None:
        self.producers_left_out += other.producers_left_out
        for number, producer in other.producers.items():
            mine = self.producers.get(number)
            if mine is None:
                self.producers[number] = replace(producer)
            else:
                mine.batches += producer.batches
                mine.records += producer.records
                mine.bytes += producer.bytes
                mine.epoch = max(mine.epoch, producer.epoch)
                if producer.open_first >= 0:
                    mine.open_first = producer.open_first
        if len(self.producers) > MOST_PRODUCERS:
            kept = _largest(self.producers.values(), MOST_PRODUCERS // 2)
            self.producers_left_out += sum(one.batches for one in self.producers.values())
            self.producers_left_out -= sum(one.batches for one in kept)
            self.producers = {one.id: one for one in kept}


def _largest(them: Iterable[Any], count: int) -> list[Any]:
    return sorted(them, key=lambda one: -one.bytes)[:count]


_LARGEST = ("largest_record", "largest_batch")


def _summed(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + figure for name, figure in other.items()}


def _added(one: list[int], other: list[int]) -> list[int]:
    return [a + b for a, b in zip(one or [0] * len(other), other, strict=True)]


def _of_both(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else choose(one, other)


def _joined(moments: tuple[tuple[int, int, int], ...], width: int) -> list[tuple[int, int, int]]:
    sums: dict[int, tuple[int, int]] = {}
    for begin, records, size in moments:
        begin -= begin % width
        before = sums.get(begin, (0, 0))
        sums[begin] = (before[0] + records, before[1] + size)
    return [(begin, *sums[begin]) for begin in sorted(sums)]


def fill(stats: Stats, place: Place, tally: LogTally) -> None:
    """Copy the figures that the tally has counted for a partition into `stats`."""
    stats.partitions = 1
    stats.segments = len(place.segments)
    stats.file_bytes = place.size
    found = tally.counts()
    stats.first_time = found.pop("min_timestamp")
    stats.last_time = found.pop("max_timestamp")
    stats.counts = {name: figure or 0 for name, figure in found.items()}
    names = dict(enumerate(NAMES))
    stats.codecs = {names.get(number, f"codec {number}"): one for number, one in tally.codecs().items()}
    stats.formats = {str(number): one for number, one in tally.formats().items()}
    stats.batch_bytes, stats.batch_records = tally.histograms()
    stats.producers = {
        one["id"]: Producer(**{name: one[name] for name in Producer.__dataclass_fields__}) for one in tally.producers()
    }
    stats.producers_left_out = tally.producers_left_out
    stats.gaps = [(place.name, after, missing) for after, missing in tally.gaps()]
    stats.moment_ms, stats.moments = tally.moments()
    _fill_keys(stats, tally.keys)


def _fill_keys(stats: Stats, totals: KeyTotals) -> None:
    keys, size, gone, gone_size = totals.kept()
    stats.sample = 1 << totals.halvings
    stats.distinct_keys = keys * stats.sample
    stats.kept_bytes = size * stats.sample
    stats.tombstones_kept = gone * stats.sample
    stats.tombstone_bytes_kept = gone_size * stats.sample
    if stats.sample > 1:  # an estimate is at least the exact count of the largest keys
        stats.distinct_keys = min(stats.distinct_keys, stats.counts["keyed_records"])
        stats.kept_bytes = min(stats.kept_bytes, stats.counts["keyed_bytes"])
    stats.keys = {(key[0], key[1]): Key(*key) for key in totals.largest()}
