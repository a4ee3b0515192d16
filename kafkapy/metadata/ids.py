"""Identifiers: random UUIDs, 16 bytes on the wire, 22 characters of URL-safe base64 in text (Kafka's Uuid)."""

from __future__ import annotations

import binascii
import os

ZERO_ID = bytes(16)
# Reserved by Kafka: "one" and the metadata topic's id share these values.
_RESERVED = frozenset({ZERO_ID, bytes(15) + b"\x01"})
TEXT_LENGTH = 22

# The two characters in which URL-safe base64 differs. (The base64 module would cost a start a millisecond.)
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")


def new_id() -> bytes:
    """A random id (UUID version 4) that is not reserved and whose text does not begin with a dash.

    A dash at the front would look like an option on command lines.
    """
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        made = bytes(raw)
        if made not in _RESERVED and not encode_id(made).startswith("-"):
            return made


def new_cluster_id() -> str:
    return encode_id(new_id())


def encode_id(raw: bytes) -> str:
    """22 characters for 16 bytes."""
    if len(raw) != 16:
        raise ValueError(f"an id has 16 bytes, not {len(raw)}")
    return binascii.b2a_base64(raw, newline=False).translate(_TO_URL)[:TEXT_LENGTH].decode("ascii")


def decode_id(text: str) -> bytes:
    """16 bytes from their text; ValueError for anything else, including text that encode_id would write otherwise."""
    try:
        raw = binascii.a2b_base64(text.encode("ascii").translate(_FROM_URL) + b"==")
    except (UnicodeEncodeError, binascii.Error):
        raw = b""
    if len(raw) != 16 or encode_id(raw) != text:
        raise ValueError(f"{text!r} is not an id: it takes {TEXT_LENGTH} characters of URL-safe base64")
    return raw
