"""Reads DER, the encoding of certificates (ITU-T X.690), as far as certificates and names need it."""

from typing import NamedTuple

BOOLEAN, INTEGER, BIT_STRING, OCTET_STRING, OBJECT_IDENTIFIER = 0x01, 0x02, 0x03, 0x04, 0x06
UTC_TIME, GENERALIZED_TIME, SEQUENCE, SET = 0x17, 0x18, 0x30, 0x31


class DerError(ValueError):
    """Raised for bytes that are not the expected DER."""


class Value(NamedTuple):
    """A value: its tag byte, its content, and its whole encoding."""

    tag: int
    content: bytes
    encoded: bytes


def read(data: bytes, at: int = 0) -> tuple[Value, int]:
    """Return the value that begins at `at`, and the position after it.

    Raises DerError if it is cut off, or has a tag of several bytes or a length that DER does not allow.
    """
    if len(data) - at < 2:
        raise DerError("a value is cut off")
    tag, length, begin = data[at], data[at + 1], at + 2
    if tag & 0x1F == 0x1F:
        raise DerError("a tag has several bytes")
    if length >= 0x80:
        size = length & 0x7F
        if not 1 <= size <= 4 or len(data) - begin < size:
            raise DerError("a length is invalid")
        length = int.from_bytes(data[begin : begin + size], "big")
        begin += size
    if length > len(data) - begin:
        raise DerError("a value is cut off")
    end = begin + length
    return Value(tag, data[begin:end], data[at:end]), end


def whole(data: bytes, tag: int) -> Value:
    """Return the only value in `data`. Raises DerError if its tag is another one, or if bytes follow."""
    value, end = read(data)
    if end != len(data):
        raise DerError("bytes follow the value")
    return expected(value, tag)


def expected(value: Value, tag: int) -> Value:
    """Return `value`. Raises DerError if its tag is not `tag`."""
    if value.tag != tag:
        raise DerError(f"tag {tag:#04x} expected, not {value.tag:#04x}")
    return value


def children(value: Value) -> list[Value]:
    """Return the values in a SEQUENCE, a SET, or another constructed value."""
    found, at = [], 0
    while at < len(value.content):
        child, at = read(value.content, at)
        found.append(child)
    return found


def object_identifier(value: Value) -> str:
    """Return an object identifier in its dotted form, such as 2.5.4.3."""
    content = expected(value, OBJECT_IDENTIFIER).content
    if not content or content[-1] & 0x80:
        raise DerError("an object identifier is cut off")
    arcs: list[int] = []
    arc = 0
    for byte in content:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))


def encoded(tag: int, content: bytes) -> bytes:
    """Return a value in DER."""
    if len(content) < 0x80:
        return bytes((tag, len(content))) + content
    size = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(size))) + size + content
