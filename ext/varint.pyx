"""The error for invalid varints; the functions that read and write varints are in varint.pxd."""


class BadVarint(ValueError):
    """A varint that is longer than 5 bytes (32 bits) or 10 bytes (64 bits)."""
