"""Columns of JSON values, as a person writes them: `carrier STRING, dep_delay INT, time TIMESTAMP, tags ARRAY<STRING>`.

The words are Spark's (its DDL, or `schema.simpleString()`), read here so that a wrong one is told before Spark starts.
"""

import re
from dataclasses import dataclass

import pyarrow as pa

from kafkapy.spark.load.errors import WrongOption

_WORD = re.compile(r"\s*(`[^`]+`|[A-Za-z_][\w.]*|\d+|[<>(),:])", re.ASCII)
_TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True)
class JsonValues:
    """Values are JSON objects; `text` says which of their fields become columns."""

    text: str

    def fields(self) -> pa.Schema:
        """Raises WrongOption where the text cannot be read."""
        return _Parser(self.text).schema()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._words: list[str] = []
        while text[self._at :].strip():
            match = _WORD.match(text, self._at)
            if match is None:
                raise self._wrong(f"{text[self._at :].strip()[:20]!r} cannot be read")
            self._words.append(match[1])
            self._at = match.end()
        self._words.reverse()

    def schema(self) -> pa.Schema:
        if [word.lower() for word in self._words[-2:]] == ["<", "struct"]:
            del self._words[-2:]
            fields = self._fields(">", nested=False)
        else:
            fields = self._fields("", nested=False)
        if self._words:
            raise self._wrong(f"{self._words[-1]!r} is too much")
        return pa.schema(fields)

    def _fields(self, end: str, *, nested: bool) -> list[pa.Field]:
        fields: list[pa.Field] = []
        while True:
            name = self._next("a field's name").strip("`")
            if not re.match(r"[A-Za-z_]", name, re.ASCII):
                raise self._wrong(f"{name!r} stands where a field's name is due")
            if any(field.name.lower() == name.lower() for field in fields):
                raise self._wrong(f"there are two fields {name!r}")
            if self._peek() == ":":
                self._next("")
            fields.append(pa.field(name, self._type(nested=nested)))
            if self._peek() != ",":
                break
            self._next("")
        if end:
            self._expect(end)
        return fields

    def _type(self, *, nested: bool) -> pa.DataType:
        word = self._next("a type").lower()
        if word == "array":
            self._expect("<")
            item = self._type(nested=True)
            self._expect(">")
            return pa.list_(item)
        if word == "struct":
            self._expect("<")
            return pa.struct(self._fields(">", nested=True))
        if word == "decimal":
            return self._decimal()
        if word == "date" and nested:
            raise self._wrong("a date within a struct or an array is not supported, make it a string")
        if word not in _TYPES:
            raise self._wrong(f"there is no type {word!r}; there are {', '.join(_TYPES)}, decimal, array and struct")
        return _TYPES[word]

    def _decimal(self) -> pa.DataType:
        digits = [10, 0]
        if self._peek() == "(":
            self._next("")
            digits = [self._number()]
            if self._peek() == ",":
                self._next("")
                digits.append(self._number())
            self._expect(")")
        precision, scale = [*digits, 0][:2]
        if not 0 <= scale <= precision <= 38 or not precision:
            raise self._wrong(f"decimal({precision}, {scale}) has not 1 to 38 digits")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        word = self._next("a number")
        if not word.isdigit():
            raise self._wrong(f"{word!r} stands where a number is due")
        return int(word)

    def _peek(self) -> str:
        return self._words[-1] if self._words else ""

    def _next(self, what: str) -> str:
        if not self._words:
            raise self._wrong(f"it ends where {what} is due")
        return self._words.pop()

    def _expect(self, word: str) -> None:
        if (found := self._next(repr(word))) != word:
            raise self._wrong(f"{found!r} stands where {word!r} is due")

    def _wrong(self, what: str) -> WrongOption:
        return WrongOption(
            f"the columns of the JSON values cannot be read: {what}; write them as in "
            "carrier STRING, dep_delay INT, time TIMESTAMP, tags ARRAY<STRING>"
        )
