"""How far a mirror is, on standard error: a line that is rewritten in place on a terminal, else one now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from kafkapy.mirror.counts import Counts, total

REWRITE_S = 0.5


class MirrorProgress:
    """`every_s`: between lines where nobody watches; 0: no lines at all."""

    def __init__(self, every_s: float) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._every_s = REWRITE_S if self._on_terminal and every_s else every_s
        self._shown_at = time.monotonic()
        self._records, self._size = 0, 0
        self._shows = False

    def show(self, counts: Sequence[Counts], *, last: bool = False) -> None:
        """Called often; shows something when it is time."""
        now = time.monotonic()
        if not self._every_s or (now - self._shown_at < self._every_s and not last):
            return
        line = self._line(counts, now)
        if self._on_terminal:
            sys.stderr.write(f"\r\x1b[K{line}" + ("\n" if last else ""))
        else:
            sys.stderr.write(f"kafkapy: {line}\n")
        sys.stderr.flush()

    def _line(self, counts: Sequence[Counts], now: float) -> str:
        whole = total(counts)
        passed = max(now - self._shown_at, 1e-6)
        rate = (whole.records - self._records) / passed
        megabytes = (whole.size - self._size) / passed / 1e6
        self._shown_at, self._records, self._size = now, whole.records, whole.size
        line = (
            f"mirrored {whole.records:,} records, {whole.size / 1e6:,.1f} MB; {rate:,.0f} records/s, "
            f"{megabytes:,.1f} MB/s; lag {sum(one.lag for one in counts):,}"
        )
        return f"{line}; LOST {whole.lost:,}" if whole.lost else line
