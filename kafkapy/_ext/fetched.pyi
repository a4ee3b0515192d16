"""Types of ext/fetched.pyx."""

_Partition = tuple[bytes | str, int, int, int, int, tuple[int, int] | None, memoryview | None]

def decode_fetch_response(
    frame: bytes | bytearray | memoryview, version: int, start: int
) -> tuple[int, int, list[_Partition]]: ...
