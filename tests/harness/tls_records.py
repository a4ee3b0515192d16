"""Checks that the bytes of a connection are TLS records."""


def check_records(stream: bytes | bytearray) -> None:
    """Raise AssertionError unless the bytes are TLS records, the last of which may be incomplete."""
    at = 0
    while at + 5 <= len(stream):
        assert stream[at] in (20, 21, 22, 23), stream[at : at + 20]
        assert stream[at + 1] == 3
        at += 5 + int.from_bytes(stream[at + 3 : at + 5], "big")
