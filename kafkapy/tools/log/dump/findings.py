"""Collects the problems and peculiarities that a dump finds in segment files, and reports them in the words of Kafka's
`DumpLogSegments`."""

from collections import defaultdict
from dataclasses import dataclass, field

from kafkapy.log.offline.stored_batches import StoredBatch

Pairs = defaultdict[str, list[tuple[int, int]]]


def _pairs() -> Pairs:
    return defaultdict(list)


@dataclass
class Findings:
    """Problems and peculiarities, by file. `damaged` makes the exit code 1. Gaps and timestamp mismatches do not set
    it, because both are normal in a cleaned log."""

    damaged: bool = False
    failures: list[str] = field(default_factory=list)
    index_mismatches: Pairs = field(default_factory=_pairs)
    timestamp_mismatches: Pairs = field(default_factory=_pairs)
    timestamps_out_of_order: Pairs = field(default_factory=_pairs)
    offsets_not_found: Pairs = field(default_factory=_pairs)
    gaps: Pairs = field(default_factory=_pairs)
    not_decoded: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))

    def failed(self, sentence: str) -> None:
        self.damaged = True
        self.failures.append(sentence)

    def bad_crc(self, file: str, batch: StoredBatch) -> None:
        self.failed(f"{file} is damaged: the {batch.place} has a wrong CRC.")

    def invalid_tail(self, file: str, position: int, size: int) -> None:
        self.failed(f"{file} has no whole batch from position {position} on: {size} bytes are left over.")

    def index_mismatch(self, file: str, index_offset: int, log_offset: int, *, misses: bool) -> None:
        """Add an index entry that does not match the log. `misses` is True if a search that uses the entry would miss
        records; this counts as damage."""
        self.damaged |= misses
        self.index_mismatches[file].append((index_offset, log_offset))

    def timestamp_mismatch(self, file: str, index_timestamp: int, log_timestamp: int) -> None:
        self.timestamp_mismatches[file].append((index_timestamp, log_timestamp))

    def timestamp_out_of_order(self, file: str, timestamp: int, previous: int) -> None:
        self.damaged = True
        self.timestamps_out_of_order[file].append((timestamp, previous))

    def offset_not_found(self, file: str, index_offset: int, log_offset: int, *, misses: bool) -> None:
        self.damaged |= misses
        self.offsets_not_found[file].append((index_offset, log_offset))

    def undecoded(self, file: str, offset: int, reason: str) -> None:
        """Add a record whose key or value the decoder rejected, with the reason. The record is shown without the
        decoder."""
        self.not_decoded[file].append((offset, reason))

    def gap(self, file: str, offset: int, following: int) -> None:
        self.gaps[file].append((offset, following))

    def lines(self) -> list[str]:
        """Return the findings as lines: first the report of Kafka's tool, with files in the order in which they were
        read, then the problems that only this tool reports."""
        report: list[str] = []
        for file, pairs in self.index_mismatches.items():
            report.append(f"Mismatches in :{file}")
            # Newest first, also the gaps below: Kafka's tool prepends to its lists.
            report += [f"  Index offset: {index}, log offset: {log}" for index, log in reversed(pairs)]
        for file, pairs in self.timestamp_mismatches.items():
            report.append(f"Found timestamp mismatch in :{file}")
            report += [f"  Index timestamp: {index}, log timestamp: {log}" for index, log in pairs]
        for file, pairs in self.timestamps_out_of_order.items():
            report.append(f"Found out of order timestamp in :{file}")
            report += [f"  Index timestamp: {index}, Previously indexed timestamp: {last}" for index, last in pairs]
        for pairs in self.offsets_not_found.values():
            report.append("The following indexed offsets are not found in the log.")
            report += [f"Indexed offset: {index}, found log offset: {log}" for index, log in pairs]
        for file, pairs in self.gaps.items():
            report.append(f"Non-consecutive offsets in {file}")
            report += [f"  {offset} is followed by {following}" for offset, following in reversed(pairs)]
        for file, undecoded in self.not_decoded.items():
            offset, reason = undecoded[0]
            report.append(f"{file}: records that were not decoded: {len(undecoded)}; at offset {offset}: {reason}")
        return report + self.failures

    def objects(self) -> list[dict[str, object]]:
        """Return the findings as JSON objects; `kind` names the kind of problem."""
        kinds = {
            "indexMismatch": (self.index_mismatches, "indexOffset", "logOffset"),
            "timestampMismatch": (self.timestamp_mismatches, "indexTimestamp", "logTimestamp"),
            "timestampOutOfOrder": (self.timestamps_out_of_order, "indexTimestamp", "previousTimestamp"),
            "offsetNotFound": (self.offsets_not_found, "indexOffset", "logOffset"),
            "gap": (self.gaps, "offset", "nextOffset"),
        }
        found: list[dict[str, object]] = [
            {"type": "finding", "kind": kind, "file": file, first_name: first, second_name: second}
            for kind, (table, first_name, second_name) in kinds.items()
            for file, pairs in table.items()
            for first, second in pairs
        ]
        found += [
            {"type": "finding", "kind": "notDecoded", "file": file, "offset": offset, "message": reason}
            for file, undecoded in self.not_decoded.items()
            for offset, reason in undecoded
        ]
        return found + [{"type": "finding", "kind": "failure", "message": sentence} for sentence in self.failures]
