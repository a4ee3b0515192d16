"""Bytes as base64 text, in stored credentials and passwords and in SCRAM messages."""

from __future__ import annotations

import base64
import binascii


def encode64(data: bytes) -> str:
    """Return `data` as base64 text."""
    return base64.b64encode(data).decode()


def decode64(text: str) -> bytes:
    """Return the bytes that `text` has in base64. Raise ValueError if it is malformed."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("malformed base64") from None
