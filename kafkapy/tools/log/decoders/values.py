"""Decoders of record keys and values: as text, JSON, hexadecimal digits, or by a Python function of the user.

The decoders of the internal topics' records are in `coordinator_records`.
"""

import base64
import codecs
import importlib
import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from kafkapy.record.records import Record
from kafkapy.tools.common.errors import CallError

BUILT_IN = ("utf-8", "json", "hex")

_NOT_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Shown(NamedTuple):
    """A decoded key and value: text for people, in which None means that nothing is shown, or JSON values for
    programs."""

    key: Any
    value: Any


class Decoder(Protocol):
    """Decodes a record's key and value. Both methods raise ValueError for a record that the decoder cannot decode."""

    def text(self, record: Record) -> Shown:
        """Return key and value of a record as the text that `log dump` prints."""
        ...

    def objects(self, record: Record) -> Shown:
        """Return key and value of a record as JSON values."""
        ...


class Content(NamedTuple):
    """Two functions that show a key or a value: one returns text, the other a JSON value."""

    text: Callable[[bytes], str]
    json: Callable[[bytes], Any]


class ContentDecoder:
    """A Decoder that decodes key and value separately, each with its own Content."""

    def __init__(self, key: Content, value: Content) -> None:
        self._key = key
        self._value = value

    def text(self, record: Record) -> Shown:
        return Shown(
            None if record.key is None else self._key.text(record.key),
            None if record.value is None else self._value.text(record.value),
        )

    def objects(self, record: Record) -> Shown:
        return Shown(
            None if record.key is None else self._key.json(record.key),
            None if record.value is None else self._value.json(record.value),
        )


def text(data: bytes) -> str:
    """Return bytes as text, decoded as Java's UTF-8 decoder does: one U+FFFD for each malformed sequence."""
    return data.decode("utf-8", "kafkapy-java")


def _java_malformed(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler: replace an encoded surrogate (ED A0..BF and a third byte) by one U+FFFD, as Java does.
    Python alone would write up to three."""
    assert isinstance(error, UnicodeDecodeError)
    data, at = error.object, error.start
    if data[at] == 0xED and at + 1 < len(data) and 0xA0 <= data[at + 1] <= 0xBF:
        whole = at + 2 < len(data) and data[at + 2] & 0xC0 == 0x80
        return "\ufffd", at + (3 if whole else 2)
    return "\ufffd", error.end


codecs.register_error("kafkapy-java", _java_malformed)


def readable(data: bytes | str | None) -> str | dict[str, Any] | None:
    """Return bytes as a JSON value: UTF-8 text as a string, other bytes and text with control characters as {"base64":
    ...}. Strings and None are returned unchanged."""
    if data is None or isinstance(data, str):
        return data
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if _NOT_TEXT.search(text):
        return {"base64": base64.b64encode(data).decode("ascii")}
    return text


def compact(value: Any) -> str:
    """Return the value as JSON text in one line, without escapes for non-ASCII characters."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


UTF_8 = Content(text, readable)
JSON = Content(lambda data: compact(json.loads(data)), json.loads)
HEX = Content(bytes.hex, bytes.hex)
DEFAULT = ContentDecoder(UTF_8, UTF_8)


def content_of(option: str, name: str) -> Content:
    """Return the Content for a value of --key-decoder or --value-decoder: utf-8, json, hex or MODULE:FUNCTION. Raises
    CallError if there is no such decoder."""
    built_in = {"utf-8": UTF_8, "json": JSON, "hex": HEX}.get(name)
    return built_in or _by_function(_function(option, name))


def _function(option: str, name: str) -> Callable[[bytes], Any]:
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise CallError(
            f"{option} {name!r} is none of {', '.join(BUILT_IN)}, and not MODULE:FUNCTION as in decoders:from_avro"
        )
    if (
        os.getcwd() not in sys.path and "" not in sys.path
    ):  # as with `python -m`, modules in the working directory can be imported
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise CallError(f"{option} {name!r}: {error}. Is it on PYTHONPATH or in this directory?") from error
    except AttributeError as error:
        raise CallError(f"{option} {name!r}: {error}") from error
    if not callable(found):
        raise CallError(f"{option} {name!r} is a {type(found).__name__}, not a function that takes bytes")
    decode: Callable[[bytes], Any] = found
    return decode


def _by_function(function: Callable[[bytes], Any]) -> Content:
    def decode(data: bytes) -> Any:
        try:
            return function(data)
        except Exception as error:  # the user's function may raise anything for this record
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def as_json(data: bytes) -> Any:
        value = decode(data)
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            return readable(value) if isinstance(value, bytes) else str(value)
        return value

    def as_text(data: bytes) -> str:
        value = decode(data)
        return text(value) if isinstance(value, bytes) else value if isinstance(value, str) else str(value)

    return Content(as_text, as_json)
