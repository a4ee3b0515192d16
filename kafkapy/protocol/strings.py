"""The length limit of strings in protocol messages and in records of internal topics."""

# bytes of UTF-8: the limit of the int16 length of older versions, which also applies to the newer ones
LONGEST = 0x7FFF


def fits(text: str) -> bool:
    """Return True if the text takes at most 32,767 bytes of UTF-8, so that a string field can hold it."""
    return len(text) <= LONGEST // 4 or len(text.encode()) <= LONGEST
