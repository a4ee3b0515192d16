"""Draws the picture of `kafkapy log stats --plot`: bytes and records over time, batch sizes, key skew. Needs
matplotlib."""

from datetime import datetime, timezone
from typing import Any, BinaryIO

from kafkapy.tools.common.pictures import plotting
from kafkapy.tools.log.stats.totals import Stats

BYTES_COLOR, RECORDS_COLOR = "tab:blue", "tab:orange"
DAY = 86_400_000  # milliseconds
# Timestamps that can be drawn as dates; others are drawn as numbers.
YEAR_1, YEAR_10000 = -62_135_596_800_000, 253_402_300_800_000


def draw(stats: Stats, out: BinaryIO, kind: str) -> None:
    """Draw the statistics and write the picture to `out` in the format `kind`, one of FORMATS."""
    figure = plotting().Figure(figsize=(12, 9), layout="constrained")
    figure.suptitle(f"{stats.name}: {stats.counts['records']:,} records, {stats.file_bytes:,} bytes")
    (times, sizes), (counts, keys) = figure.subplots(2, 2)
    _draw_times(times, stats)
    _draw_histogram(sizes, stats.batch_bytes, "batch size, bytes")
    _draw_histogram(counts, stats.batch_records, "records a batch")
    _draw_keys(keys, stats)
    figure.savefig(out, format=kind, dpi=110)


def _draw_times(axes: Any, stats: Stats) -> None:
    """Draw bytes as bars and records as a line over time; both are 0 in intervals without records."""
    width, moments = _broad(stats)
    axes.set_title("by record timestamp" + (f", {_duration(width)} each" if moments else ""))
    if not moments:
        _nothing(axes, "no record has a timestamp")
        return
    begins: list[Any] = [float(begin) for begin, _, _ in moments]
    step = float(width)
    if begins[0] >= YEAR_1 and begins[-1] < YEAR_10000:
        begins = [datetime.fromtimestamp(begin / 1000, timezone.utc) for begin in begins]
        step = width / DAY
    axes.bar(begins, [size for _, _, size in moments], width=step, align="edge", color=BYTES_COLOR)
    axes.set_ylabel("bytes, unpacked", color=BYTES_COLOR)
    axes.tick_params(axis="x", labelrotation=30)
    other = axes.twinx()
    other.step(begins, [records for _, records, _ in moments], where="post", color=RECORDS_COLOR)
    other.set_ylabel("records", color=RECORDS_COLOR)
    axes.set_ylim(bottom=0)
    other.set_ylim(bottom=0)


def _broad(stats: Stats) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the width of the bars in milliseconds, and (begin, records, bytes) for each bar.

    Neighbouring intervals are merged until at most 256 bars remain. Intervals without records are filled in as zeros,
    and an empty interval is added at the end.
    """
    width = stats.moment_ms
    moments = stats.moments
    while moments and (moments[-1][0] - moments[0][0]) // width >= 256:
        width *= 2
        joined: dict[int, tuple[int, int]] = {}
        for begin, records, size in moments:
            begin -= begin % width
            before = joined.get(begin, (0, 0))
            joined[begin] = (before[0] + records, before[1] + size)
        moments = [(begin, *joined[begin]) for begin in sorted(joined)]
    if not moments:
        return width, []
    known = {moment[0]: moment for moment in moments}
    begins = range(moments[0][0], moments[-1][0] + 2 * width, width)
    return width, [known.get(begin, (begin, 0, 0)) for begin in begins]


def _duration(milliseconds: int) -> str:
    for unit, size in (("days", DAY), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= 2 * size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds} ms"


def _draw_histogram(axes: Any, places: list[int], what: str) -> None:
    used = [place for place, count in enumerate(places) if count]
    axes.set_title(f"batches by {what}")
    if not used:
        _nothing(axes, "no batches")
        return
    shown = range(used[0], used[-1] + 1)
    axes.bar([_from(place) for place in shown], [places[place] for place in shown], color=BYTES_COLOR)
    axes.set_xlabel(f"{what}, from")
    axes.set_ylabel("batches")
    axes.tick_params(axis="x", labelrotation=30)


def _from(place: int) -> str:
    number = 1 << place - 1 if place else 0
    for unit, size in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if number >= size:
            return f"{number // size} {unit}"
    return str(number)


def _draw_keys(axes: Any, stats: Stats) -> None:
    """Draw the bytes of the largest keys by rank, and the cumulative share of the bytes of all records with a key."""
    ordered = sorted((key.bytes for key in stats.keys.values()), reverse=True)
    axes.set_title("key skew: the largest keys")
    if not ordered:
        _nothing(axes, "no keys")
        return
    ranks = range(1, len(ordered) + 1)
    axes.plot(ranks, ordered, color=BYTES_COLOR)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("rank")
    axes.set_ylabel("bytes" if stats.exact_keys else "bytes, at most", color=BYTES_COLOR)
    other = axes.twinx()
    whole = max(1, stats.counts["keyed_bytes"])
    shares, total = [], 0
    for size in ordered:
        total += size
        shares.append(min(100.0, 100 * total / whole))
    other.plot(ranks, shares, color=RECORDS_COLOR)
    other.set_ylim(0, 105)
    other.set_ylabel("% of all bytes, up to this rank", color=RECORDS_COLOR)


def _nothing(axes: Any, why: str) -> None:
    axes.text(0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])
