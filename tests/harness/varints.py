"""Varints of the Kafka protocol, for tests that build or damage bytes."""


def encode_uvarint(value: int) -> bytes:
    """Return an unsigned varint: seven bits in each byte, the lowest first."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def encode_varint(value: int) -> bytes:
    """Return a signed varint, zig-zag encoded; the same for 32 and 64 bits."""
    return encode_uvarint(value << 1 ^ value >> 63)
