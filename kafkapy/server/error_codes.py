"""Finding the error codes in a response, wherever its schema has them, for the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from kafkapy.errors import Errors
from kafkapy.protocol.message import Message, camel_case


def error_codes(message: Message) -> Iterator[int]:
    """The codes other than NONE in a message and in all that is in it."""
    cls: Any = type(message)
    if "error_code" in cls._fields:
        code = getattr(message, "error_code")  # noqa: B009 - the class is made at run time
        if code != Errors.NONE:
            yield code
    for name in _fields_with_codes(cls):
        for inner in getattr(message, name) or ():
            yield from error_codes(inner)


@cache
def _fields_with_codes(cls: Any) -> tuple[str, ...]:
    """The fields that are lists of structs with an error code in them, or further in."""
    found = []
    for name in cls._fields:
        inner: Any = getattr(cls, camel_case(name), None)
        if isinstance(inner, type) and issubclass(inner, Message):
            is_list = isinstance(getattr(cls(), name), list)
            further: Any = inner
            if is_list and ("error_code" in inner._fields or _fields_with_codes(further)):
                found.append(name)
    return tuple(found)
