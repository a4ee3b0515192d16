"""Parses JAAS lines, the values of `sasl.jaas.config`, as Java does (Kafka's JaasConfig over StreamTokenizer).

A line has the form `MODULE FLAG KEY=VALUE ... ;`. Words are letters, digits and `.`, `_`, `-`, `$`. Other values are
quoted with `"` or `'` and may have Java's escapes. `/` begins a comment. As in Java, a word that begins with a digit,
`.` or `-` is a number, which must be quoted to be a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kafkapy.security.sasl.errors import SaslSettingError

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MODULES = (PLAIN_MODULE, SCRAM_MODULE, OAUTH_MODULE)

_FLAGS = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WORD, _SIGN, _NUMBER = "word", "sign", "number"


class JaasEntry(NamedTuple):
    """A parsed JAAS line: the login module (one of MODULES) and its options."""

    module: str
    options: Mapping[str, str]


def parse_jaas(setting: str, text: str) -> JaasEntry:
    """Return the login module and the options in the JAAS line `text`, the value of `setting`.

    Raise SaslSettingError, which names the setting but shows nothing of the value, if the line is malformed, has more
    than one login module, or has a login module that is not one of MODULES.
    """
    tokens = _tokens(text)
    kind, module = next(tokens, (_SIGN, ""))
    if not module:
        raise _error(setting, "is empty; it must be MODULE required KEY=VALUE ... ;")
    if kind is not _WORD or module not in MODULES:
        known = ", ".join(name.rpartition(".")[2] for name in MODULES)
        raise _error(
            setting, f"has a login module other than {known} of Apache Kafka, the only ones that are supported"
        )
    kind, flag = next(tokens, (_SIGN, ""))
    if kind is not _WORD or flag.upper() not in _FLAGS:
        raise _error(setting, "must have required, requisite, sufficient or optional after the login module")
    options: dict[str, str] = {}
    for kind, key in tokens:
        if (kind, key) == (_SIGN, ";"):
            break
        if kind is not _WORD:
            raise _error(setting, 'has something other than KEY=VALUE after the login module; quote values with "')
        if next(tokens, None) != (_SIGN, "="):
            raise _error(setting, "has an option without a value; options are KEY=VALUE")
        kind, value = next(tokens, (_SIGN, ""))
        if kind is not _WORD:
            raise _error(setting, 'has an option without a value, or one that has to be quoted with "')
        options[key] = value
    else:
        raise _error(setting, "must end with a semicolon")
    if next(tokens, None) is not None:
        raise _error(setting, "has more than one login module, or something after the semicolon")
    return JaasEntry(module, options)


def _error(setting: str, rule: str) -> SaslSettingError:
    return SaslSettingError(f"{setting} {rule}")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield the tokens of a JAAS line: words (also quoted ones), numbers and single characters."""
    at = 0
    while at < len(text):
        char = text[at]
        if char <= " ":
            at += 1
        elif char == "/":
            at = _after_comment(text, at)
        elif char in "\"'":
            value, at = _quoted(text, at)
            yield _WORD, value
        elif char in "0123456789." or (char == "-" and text[at + 1 : at + 2] in _NUMBER_START):
            at += 1
            while at < len(text) and text[at] in "0123456789.":
                at += 1
            yield _NUMBER, ""
        elif _in_word(char) and char != "-":
            begin = at
            while at < len(text) and (_in_word(text[at]) or text[at] in "0123456789."):
                at += 1
            yield _WORD, text[begin:at]
        else:
            yield _SIGN, char
            at += 1


_NUMBER_START = frozenset("0123456789.")


def _in_word(char: str) -> bool:
    return char in "-_$" or ("a" <= char <= "z") or ("A" <= char <= "Z") or char >= "\xa0"


def _after_comment(text: str, at: int) -> int:
    """Return the position after the comment that begins with the `/` at `at`."""
    if text[at + 1 : at + 2] == "*":
        end = text.find("*/", at + 2)
        return len(text) if end < 0 else end + 2
    while at < len(text) and text[at] not in "\r\n":
        at += 1
    return at


def _quoted(text: str, at: int) -> tuple[str, int]:
    """Return the string that is quoted by the character at `at`, and the position after it.

    As in Java, the end of the line also ends the string.
    """
    quote = text[at]
    at += 1
    chars = []
    while at < len(text) and text[at] != quote and text[at] not in "\r\n":
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            char = text[at]
            at += 1
            if "0" <= char <= "7":
                longest = 3 if char <= "3" else 2
                digits = char
                while len(digits) < longest and at < len(text) and "0" <= text[at] <= "7":
                    digits += text[at]
                    at += 1
                char = chr(int(digits, 8))
            else:
                char = _ESCAPES.get(char, char)
        chars.append(char)
    return "".join(chars), at + 1 if at < len(text) and text[at] == quote else at
