"""JSON values to columns with Arrow's JSON reader: millions a second while all values of a batch fit.

A batch that it refuses is halved until the values that do not fit are found, which then have its reason. It is strict,
as that reader is: "12" is no int, 1.5 neither, and a name twice in an object is an error; fields that are not asked for
are left out, those that are missing are null.
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
    def __init__(self, fields: pa.Schema) -> None:
        self.fields = fields
        # Arrow reads dates as numbers only; as strings they are cast afterwards.
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
        except ValueError:  # which Arrow's own errors are
            half = len(values) // 2
            self._halve(values.slice(0, half), first, tables, bad)
            self._halve(values.slice(half), first + half, tables, bad)

    def _all(self, values: pa.Array) -> pa.Table:
        """Raises ValueError unless every value is one line of text with one object.

        Every value begins with a brace and has no line break, so it gives a row or more; as many rows as values are
        then one of each.
        """
        text = values.cast(pa.string())  # which checks that it is UTF-8
        if not pc.all(pc.starts_with(text, "{")).as_py() or pc.any(pc.match_substring(text, "\n")).as_py():
            raise ValueError("a value is not one line of text with an object")
        lines = pc.binary_join(pa.ListArray.from_arrays([0, len(text)], text), "\n")[0].as_buffer()
        table = self._parse(lines)
        if len(table) != len(values):
            raise ValueError("a value has more than one object")
        return table

    def _one(self, value: bytes) -> pa.Table:
        document = json.loads(value)
        if not isinstance(document, dict):
            raise ValueError(f"it is no JSON object but {_kind(document)}")
        text = value if value.startswith(b"{") and b"\n" not in value else _in_one_line(value)
        return self._parse(pa.py_buffer(text))

    def _parse(self, lines: pa.Buffer) -> pa.Table:
        table = pa.json.read_json(
            io.BytesIO(lines),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=pa.json.ParseOptions(
                explicit_schema=self._read_as, newlines_in_values=False, unexpected_field_behavior="ignore"
            ),
        )
        return table.cast(self.fields)


def _in_one_line(value: bytes) -> bytes:
    """JSON without line breaks, which are outside of its strings; the order and the names stay, also one that comes
    twice, for Arrow to refuse."""
    return value.decode("utf-8-sig").replace("\r", " ").replace("\n", " ").strip().encode()


def _kind(document: Any) -> str:
    return {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}.get(type(document), "a number")


def _reason(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"it is no UTF-8: {error.reason} at byte {error.start}"
    if isinstance(error, json.JSONDecodeError):
        return f"it is no JSON: {error}"
    text = _ROW.sub("", str(error).removeprefix("JSON parse error: ").splitlines()[0]).rstrip(". ")
    match = re.fullmatch(r"Column\(/(.*)\) changed from (.*) to (.*)", text)
    if match:
        return f"field {match[1]!r} is {match[3]}, not {match[2]}"
    return text
