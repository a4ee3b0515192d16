"""Statistics of one cleaning, for the log line and the metrics (Kafka's CleanerStats)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class CleanerStats:
    """The counters of one cleaning. Times are seconds of a monotonic clock.

    Bytes and records are those of the second pass, which rewrites the segments, unless the name begins with `map_`:
    those are of the first pass, which maps the keys.
    """

    began: float
    map_done: float = 0.0
    ended: float = 0.0
    map_bytes_read: int = 0
    map_utilization: float = 0.0  # the used share of the map of keys
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    keyless: int = 0  # records without a key, which were removed

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def line(self, name: str, start: int, end: int) -> str:
        """Return the log line about a cleaning of the log `name` that has cleaned the offsets from `start` to before
        `end`.

        Speeds are in bytes of log per second, as in Kafka.
        """
        seconds, mapping = max(self.seconds, 1e-9), self.map_done - self.began
        lost = f", {self.keyless} without a key dropped" if self.keyless else ""
        return (
            f"{name}: cleaned up to offset {end} (dirty from {start}): "
            f"{_mb(self.bytes_read)} MB in {seconds:.3f} seconds ({self.bytes_read / seconds / 1048576:.1f} MB/s), "
            f"{_mb(self.map_bytes_read)} MB indexed in {mapping:.3f} seconds, "
            f"{_mb(self.bytes_written)} MB kept, {self.records_kept} of {self.records_read} records{lost}, "
            f"map {self.map_utilization:.1%} full"
        )


def _mb(size: int) -> str:
    return f"{size / 1048576:.1f}"
