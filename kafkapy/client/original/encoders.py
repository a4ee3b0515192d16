"""Encoders for keys and messages.

Source: kafka.serializer.Encoder.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Any, Protocol


class Encoder(Protocol):
    """The interface of `serializer.class`. Your own class is constructed with the producer's properties."""

    def to_bytes(self, data: Any) -> bytes | None:
        """Return a message's or key's bytes. An exception fails the message. Not called for None."""


class DefaultEncoder:
    """Accepts bytes and does not change them."""

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        pass

    def to_bytes(self, data: Any) -> bytes:
        if type(data) is bytes:
            return data
        if isinstance(data, (bytearray, memoryview)):
            return bytes(data)
        raise TypeError(
            f"{data!r} is of type {type(data).__name__}, and the default encoder takes bytes only: "
            "set serializer.class, to kafka.serializer.StringEncoder for strings"
        )


class StringEncoder:
    """Encodes strings, as UTF-8 or as `serializer.encoding` says."""

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        self._encoding = str((properties or {}).get("serializer.encoding", "UTF8"))
        try:
            codecs.lookup(self._encoding)
        except LookupError:
            raise ValueError(f"serializer.encoding is {self._encoding!r}, which is no encoding; try UTF-8") from None

    def to_bytes(self, data: Any) -> bytes:
        if not isinstance(data, str):
            raise TypeError(f"{data!r} is of type {type(data).__name__}, and the string encoder takes strings only")
        return data.encode(self._encoding)


class NullEncoder:
    """Encodes everything as null: for keys that only choose the partition."""

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        pass

    def to_bytes(self, data: Any) -> None:
        return None


ENCODERS: dict[str, type[Encoder]] = {
    "kafka.serializer.DefaultEncoder": DefaultEncoder,
    "kafka.serializer.StringEncoder": StringEncoder,
    "kafka.serializer.NullEncoder": NullEncoder,
}
