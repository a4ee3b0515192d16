"""`ssl.principal.mapping.rules`: maps the name in a client's certificate to the name of its principal.

The rules work as in Kafka's SslPrincipalMapper, with its oddities: a rule must match the whole name, and is then
applied to each match in it, as `String.replaceAll` of Java does, so that `(.*)` applies twice.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kafkapy.security.tls.errors import StoreError
from kafkapy.security.tls.java_patterns import PatternError, compiled

SETTING = "ssl.principal.mapping.rules"
_RULE = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE, re.ASCII)
_BACK_REFERENCE = re.compile(r"\$([0-9]+)")
_NAMED_REFERENCE = re.compile(r"\$\{([A-Za-z][A-Za-z0-9]*)\}")
_BLANK = "".join(map(chr, range(33)))  # what Java's trim() cuts off


class NoMatchingRule(Exception):
    """Raised when no rule matches a name. The login then fails: the name itself is not used instead."""


@dataclass(frozen=True)
class _Rule:
    """A rule. `replacement` alternates between text (str) and numbers of groups (int)."""

    pattern: re.Pattern[str]
    replacement: tuple[str | int, ...]
    case: str

    def apply(self, name: str) -> str | None:
        """Return the mapped name, None if the rule does not match."""
        if self.pattern.fullmatch(name) is None:
            return None
        result, end = [], 0
        for found in _matches(self.pattern, name):
            result.append(name[end : found.start()])
            result += [part if isinstance(part, str) else found[part] or "" for part in self.replacement]
            end = found.end()
        mapped = "".join((*result, name[end:]))
        return mapped.lower() if self.case == "L" else mapped.upper() if self.case == "U" else mapped


class PrincipalMapper:
    """The rules of `ssl.principal.mapping.rules`. The first that matches a name gives the principal's name."""

    def __init__(self, rules: str | None = None) -> None:
        """Parse the rules; None is DEFAULT. Raises StoreError for rules that Kafka does not take, that would fail for
        every name, or that use what Python's regular expressions read differently from Java's."""
        self._rules = [rule for text in _split("DEFAULT" if rules is None else rules) for rule in _parsed(text)]
        if not self._rules:
            raise StoreError(
                SETTING, "has no rule, so that no client could log in: use DEFAULT for the names as they are"
            )

    def name_of(self, distinguished_name: str) -> str:
        """Return the principal's name for the subject of a certificate. Raises NoMatchingRule."""
        for rule in self._rules:
            name = distinguished_name if rule is None else rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of {SETTING} applies to {distinguished_name}")


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the matches as Java's `Matcher.find` does: after an empty match the search continues one character later,
    where `re.finditer` would look for a longer match at the same place."""
    at = 0
    while at <= len(text) and (found := pattern.search(text, at)):
        yield found
        at = found.end() + (found.end() == found.start())


def _split(rules: str) -> list[str]:
    return [found[1] for found in _matches(_SPLITTER, rules.strip(_BLANK))]


def _parsed(text: str) -> Iterator[_Rule | None]:
    """Yield the rule in `text`: None for DEFAULT, nothing for empty text."""
    found = _PARSER.match(text)
    if found is None or found.end() != len(text):
        raise StoreError(SETTING, f"{text!r} is no rule: use DEFAULT or RULE:pattern/replacement/, also with L or U")
    if found[1] is not None:
        yield None
    elif found[2] is not None:
        try:
            pattern = compiled(found[2])
        except PatternError as error:
            raise StoreError(SETTING, f"the pattern {error}") from None
        yield _Rule(pattern, tuple(_replacement(_literal_references(found[4], pattern.groups), pattern)), found[6])


def _literal_references(replacement: str, groups: int) -> str:
    """Return the replacement with a backslash before references to groups that do not exist, as Kafka does.

    Kafka finds the positions in the original text, but inserts into the text with the earlier backslashes, so that all
    but the first are too far to the left. This function does the same.
    """
    if groups == 0:
        return replacement
    text = replacement
    for found in _BACK_REFERENCE.finditer(replacement):
        number = int(found[1])
        if found[1].startswith("0"):
            continue
        while number > groups and number >= 10:
            number //= 10
        if number > groups:
            text = f"{text[: found.start()]}\\{text[found.start() :]}"
    return text


def _replacement(text: str, pattern: re.Pattern[str]) -> Iterator[str | int]:
    """Yield the parts of a replacement as Java's `Matcher.appendReplacement` reads it."""
    at = 0
    while at < len(text):
        character = text[at]
        if character == "\\":
            if at + 1 == len(text):
                raise StoreError(SETTING, f"the replacement {text!r} ends in a backslash")
            yield text[at + 1]
            at += 2
        elif character == "$":
            group, at = _reference(text, at, pattern)
            yield group
        else:
            yield character
            at += 1


def _reference(text: str, at: int, pattern: re.Pattern[str]) -> tuple[int, int]:
    """Return the group that the reference at `at` names, and the position after the reference."""
    if named := _NAMED_REFERENCE.match(text, at):
        if named[1] not in pattern.groupindex:
            raise StoreError(SETTING, f"the replacement {text!r} names a group {named[1]!r} that its pattern lacks")
        return pattern.groupindex[named[1]], named.end()
    digits = _BACK_REFERENCE.match(text, at)
    if digits is None:
        raise StoreError(SETTING, f"in the replacement {text!r}, write a $ that is no reference such as $1 as \\$")
    group, end = int(digits[1][0]), at + 2
    for digit in digits[1][1:]:  # as many digits as give a group that exists
        if group * 10 + int(digit) > pattern.groups:
            break
        group, end = group * 10 + int(digit), end + 1
    if group > pattern.groups:
        raise StoreError(SETTING, f"the replacement {text!r} names group {group}, but its pattern has {pattern.groups}")
    return group, end
