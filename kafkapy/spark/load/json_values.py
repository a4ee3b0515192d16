"""Decodes JSON values to columns with Arrow's JSON reader: millions per second while all values of a batch match.

A batch that Arrow refuses is bisected to find the values that do not match, with Arrow's reason. Like Arrow's reader,
this decoder is strict: "12" and 1.5 are not ints, and a repeated name in an object is an error. Fields without a
column are ignored, and missing fields are null.
"""

import io
import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from kafkapy.spark.load.decoding import Decoded

_ROW = re.compile(r" in row \d+$")


class JsonDecoder:
    """Decodes JSON values to Arrow columns. It implements the interface Decoder."""

    def __init__(self, fields: pa.Schema) -> None:
        self.fields = fields
        # Arrow reads dates only as numbers: read them as strings and cast them.
        self._read_as = pa.schema(
            [pa.field(field.name, pa.string() if pa.types.is_date(field.type) else field.type) for field in fields]
        )

    def decode(self, values: pa.Array) -> Decoded:
        present = pc.fill_null(values, b"{}")
        tables: list[pa.Table] = []
        bad: list[tuple[int, str]] = []
        self._halve(present, 0, tables, bad)
        return Decoded(pa.concat_tables([self.fields.empty_table(), *tables]), bad)

    def _halve(self, values: pa.Array, first: int, tables: list[pa.Table], bad: list[tuple[int, str]]) -> None:
        """Decode JSON values and add the result to `tables`. If a value does not match the fields, decode each half
        separately.

        For a single value that does not match, add (index, reason) to `bad`. `first` is the index of the first value.
        """
        if not len(values):
            return
        if len(values) == 1:
            try:
                tables.append(self._one(values[0].as_py()))
            except ValueError as error:
                bad.append((first, _reason(error)))
            return
        try:
            tables.append(self._all(values))
        except ValueError:  # the base class of Arrow's own errors
            half = len(values) // 2
            self._halve(values.slice(0, half), first, tables, bad)
            self._halve(values.slice(half), first + half, tables, bad)

    def _all(self, values: pa.Array) -> pa.Table:
        """Decode several values at once and return one row for each.

        Raises ValueError unless each is one line with one object.

        Every value begins with a brace and has no line break, so it gives at least one row. If there are as many rows
        as values, each value has given one row.
        """
        text = values.cast(pa.string())  # checks that it is UTF-8
        if not pc.all(pc.starts_with(text, "{")).as_py() or pc.any(pc.match_substring(text, "\n")).as_py():
            raise ValueError("a value is not a single line with an object")
        lines = pc.binary_join(pa.ListArray.from_arrays([0, len(text)], text), "\n")[0].as_buffer()
        table = self._parse(lines)
        if len(table) != len(values):
            raise ValueError("a value has more than one object")
        return table

    def _one(self, value: bytes) -> pa.Table:
        """Decode a single value and return one row. Raises ValueError if the value does not match."""
        try:
            document = json.loads(value)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if not isinstance(document, dict):
            raise ValueError(f"it is not a JSON object but {_kind(document)}")
        text = value if value.startswith(b"{") and b"\n" not in value else _in_one_line(value)
        return self._parse(pa.py_buffer(text))

    def _parse(self, lines: pa.Buffer) -> pa.Table:
        """Parse lines with one JSON object each, and return one row for each line."""
        table = pa.json.read_json(
            io.BytesIO(lines),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=pa.json.ParseOptions(
                explicit_schema=self._read_as, newlines_in_values=False, unexpected_field_behavior="ignore"
            ),
        )
        return table.cast(self.fields)


def _in_one_line(value: bytes) -> bytes:
    """Return a JSON value in one line: line breaks, which valid JSON has outside of strings only, become spaces.

    The order and the names of fields stay the same, also a repeated name, which Arrow then refuses.
    """
    return value.decode("utf-8-sig").replace("\r", " ").replace("\n", " ").strip().encode()


def _kind(document: Any) -> str:
    """Return the kind of a JSON value that is no object, such as "a list", for messages."""
    return {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}.get(type(document), "a number")


def _reason(error: ValueError) -> str:
    """Return a phrase that says why a value could not be decoded."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8: {error.reason} at byte {error.start}"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: {error}"
    text = _ROW.sub("", str(error).removeprefix("JSON parse error: ").splitlines()[0]).rstrip(". ")
    match = re.fullmatch(r"Column\(/(.*)\) changed from (.*) to (.*)", text)
    if match:
        return f"field {match[1]!r} is {match[3]}, not {match[2]}"
    return text
