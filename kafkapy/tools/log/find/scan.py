"""The scan of `kafkapy log find`: finds records by key, or by a regular expression over values.

Keys and values come as columns, each one piece of memory for many records. Most of the work is a search in that memory
for a literal; no Python object is made for a record that does not match. The literal of a regular expression is the
longest text that every match must contain.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from kafkapy.record.columns import Bytes, Columns, Headers, Memory
from kafkapy.record.records import Record

try:
    from re import _constants, _parser  # type: ignore[attr-defined]  # Python 3.11 and later
except ImportError:  # Python 3.10
    import sre_constants as _constants
    import sre_parse as _parser

COLUMNS = ("offset", "timestamp", "key", "value", "headers")


class Matcher:
    """Finds records by key, by a regular expression that is searched in the value, or by both."""

    def __init__(self, key: bytes | None = None, value: re.Pattern[bytes] | None = None) -> None:
        """Raise ValueError if neither key nor expression is given."""
        if key is None and value is None:
            raise ValueError("neither a key nor an expression")
        self._key = key
        self._value = value
        self._literal = b"" if value is None else literal_of(value)

    def rows(self, columns: Columns) -> Iterator[int]:
        """Yield the row numbers of the records in `columns` that match, in ascending order."""
        rows: Iterator[int] = iter(range(columns.rows))
        keys, values = columns.columns["key"], columns.columns["value"]
        assert isinstance(keys, Bytes)
        assert isinstance(values, Bytes)
        if self._key is not None:
            rows = _equal(keys, self._key)
        if self._value is not None:
            if self._key is None and self._literal:
                rows = _holding(values, self._literal)
            rows = self._searched(values, rows)
        return rows

    def _searched(self, values: Bytes, rows: Iterator[int]) -> Iterator[int]:
        assert self._value is not None
        search = self._value.search
        data, ends = memoryview(values.data), _numbers(values.offsets)
        for row in rows:
            if search(data[ends[row] : ends[row + 1]]) and not is_null(values, row):
                yield row


def record_in(columns: Columns, row: int) -> Record:
    """Return the record in a row of the columns. Its `sequence` is always -1, because the columns do not have it."""
    found = columns.columns
    headers, key, value = found["headers"], found["key"], found["value"]
    assert isinstance(headers, Headers)
    assert isinstance(key, Bytes)
    assert isinstance(value, Bytes)
    ends = _numbers(headers.offsets)
    pairs = [
        ((_cell(headers.names, at) or b"").decode(), _cell(headers.values, at))
        for at in range(ends[row], ends[row + 1])
    ]
    offset, timestamp = _int64(found["offset"], row), _int64(found["timestamp"], row)
    return Record(offset, timestamp, _cell(key, row), _cell(value, row), tuple(pairs), -1)


def literal_of(pattern: re.Pattern[bytes]) -> bytes:
    """Return the longest run of bytes that every match of the expression must contain; empty if no such run is
    known."""
    if pattern.flags & re.IGNORECASE:
        return b""
    try:
        parsed = _parser.parse(pattern.pattern, pattern.flags)
    except re.error:
        return b""
    runs: list[bytes] = [b""]
    _collect(parsed, runs)
    return max(runs, key=len)


def _collect(parsed: object, runs: list[bytes]) -> None:
    """Collect the literals of a parsed regular expression in `runs`. An adjacent literal extends the last run; anything
    else begins a new run."""
    for kind, argument in parsed:  # type: ignore[attr-defined]
        if kind is _constants.LITERAL and argument < 256:
            runs[-1] += bytes([argument])
        elif kind is _constants.SUBPATTERN and not argument[1] & re.IGNORECASE:
            _collect(argument[3], runs)
        else:
            runs.append(b"")
            repeats = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
            if kind in repeats and argument[0] > 0:  # occurs at least once
                _collect(argument[2], runs)
                runs.append(b"")


def is_null(column: Bytes, row: int) -> bool:
    return column.validity is not None and not memoryview(column.validity)[row >> 3] >> (row & 7) & 1


def _equal(column: Bytes, wanted: bytes) -> Iterator[int]:
    ends = _numbers(column.offsets)
    if not wanted:
        rows = (row for row, (begin, end) in enumerate(pairwise(ends)) if begin == end)
        yield from (row for row in rows if not is_null(column, row))
        return
    for row in _holding(column, wanted):
        # A hit in a key of the same length is the whole key.
        if ends[row + 1] - ends[row] == len(wanted):
            yield row


def _holding(column: Bytes, literal: bytes) -> Iterator[int]:
    """Yield the number of each row whose bytes contain the literal, each row once. The search goes over the memory of
    all rows together."""
    data, ends = bytes(memoryview(column.data)), _numbers(column.offsets)
    at = data.find(literal)
    while at >= 0:
        row = bisect_right(ends, at) - 1
        if at + len(literal) <= ends[row + 1]:
            yield row
            at = data.find(literal, ends[row + 1])
        else:  # the hit crosses the end of the row
            at = data.find(literal, at + 1)


def _cell(column: Bytes, row: int) -> bytes | None:
    if is_null(column, row):
        return None
    ends = _numbers(column.offsets)
    return bytes(memoryview(column.data)[ends[row] : ends[row + 1]])


def _numbers(memory: Memory) -> "memoryview[int]":
    return memoryview(memory).cast("B").cast("i")


def _int64(memory: object, row: int) -> int:
    assert isinstance(memory, Memory)
    return int(memoryview(memory).cast("B").cast("q")[row])
