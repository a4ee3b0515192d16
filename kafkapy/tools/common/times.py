"""Parses durations, and formats durations and times as text."""

import re
from datetime import datetime, timezone

from kafkapy.tools.common.errors import CallError

_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1000)  # days, hours, minutes, seconds
_SHORT = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?", re.ASCII | re.IGNORECASE)
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII | re.IGNORECASE)


def duration_of(option: str, text: str) -> int:
    """Return the duration in `text` in milliseconds: 90s, 15m, 1d12h, 500ms, or ISO 8601 such as PT1H30M. Raises
    CallError, which names `option`, for anything else."""
    match = _ISO.fullmatch(text) or _SHORT.fullmatch(text)
    if not match or not any(match.groups()):
        raise CallError(f"{option} {text!r} is no duration, as in 90s, 15m, 1d12h or PT1H30M")
    parts = [float(part or 0) for part in match.groups()]
    total = sum(part * unit for part, unit in zip(parts, _UNITS_MS, strict=False))
    return round(total + (parts[4] if len(parts) > 4 else 0))


def duration_text(milliseconds: int) -> str:
    """Return a duration as text with its two largest units: `1d 12h`, `15m 3s`, `250ms`."""
    if milliseconds < 0:
        return f"-{duration_text(-milliseconds)}"
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    parts = []
    for unit, letter in zip(_UNITS_MS, "dhms", strict=True):
        parts.append((milliseconds // unit, letter))
        milliseconds %= unit
    first = next(place for place, (number, _) in enumerate(parts) if number)
    return " ".join(f"{number}{letter}" for number, letter in parts[first : first + 2] if number)


def time_text(timestamp: int) -> str:
    """Return a timestamp (milliseconds since 1970) as ISO 8601 in UTC. A negative number means no timestamp and becomes
    a dash; a time outside the calendar becomes @MILLISECONDS."""
    if timestamp < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return f"@{timestamp}"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp % 1000:03d}Z"
