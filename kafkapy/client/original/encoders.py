"""Encoders, which convert the keys and messages of the original producer to bytes.

Source: kafka.serializer.Encoder.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Any, Protocol


class Encoder(Protocol):
    """The interface of a `serializer.class`. A user's class is constructed with the producer's properties."""

    def to_bytes(self, data: Any) -> bytes | None:
        """Return the encoded key or message. An exception fails that message only. Not called for None."""


class DefaultEncoder:
    """Returns bytes unchanged. Raises TypeError for data that is not bytes."""

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
    """Encodes strings as UTF-8, or in the encoding that the property `serializer.encoding` names."""

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
    """Encodes everything as null. Used for keys that only choose the partition and are not sent."""

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        pass

    def to_bytes(self, data: Any) -> None:
        return None


ENCODERS: dict[str, type[Encoder]] = {
    "kafka.serializer.DefaultEncoder": DefaultEncoder,
    "kafka.serializer.StringEncoder": StringEncoder,
    "kafka.serializer.NullEncoder": NullEncoder,
}
