"""The reference codec in Python, which interprets a Layout field by field. The codec in C, `ext.codec`, must give the
same results and errors.

Encoding (Kafka protocol guide, KIP-482): numbers are big-endian. A string, array or bytes field begins with its length,
which is -1 for null (int16 for strings, int32 for arrays and bytes). In flexible versions the length plus one is an
unsigned varint, 0 for null, and every struct ends with its tagged fields: their number, then the tag, size and content
of each. A bool takes one byte, a uuid 16 bytes. A nullable struct begins with a byte, which is -1 for null; in a tagged
field, it begins with an unsigned varint, which is 0 for null.

As in Kafka, bytes after the message are ignored, unknown tagged fields are skipped, and invalid UTF-8 in a string
becomes U+FFFD. Stricter than in Kafka, a tagged field must be exactly as long as its size says, and the number of array
elements in a request is limited (`apis.MAX_REQUEST_ELEMENTS`).

Both codecs also encode a tuple in place of a message, or in place of a struct in an array. It has the values of all
fields, in the schema's order, and takes a fifth of the time of a struct to create.
"""

import operator
import struct
import sys
from typing import Any

from kafkapy.errors import ProtocolError, UnsupportedVersion
from kafkapy.protocol.compiler import INTEGERS, NEW_DEFAULT
from kafkapy.protocol.layout import Layout, Step

MAX_STRING = 0x7FFF
_FORMATS = {kind: struct.Struct(f">{form}") for kind, form in zip(INTEGERS, "bhiq", strict=True)}
_FLOAT64 = struct.Struct(">d")


class Program:
    """The decoder and encoder of one message (a request, response or record) in one version.

    Decoding raises ProtocolError for a message whose arrays have more than `max_elements` elements in total.
    """

    def __init__(self, layout: Layout, max_elements: int | None = None) -> None:
        self._layout = layout
        self._max_elements = sys.maxsize if max_elements is None else max_elements

    def decode(self, buffer: bytes | bytearray | memoryview, offset: int = 0) -> Any:
        """Return the message decoded from `buffer`, where it begins at `offset`. Fields of type `records` are slices of
        `buffer`, not copies. Raises ProtocolError for malformed bytes."""
        return _Decoder(buffer, offset, self._max_elements).message(self._layout)

    def encode(self, message: Any) -> bytes:
        """Return the encoded message. Raises UnsupportedVersion if the message sets a field that this version does not
        have, and ValueError for a value that does not fit its field."""
        out = bytearray()
        _encode_struct(out, self._layout, message)
        return bytes(out)

    def encode_frame(self, head: bytes, message: Any) -> bytes:
        """Return a frame: an int32 with the size of the rest, the encoded header `head`, and the encoded message.
        Raises the errors of `encode`."""
        body = self.encode(message)
        return (len(head) + len(body)).to_bytes(4, "big") + head + body


class _Decoder:
    def __init__(self, buffer: bytes | bytearray | memoryview, offset: int, max_elements: int) -> None:
        self._view = memoryview(buffer)
        self._at = offset
        self._max_elements = self._elements_left = max_elements
        if not 0 <= offset <= len(self._view):
            raise ValueError(f"offset {offset} is outside of the {len(self._view)} bytes given")

    def message(self, layout: Layout) -> Any:
        values: dict[str, Any] = {}
        for step in layout.steps:
            values[step.name] = self._field(step, layout.flexible)
        if layout.flexible:
            self._tagged(layout, values)
        return layout.cls(**values)

    def _tagged(self, layout: Layout, values: dict[str, Any]) -> None:
        known = {step.tag: step for step in layout.tagged}
        for _ in range(self._varint(layout.where)):
            tag = self._varint(layout.where)
            size = self._varint(layout.where)
            self._need(size, layout.where)
            step = known.get(tag)
            if step is None:
                self._at += size
                continue
            end = self._at + size
            values[step.name] = self._field(step, True)
            if self._at != end:
                raise ProtocolError(f"{step.where}: the field ends at byte {self._at}, but its size says byte {end}")

    def _field(self, step: Step, flexible: bool) -> Any:
        if not step.array:
            return self._value(step, flexible, step.nullable)
        count = self._length(step, flexible, 4, step.nullable)
        if count is None:
            return None
        left = len(self._view) - self._at
        if count > left:  # each element takes at least one byte
            raise ProtocolError(f"{step.where}: {count} elements claimed at byte {self._at} with {left} bytes left")
        self._elements_left -= count
        if self._elements_left < 0:
            raise ProtocolError(f"{step.where}: the message has more than {self._max_elements} elements")
        return [self._value(step, flexible, False) for _ in range(count)]

    def _value(self, step: Step, flexible: bool, nullable: bool) -> Any:
        kind = step.kind
        if kind in _FORMATS:
            return self._number(_FORMATS[kind], step.where)
        if kind == "bool":
            return self._number(_FORMATS["int8"], step.where) != 0
        if kind == "float64":
            return self._number(_FLOAT64, step.where)
        if kind == "uuid":
            return bytes(self._take(16, step.where))
        if kind == "struct":
            assert step.layout is not None
            if nullable and self._is_null_struct(step):
                return None
            return self.message(step.layout)
        length = self._length(step, flexible, 2 if kind == "string" else 4, nullable)
        if length is None:
            return None
        if kind == "records":
            return self._take(length, step.where)
        if kind == "bytes":
            return bytes(self._take(length, step.where))
        if length > MAX_STRING:
            raise ProtocolError(f"{step.where}: a string of {length} bytes is longer than {MAX_STRING}")
        text = str(self._take(length, step.where), "utf-8", "replace")
        # An invalid byte becomes three bytes. The string may then be too long for a response or a record.
        length = len(text.encode())
        if length > MAX_STRING:
            raise ProtocolError(
                f"{step.where}: a string that is not UTF-8, and {length} bytes long with U+FFFD for its invalid bytes"
            )
        return text

    def _is_null_struct(self, step: Step) -> bool:
        if step.tag is not None:
            return self._varint(step.where) == 0
        return bool(self._number(_FORMATS["int8"], step.where) < 0)

    def _length(self, step: Step, flexible: bool, width: int, nullable: bool) -> int | None:
        if flexible:
            length = self._varint(step.where) - 1
        else:
            length = self._number(_FORMATS["int16" if width == 2 else "int32"], step.where)
        if length >= 0:
            return length
        if not nullable:
            raise ProtocolError(f"{step.where}: null is not allowed here")
        return None

    def _number(self, form: struct.Struct, where: str) -> Any:
        return form.unpack(self._take(form.size, where))[0]

    def _varint(self, where: str) -> int:
        value = 0
        for index in range(5):
            if self._at + index >= len(self._view):
                raise ProtocolError(f"{where}: {index + 1} bytes wanted at byte {self._at} with {index} bytes left")
            byte = self._view[self._at + index]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                self._at += index + 1
                return value & 0xFFFFFFFF
        raise ProtocolError(f"{where}: the varint at byte {self._at} is longer than 5 bytes")

    def _take(self, count: int, where: str) -> memoryview:
        self._need(count, where)
        self._at += count
        return self._view[self._at - count : self._at]

    def _need(self, count: int, where: str) -> None:
        left = len(self._view) - self._at
        if count > left:
            raise ProtocolError(f"{where}: {count} bytes wanted at byte {self._at} with {left} bytes left")


def _encode_struct(out: bytearray, layout: Layout, message: Any) -> None:
    for step in layout.absent:
        value = _value(message, step)
        if step.name not in layout.ignorable and not _is_default(step, value):
            raise UnsupportedVersion(f"{step.where}: this version cannot carry {value!r}")
    for step in layout.steps:
        _encode_field(out, step, _value(message, step), layout.flexible)
    if layout.flexible:
        present = [(step, _value(message, step)) for step in layout.tagged]
        present = [(step, value) for step, value in present if not _is_default(step, value)]
        _put_varint(out, len(present))
        for step, value in present:
            content = bytearray()
            _encode_field(content, step, value, True)
            _put_varint(out, step.tag or 0)
            _put_varint(out, len(content))
            out += content


def _value(message: Any, step: Step) -> Any:
    """Return the value of a field of a message, or of a tuple that stands for a message."""
    if type(message) is not tuple:
        return getattr(message, step.name)
    if step.place >= len(message):
        raise ValueError(f"{step.where}: {message!r} does not have all fields")
    return message[step.place]


def _is_default(step: Step, value: Any) -> bool:
    if step.default is not NEW_DEFAULT:
        return bool(value == step.default)
    if value is None:
        return False
    if step.array:
        return len(value) == 0
    assert step.layout is not None
    return bool(value == step.layout.cls())


def _encode_field(out: bytearray, step: Step, value: Any, flexible: bool) -> None:
    if not step.array:
        _encode_value(out, step, value, flexible, step.nullable)
        return
    if value is None:
        _put_null(out, step, flexible, 4, step.nullable)
        return
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{step.where}: {value!r} is not a list")
    _put_length(out, len(value), flexible, 4)
    for element in value:
        _encode_value(out, step, element, flexible, False)


def _encode_value(out: bytearray, step: Step, value: Any, flexible: bool, nullable: bool) -> None:
    kind = step.kind
    if kind in _FORMATS:
        try:
            out += _FORMATS[kind].pack(operator.index(value))
        except (TypeError, struct.error):
            raise ValueError(f"{step.where}: {value!r} is not a valid {kind}") from None
    elif kind == "bool":
        out.append(1 if value else 0)
    elif kind == "float64":
        try:
            out += _FLOAT64.pack(value)
        except (TypeError, OverflowError, struct.error):
            raise ValueError(f"{step.where}: {value!r} is not a valid float64") from None
    elif kind == "uuid":
        if not isinstance(value, bytes) or len(value) != 16:
            raise ValueError(f"{step.where}: {value!r} is not a uuid (16 bytes)")
        out += value
    elif kind == "struct":
        assert step.layout is not None
        if nullable:
            out += b"\x01" if value is not None else b"\xff" if step.tag is None else b"\x00"
        if value is not None:
            _encode_struct(out, step.layout, value)
        elif not nullable:
            raise ValueError(f"{step.where}: null is not allowed here")
    elif value is None:
        _put_null(out, step, flexible, 2 if kind == "string" else 4, nullable)
    elif kind == "string":
        if not isinstance(value, str):
            raise ValueError(f"{step.where}: {value!r} is not a string")
        content = value.encode("utf-8", "replace")  # a lone surrogate, for example of a path, becomes "?", as in Java
        if len(content) > MAX_STRING:
            raise ValueError(f"{step.where}: a string of {len(content)} bytes is longer than {MAX_STRING}")
        _put_length(out, len(content), flexible, 2)
        out += content
    else:
        try:
            view = memoryview(value).cast("B")  # fails for memory that is not contiguous
        except TypeError:
            raise ValueError(f"{step.where}: {value!r} is not a bytes-like object") from None
        _put_length(out, len(view), flexible, 4)
        out += view


def _put_null(out: bytearray, step: Step, flexible: bool, width: int, nullable: bool) -> None:
    if not nullable:
        raise ValueError(f"{step.where}: null is not allowed here")
    _put_length(out, -1, flexible, width)


def _put_length(out: bytearray, length: int, flexible: bool, width: int) -> None:
    if flexible:
        _put_varint(out, length + 1)
    else:
        out += length.to_bytes(width, "big", signed=True)


def _put_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
