"""The formats in which commands print a record: value, key and value, all fields for people, or JSON."""

import enum
from collections.abc import Callable
from typing import Annotated

import typer

from kafkapy.client.fetching.consumer import ConsumerRecord
from kafkapy.tools.common.output import utf_8
from kafkapy.tools.common.record_json import record_line
from kafkapy.tools.common.times import time_text


class Format(str, enum.Enum):
    VALUE = "value"
    KEY_VALUE = "key-value"
    FULL = "full"
    JSON = "json"


# The options of the commands that print records.
ChosenFormat = Annotated[Format, typer.Option("--format", help="What to print of each record.")]
JsonFormat = Annotated[bool, typer.Option("--json", help="The same as --format json.")]


def line_maker(form: Format, separator: str = "\t", *, with_topic: bool = False) -> Callable[[ConsumerRecord], bytes]:
    """Return a function that formats a consumed record as a line, line end included. `separator` goes between key and
    value in the key-value format; `with_topic` adds the topic to the full format."""
    if with_topic and form is Format.FULL:
        rest = _full(separator)
        return lambda record: f"{record.topic}:".encode() + rest(record)
    return _FORMATS[form](separator)


def _value(separator: str) -> Callable[[ConsumerRecord], bytes]:
    return lambda record: (record.value or b"") + b"\n"


def _key_value(separator: str) -> Callable[[ConsumerRecord], bytes]:
    between = separator.encode()
    return lambda record: (record.key or b"") + between + (record.value or b"") + b"\n"


def _full(separator: str) -> Callable[[ConsumerRecord], bytes]:
    def line(record: ConsumerRecord) -> bytes:
        headers = ",".join(f"{name}={_text(value)}" for name, value in record.headers)
        cells = (
            f"{record.partition}:{record.offset}",
            time_text(record.timestamp),
            _text(record.key),
            _text(record.value),
            headers,
        )
        return "\t".join(cells).rstrip("\t").encode() + b"\n"

    return line


def _json(separator: str) -> Callable[[ConsumerRecord], bytes]:
    return lambda record: utf_8(record_line(record)) + b"\n"


def _text(data: bytes | None) -> str:
    return "null" if data is None else data.decode("utf-8", "replace")


_FORMATS: dict[Format, Callable[[str], Callable[[ConsumerRecord], bytes]]] = {
    Format.VALUE: _value,
    Format.KEY_VALUE: _key_value,
    Format.FULL: _full,
    Format.JSON: _json,
}
