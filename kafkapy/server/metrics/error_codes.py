"""Finds the error codes in a response message, at any level of its schema, so that the metrics can count them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from kafkapy.errors import Errors
from kafkapy.protocol.message import Message, camel_case

_CODES = ("error_code", "partition_error_code")  # AddPartitionsToTxn has the second one


def error_codes(message: Message) -> Iterator[int]:
    """Yield the error codes other than NONE in a message and in the structs inside it."""
    return _codes(type(message), message)


def _codes(cls: Any, message: Any) -> Iterator[int]:
    """Yield the error codes in a message of the class `cls`, or in a tuple with the values of its fields."""
    for name in _own_codes(cls):
        code = _value(cls, message, name)
        if code != Errors.NONE:
            yield code
    for name in _fields_with_codes(cls):
        for inner in _value(cls, message, name) or ():
            yield from _codes(getattr(cls, camel_case(name)), inner)


def _value(cls: Any, message: Any, name: str) -> Any:
    return message[cls._fields.index(name)] if type(message) is tuple else getattr(message, name)


@cache
def _own_codes(cls: Any) -> tuple[str, ...]:
    """Return the names of a message's own fields that are error codes."""
    return tuple(name for name in _CODES if name in cls._fields)


@cache
def _fields_with_codes(cls: Any) -> tuple[str, ...]:
    """Return the names of a message's fields that are lists of structs with an error code, directly or in structs
    inside them."""
    found = []
    for name in cls._fields:
        inner: Any = getattr(cls, camel_case(name), None)
        if isinstance(inner, type) and issubclass(inner, Message):
            is_list = isinstance(getattr(cls(), name), list)
            further: Any = inner
            if is_list and (_own_codes(further) or _fields_with_codes(further)):
                found.append(name)
    return tuple(found)
