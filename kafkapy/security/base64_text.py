"""Bytes as base64 text, in stored credentials and passwords, in SCRAM messages and in JSON Web Tokens."""

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


def encode64url(data: bytes) -> str:
    """Return `data` as base64url without padding, as in JSON Web Tokens (RFC 7515)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode64url(text: str) -> bytes:
    """Return the bytes that `text` has in base64url, with or without padding.

    Raise ValueError for text that is not ASCII or has an impossible length. Other characters that are not base64url are
    skipped.
    """
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
