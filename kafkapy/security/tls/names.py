"""Distinguished names as Java writes them, because principals and mapping rules of Kafka are such texts."""

import re

from kafkapy.security.tls import der
from kafkapy.security.tls.der import DerError

# The keywords of RFC 2253; other types are written as numbers, with their value in hexadecimal.
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString
_STRINGS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_ESCAPED = {ord(character): f"\\{character}" for character in ',=+<>#;"\\'} | {0: "\\00"}


def java_name(name: bytes) -> str:
    """Return a distinguished name, given in DER, as Java's `X500Principal.getName()` does (RFC 2253).

    The last part comes first. Parts are separated by commas without spaces. Raises DerError for bytes that are no name.
    """
    parts = []
    for relative in der.children(der.whole(name, der.SEQUENCE)):
        pairs = der.children(der.expected(relative, der.SET))
        if not pairs:
            raise DerError("a part of a name is empty")
        parts.append("+".join(_pair(pair) for pair in pairs))
    return ",".join(reversed(parts))


def _pair(pair: der.Value) -> str:
    found = der.children(der.expected(pair, der.SEQUENCE))
    if len(found) != 2:
        raise DerError("a part of a name is not a type with a value")
    kind, value = found
    number = der.object_identifier(kind)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or number}=#{der.encoded(value.tag, value.content).hex()}"
    return f"{keyword}={_escaped(value.content)}"


def _escaped(content: bytes) -> str:
    """Return the value of a string. Java takes the bytes as UTF-8, whatever kind of string it is."""
    # Java replaces the three bytes of a lone surrogate by one character, Python by three.
    text = _SURROGATE.sub("\ufffd".encode(), content).decode("utf-8", "replace").translate(_ESCAPED)
    inner = text.strip(" \r")
    if not inner:
        return "".join(f"\\{character}" for character in text)
    before = text[: len(text) - len(text.lstrip(" \r"))]
    after = text[len(text.rstrip(" \r")) :]
    return "".join((*(f"\\{one}" for one in before), inner, *(f"\\{one}" for one in after)))
