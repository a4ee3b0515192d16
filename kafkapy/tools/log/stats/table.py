"""Makes the tables of `kafkapy log stats`."""

from datetime import datetime, timezone
from typing import Any

from kafkapy.runtime.printable import printable
from kafkapy.tools.common.output import counted
from kafkapy.tools.log.decoders.values import readable
from kafkapy.tools.log.stats.document import compaction, largest
from kafkapy.tools.log.stats.totals import Stats

Row = tuple[str, str]

BAR = 30  # characters of the longest bar
PARTITION_COLUMNS = ("PARTITION", "SEGMENTS>", "BATCHES>", "RECORDS>", "BYTES>", "RATIO>", "OFFSETS", "FROM", "TO")


def partition_row(stats: Stats) -> tuple[object, ...]:
    """Return the row for one partition in the table of several partitions. PARTITION_COLUMNS has the columns."""
    counts = stats.counts
    packed = sum(one["packed"] for one in stats.codecs.values())
    ratio = sum(one["unpacked"] for one in stats.codecs.values()) / packed if packed else None
    return (
        stats.name,
        stats.segments,
        f"{counts['batches']:,}",
        f"{counts['records']:,}",
        f"{stats.file_bytes:,}",
        "" if ratio is None else f"{ratio:.2f}",
        _offsets(stats),
        moment(stats.first_time),
        moment(stats.last_time),
    )


def rows(stats: Stats, top: int) -> list[Row]:
    """Return the rows (name, figures) of the table for one partition, or for several partitions together. `top` is how
    many of the largest keys and producers are listed."""
    counts = stats.counts
    records = counts["records"]
    found: list[Row] = [("segments", f"{stats.segments:,} with {_size(stats.file_bytes)}")]
    if stats.partitions > 1:
        found.insert(0, ("partitions", f"{stats.partitions:,}"))
    if not counts["batches"]:
        return [*found, ("batches", "none")]
    found.append(("batches", _batches(counts)))
    found += [(f"  format {name}", f"{one['batches']:,}") for name, one in sorted(stats.formats.items())]
    found.append(("records", _records(counts)))
    for name, one in sorted(stats.codecs.items(), key=lambda item: -item[1]["bytes"]):
        found.append((f"  {name}", _codec(one)))
    if stats.partitions == 1:
        found.append(("offsets", _offsets(stats) or "none"))
    found += _gap_rows(stats)
    found += _time_rows(stats)
    found += _bars("batch size", stats.batch_bytes, _step_of_bytes)
    found += _bars("records a batch", stats.batch_records, _step_of_records)
    found += [
        ("null keys", _share(counts["null_keys"], records)),
        ("tombstones", _share(counts["tombstones"], records)),
        ("with headers", _share(counts["with_headers"], records) + f", {counts['headers']:,} headers"),
    ]
    found += _transaction_rows(stats)
    found += _producer_rows(stats, top)
    found += _key_rows(stats, top)
    return found


def moment(timestamp: int | None) -> str:
    """Return a timestamp as ISO 8601 in UTC, or as @milliseconds if it is outside the calendar; empty for None."""
    if timestamp is None:
        return ""
    try:
        text = datetime.fromtimestamp(timestamp / 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"@{timestamp}"
    return f"{text}.{timestamp % 1000:03d}Z"


def _size(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit} ({count:,} bytes)"
    return f"{count:,} bytes"


def _share(part: int, whole: int) -> str:
    return f"{part:,}" + (f" ({100 * part / whole:.1f} %)" if part and whole else "")


def _batches(counts: dict[str, int]) -> str:
    more = [f"{counts[name]:,} {word}" for name, word in _KINDS if counts[name]]
    average = counts["bytes"] // counts["batches"]
    extra = f"; {', '.join(more)}" if more else ""
    return f"{counts['batches']:,} of {average:,} bytes, the largest {counts['largest_batch']:,}{extra}"


_KINDS = (
    ("control_batches", "control"),
    ("empty_batches", "emptied by cleaning"),
    ("delete_horizon_batches", "with a delete horizon"),
    ("append_time_batches", "with append time"),
)


def _records(counts: dict[str, int]) -> str:
    records = counts["records"]
    if not records:
        return "none"
    each = f"{records:,} of {counts['record_bytes'] / records:,.0f} bytes, the largest {counts['largest_record']:,}"
    batches = counts["batches"] - counts["control_batches"] - counts["empty_batches"]
    return each + (f"; {records / batches:,.1f} a batch" if batches > 0 else "")


def _codec(one: dict[str, int]) -> str:
    ratio = f"{one['unpacked'] / one['packed']:.2f} : 1" if one["packed"] else "-"
    return f"{counted(one['records'], 'record')} in {counted(one['batches'], 'batch')}, {_size(one['bytes'])}, {ratio}"


def _offsets(stats: Stats) -> str:
    first, last = stats.counts["first_offset"], stats.counts["last_offset"]
    return f"{first:,} to {last:,}" if first >= 0 else f"up to {last:,}" if last >= 0 else ""


def _gap_rows(stats: Stats) -> list[Row]:
    counts = stats.counts
    found: list[Row] = []
    if counts["gaps"]:
        found.append(("gaps", f"{counts['gaps']:,}, {counts['missing']:,} offsets are missing"))
        for name, after, missing in sorted(stats.gaps):
            where = f"{name} " if stats.partitions > 1 else ""
            found.append(("", f"{where}after {after:,}: {missing:,}"))
    else:
        found.append(("gaps", "none"))
    if counts["backward"]:
        found.append(("out of order", f"{counts['backward']:,} batches begin at or before the offset before them"))
    return found


def _time_rows(stats: Stats) -> list[Row]:
    counts = stats.counts
    if stats.first_time is None:
        return [("times", "no record has a timestamp")]
    more = [f"{counts[name]:,} {word}" for name, word in _ODD_TIMES if counts[name]]
    extra = f"; {', '.join(more)}" if more else ""
    return [("times", f"{moment(stats.first_time)} to {moment(stats.last_time)}{extra}")]


_ODD_TIMES = (("without_timestamp", "records without"), ("out_of_order", "earlier than the record before"))


def _bars(what: str, places: list[int], step: Any) -> list[Row]:
    used = [place for place, count in enumerate(places) if count]
    if not used:
        return []
    most = max(places)
    width = len(f"{most:,}")
    found = [(what, "")]
    for place in range(used[0], used[-1] + 1):
        bar = "█" * -(-places[place] * BAR // most)
        found.append((f"  {step(place)}", f"{places[place]:>{width},} {bar}".rstrip()))
    return found


def _step_of_bytes(place: int) -> str:
    size = 1 << place
    for unit, of in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size > of or size == of:
            return f"< {size // of} {unit}"
    return f"< {size} B"


def _step_of_records(place: int) -> str:
    if place < 2:
        return str(place)
    return f"{1 << place - 1:,} to {(1 << place) - 1:,}"


def _transaction_rows(stats: Stats) -> list[Row]:
    counts = stats.counts
    still = [one for one in stats.producers.values() if one.open_first >= 0]
    if not counts["committed"] and not counts["aborted"] and not still:
        return []
    found = [
        (
            "transactions",
            f"{counts['committed']:,} committed, {counts['aborted']:,} aborted "
            f"({counts['aborted_records']:,} records, {counts['aborted_bytes']:,} bytes), {len(still):,} open",
        )
    ]
    for one in sorted(still, key=lambda producer: producer.open_first)[:10]:
        found.append(("", f"producer {one.id} has one open since offset {one.open_first:,}"))
    return found


def _producer_rows(stats: Stats, top: int) -> list[Row]:
    if not stats.producers:
        return []
    more = (
        f"; {stats.producers_left_out:,} batches of further producers are not counted by producer"
        if stats.producers_left_out
        else ""
    )
    found = [("producers", f"{len(stats.producers):,} with ids{more}")]
    for one in largest(stats.producers.values(), top):
        found.append(
            (
                f"  {one.id} epoch {one.epoch}",
                f"{counted(one.records, 'record')} in {counted(one.batches, 'batch')}, {_size(one.bytes)}",
            )
        )
    return found


def _key_rows(stats: Stats, top: int) -> list[Row]:
    counts = stats.counts
    if not counts["keyed_records"]:
        return [("keys", "none")] if counts["records"] else []
    about = "" if stats.exact_keys else "about "
    estimate = "" if stats.exact_keys else f", from a sample of 1 key in {stats.sample}"
    found = [("keys", f"{about}{stats.distinct_keys:,} different{estimate}")]
    for key in largest(stats.keys.values(), top):
        name = readable(key.name)
        text = name if isinstance(name, str) else key.name.hex()
        cut = "" if key.length == len(key.name) else f"... ({key.length:,} bytes)"
        size = f"{key.bytes:,} bytes" if key.error == 0 else f"{key.bytes - key.error:,} to {key.bytes:,} bytes"
        least = "" if key.error == 0 else "at least "
        found.append((f"  {printable(str(text))}{cut}", f"{size} in {least}{counted(key.records, 'record')}"))
    plan = compaction(stats)
    gone = f"{about}{plan['recordsGone']:,} records and {_size(plan['bytesGone'])} less ({100 * plan['share']:.1f} %)"
    found.append(("compaction", gone + (", unpacked" if set(stats.codecs) - {"none"} else "")))
    if plan["tombstonesLeft"]:
        left = f"{plan['tombstonesLeft']:,} tombstones, {plan['tombstoneBytesLeft']:,} bytes"
        found.append(("", f"and {about}{left}, after delete.retention.ms"))
    return found
