"""How long a string may be that a message or a record is to hold."""

LONGEST = 0x7FFF  # bytes of UTF-8; the older forms write the length in 16 bits, and the newer ones allow no more


def fits(text: str) -> bool:
    """Whether a string field can hold it."""
    return len(text) <= LONGEST // 4 or len(text.encode()) <= LONGEST
