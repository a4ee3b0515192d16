"""Parses the columns of JSON values, as in `carrier STRING, dep_delay INT, time TIMESTAMP, tags ARRAY<STRING>`.

The syntax is Spark's (DDL, or `schema.simpleString()`). It is parsed here to report errors before Spark is started.
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
    """The fields of a topic's JSON values, which are decoded to columns. `text` is the user's list of the fields."""

    text: str

    def fields(self) -> pa.Schema:
        """Return the Arrow schema of the columns. Raises WrongOption if the text is malformed."""
        return _Parser(self.text).schema()


class _Parser:
    """Parses a list of JSON fields with their types.

    `_words` has the words that are not parsed yet, in reverse order.
    """

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
        """Parse all words and return the Arrow schema. Raise WrongOption if the words are malformed."""
        if [word.lower() for word in self._words[-2:]] == ["<", "struct"]:
            del self._words[-2:]
            fields = self._fields(">", nested=False)
        else:
            fields = self._fields("", nested=False)
        if self._words:
            raise self._wrong(f"{self._words[-1]!r} is not expected after the last field")
        return pa.schema(fields)

    def _fields(self, end: str, *, nested: bool) -> list[pa.Field]:
        """Parse a list of fields and return the Arrow fields.

        `end` is the word that must follow the list and is consumed, too, or "" if no word must follow. `nested` is
        True for the fields of a struct within a column.
        """
        fields: list[pa.Field] = []
        while True:
            name = self._next("a field's name").strip("`")
            if not re.match(r"[A-Za-z_]", name, re.ASCII):
                raise self._wrong(f"{name!r} is where a field's name is expected")
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
        """Parse a type, such as `ARRAY<STRING>`, and return the Arrow type.

        Raise WrongOption if there is no such type.
        """
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
            raise self._wrong("a date within a struct or an array is not supported; use a string")
        if word not in _TYPES:
            raise self._wrong(f"there is no type {word!r}; there are {', '.join(_TYPES)}, decimal, array and struct")
        return _TYPES[word]

    def _decimal(self) -> pa.DataType:
        """Parse the precision and scale after the word `decimal`, if there are any, and return the Arrow type."""
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
            raise self._wrong(f"decimal({precision}, {scale}) must have 1 to 38 digits")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        """Consume the next word, which must be a number, and return the number. Raise WrongOption for another word."""
        word = self._next("a number")
        if not word.isdigit():
            raise self._wrong(f"{word!r} is where a number is expected")
        return int(word)

    def _peek(self) -> str:
        """Return the next word without consuming it, or "" if no word is left."""
        return self._words[-1] if self._words else ""

    def _next(self, what: str) -> str:
        """Consume the next word and return it. Raise WrongOption if no word is left; `what` says what was expected."""
        if not self._words:
            raise self._wrong(f"it ends where {what} is expected")
        return self._words.pop()

    def _expect(self, word: str) -> None:
        """Consume the next word, which must be `word`. Raise WrongOption for another word."""
        if (found := self._next(repr(word))) != word:
            raise self._wrong(f"{found!r} is where {word!r} is expected")

    def _wrong(self, what: str) -> WrongOption:
        """Return the error for a malformed text. `what` says what is wrong with the text."""
        return WrongOption(
            f"the columns of the JSON values cannot be read: {what}; write them as in "
            "carrier STRING, dep_delay INT, time TIMESTAMP, tags ARRAY<STRING>"
        )
