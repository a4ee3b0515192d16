"""Topic ids and cluster ids: random UUIDs of 16 bytes, written as 22 characters of URL-safe base64 (Kafka's Uuid)."""

from __future__ import annotations

import binascii
import os

ZERO_ID = bytes(16)
# Reserved by Kafka; the id of the KRaft metadata topic is one of them.
_RESERVED = frozenset({ZERO_ID, bytes(15) + b"\x01"})
TEXT_LENGTH = 22

# URL-safe base64 differs from base64 in two characters. (Importing the base64 module costs a millisecond at start.)
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")


def new_id() -> bytes:
    """Return a new random id: a version 4 UUID of 16 bytes that Kafka does not reserve and whose text does not begin
    with a dash.

    A leading dash would look like an option on a command line.
    """
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        new_bytes = bytes(raw)
        if new_bytes not in _RESERVED and not encode_id(new_bytes).startswith("-"):
            return new_bytes


def new_cluster_id() -> str:
    return encode_id(new_id())


def encode_id(raw: bytes) -> str:
    """Return the text of an id: 22 characters of URL-safe base64. Raises ValueError unless the id has 16 bytes."""
    if len(raw) != 16:
        raise ValueError(f"an id has 16 bytes, not {len(raw)}")
    return binascii.b2a_base64(raw, newline=False).translate(_TO_URL)[:TEXT_LENGTH].decode("ascii")


def decode_id(text: str) -> bytes:
    """Return the 16 bytes of the id whose text is given. Raises ValueError for any text that encode_id does not
    produce."""
    try:
        raw = binascii.a2b_base64(text.encode("ascii").translate(_FROM_URL) + b"==")
    except (UnicodeEncodeError, binascii.Error):
        raw = b""
    if len(raw) != 16 or encode_id(raw) != text:
        raise ValueError(f"{text!r} is not an id, which has {TEXT_LENGTH} characters of URL-safe base64")
    return raw
