"""Prints the progress of a mirror on standard error: on a terminal one line, rewritten in place, else a line from time
to time."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from kafkapy.mirror.counts import Counts, Waiting, total

REWRITE_S = 0.5

Streams = Sequence[tuple[str, Counts]]  # each with the name of its source


class MirrorProgress:
    """Prints the progress of a mirror. `every_s` is the number of seconds between lines if standard error is no
    terminal; with 0, nothing is printed."""

    def __init__(self, every_s: float) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._every_s = REWRITE_S if self._on_terminal and every_s else every_s
        self._shown_at = time.monotonic()
        self._records, self._size = 0, 0

    def show(self, streams: Streams, *, last: bool = False) -> None:
        """Print a progress line if the interval has passed since the last line, or if `last` is True."""
        now = time.monotonic()
        if not self._every_s or (now - self._shown_at < self._every_s and not last):
            return
        line = self._line(streams, now)
        if self._on_terminal:
            sys.stderr.write(f"\r\x1b[K{line}" + ("\n" if last else ""))
        else:
            sys.stderr.write(f"kafkapy: {line}\n")
        sys.stderr.flush()

    def _line(self, streams: Streams, now: float) -> str:
        whole = total(counts for _, counts in streams)
        waits = _waiting(streams)
        lag = sum(counts.lag for _, counts in streams) + sum(one.lag or 0 for one in waits)
        passed = max(now - self._shown_at, 1e-6)
        rate = (whole.records - self._records) / passed
        megabytes = (whole.size - self._size) / passed / 1e6
        self._shown_at, self._records, self._size = now, whole.records, whole.size
        parts = [
            f"mirrored {whole.records:,} records, {whole.size / 1e6:,.1f} MB",
            f"{rate:,.0f} records/s, {megabytes:,.1f} MB/s",
            *(f"waiting for {one.what}" + (f" ({one.whose})" if one.whose else "") for one in waits),
            f"lag {lag:,}" if all(one.lag is not None for one in waits) else "lag not known",
        ]
        if whole.lost:
            parts.append(f"LOST {whole.lost:,}")
        return "; ".join(parts)


def _waiting(streams: Streams) -> list[Waiting]:
    """Return the reason for waiting (a Waiting object) of each source in which no stream has partitions. All streams of
    such a source have the same reason."""
    by_source: dict[str, list[Waiting | None]] = {}
    for source, counts in streams:
        by_source.setdefault(source, []).append(counts.waiting)
    return [its[0] for its in by_source.values() if its[0] is not None and all(its)]
