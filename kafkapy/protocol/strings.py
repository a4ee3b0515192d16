"""The length limit of strings in messages and records."""

# bytes of UTF-8: the limit of the int16 length of older versions, which also applies to the newer ones
LONGEST = 0x7FFF


def fits(text: str) -> bool:
    """Return True if a string field can hold the text."""
    return len(text) <= LONGEST // 4 or len(text.encode()) <= LONGEST
