"""PEM (RFC 7468): blocks of base64 between BEGIN and END lines, in files or inline in a property."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import NamedTuple

CERTIFICATE = frozenset(("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"))
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_HEADERS = re.compile(r"\s*((?:[A-Za-z-]+:[^\r\n]*\r?\n)+)\r?\n")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=\s]")


class PemError(ValueError):
    """Raised for text that is not PEM."""


class Block(NamedTuple):
    """A block: its label, such as CERTIFICATE, its bytes, and its headers, as those of OpenSSL's older encrypted
    keys."""

    label: str
    content: bytes
    headers: str = ""

    @property
    def is_key(self) -> bool:
        return self.label.endswith("PRIVATE KEY")

    @property
    def is_encrypted(self) -> bool:
        return self.label.startswith("ENCRYPTED ") or "ENCRYPTED" in self.headers


def looks_like_pem(data: bytes) -> bool:
    """Return True if there is a block in `data`. Text may come before it, as in the output of `openssl pkcs12`."""
    return b"-----BEGIN " in data


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks in `text`, which may have spaces for line breaks, as a property with continued lines has.

    Raises PemError for a block that does not end or is not base64. Text between blocks is passed over.
    """
    end = 0
    for found in _BLOCK.finditer(text):
        yield _block(found[1], found[2])
        end = found.end()
    if "-----BEGIN " in text[end:]:
        label = text[text.index("-----BEGIN ", end) + 11 :].partition("-----")[0]
        raise PemError(f"the block {label[:40]!r} has no end: the text is cut off")


def _block(label: str, body: str) -> Block:
    headers = ""
    if found := _HEADERS.match(body):
        headers, body = found[1], body[found.end() :]
    if _NOT_BASE64.search(body):
        raise PemError(f"the block {label!r} is not base64")
    try:
        content = base64.b64decode("".join(body.split()), validate=True)
    except binascii.Error:
        raise PemError(f"the block {label!r} is not base64") from None
    if not content:
        raise PemError(f"the block {label!r} is empty")
    return Block(label, content, headers)


def text_of(block: Block) -> str:
    """Return a block as PEM with lines of 64 characters, as OpenSSL reads it."""
    encoded = base64.b64encode(block.content).decode()
    lines = [encoded[at : at + 64] for at in range(0, len(encoded), 64)]
    headers = f"{block.headers}\n" if block.headers else ""
    return "\n".join(
        (f"-----BEGIN {block.label}-----", headers + lines[0], *lines[1:], f"-----END {block.label}-----\n")
    )


def certificate(encoded: bytes) -> str:
    """Return a certificate in PEM."""
    return text_of(Block("CERTIFICATE", encoded))
