"""Definitions of settings: type, default, validator and documentation, and parsing of their values.

Every table of settings (topic settings in log.config, broker settings in server.config_keys) consists of ConfigKey
objects. Parsing follows Apache Kafka's ConfigDef: text is trimmed, lists are split at commas, numbers must fit their
Java type. An invalid value raises ConfigError, which names the key, the value and the broken rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

HIDDEN = "[hidden]"
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_INT_BOUNDS = {"INT": (-(2**31), 2**31 - 1), "SHORT": (-(2**15), 2**15 - 1), "LONG": (-(2**63), 2**63 - 1)}
_BITS = {"INT": 32, "SHORT": 16, "LONG": 64}


class ConfigType:
    """The names of the types of settings, as in ConfigDef.Type. WIRE_CODES has their codes in DescribeConfigs
    responses."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"

    UNKNOWN_CODE = 0
    WIRE_CODES = {  # noqa: RUF012 - a constant
        BOOLEAN: 1,
        STRING: 2,
        INT: 3,
        SHORT: 4,
        LONG: 5,
        DOUBLE: 6,
        LIST: 7,
        CLASS: 8,
        PASSWORD: 9,
    }


class UpdateMode:
    """How a broker setting can change at run time: not at all, for each broker, or for the whole cluster
    (DynamicBrokerConfig)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ConfigError(ValueError):
    """The error for an invalid setting: `key`, `value` as given (hidden for passwords), and `rule`, the broken rule in
    words."""

    def __init__(self, key: str, value: object, rule: str) -> None:
        shown = "null" if value is None else value
        super().__init__(f"{key}={shown}: {rule}")
        self.key = key
        self.value = value
        self.rule = rule


class Validator:
    """The base class of rules for parsed values: `problem` returns the broken rule in words, or None; str() describes
    valid values."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def problem(self, value: Any) -> str | None:
        raise NotImplementedError

    def __str__(self) -> str:
        return self._text


class Range(Validator):
    """A rule for numbers: from `low` to `high` inclusive. None means no bound."""

    __slots__ = ("high", "low")

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        parts = [str(low) if low is not None else "...", "..." if high is not None and low is not None else None]
        parts.append(str(high) if high is not None else "...")
        super().__init__("[" + ",".join(part for part in parts if part is not None) + "]")
        self.low = low
        self.high = high

    def problem(self, value: Any) -> str | None:
        if value is None:
            return "must not be null"
        if self.low is not None and value < self.low:
            return f"must be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"must be at most {self.high}"
        return None


class RangeOr(Range):
    """A rule for numbers: in a range, or equal to one special value outside it, such as gzip level -1 (the library's
    default)."""

    __slots__ = ("special",)

    def __init__(self, low: int, high: int | None, special: int) -> None:
        super().__init__(low, high)
        self._text += f" or {special}"
        self.special = special

    def problem(self, value: Any) -> str | None:
        if value == self.special:
            return None
        problem = super().problem(value)
        return f"{problem}, or {self.special}" if problem else None


class OneOf(Validator):
    """A rule for text: one of the given words. In a list, every element must be one of them. `any_case` ignores
    case."""

    __slots__ = ("_accepted", "any_case", "words")

    def __init__(self, *words: str, any_case: bool = False) -> None:
        super().__init__(("(case insensitive) " if any_case else "") + "[" + ", ".join(words) + "]")
        self.words = words
        self.any_case = any_case
        self._accepted = frozenset(word.upper() if any_case else word for word in words)

    def problem(self, value: Any) -> str | None:
        for word in value if isinstance(value, list) else (value,):
            if word is None or (word.upper() if self.any_case else word) not in self._accepted:
                return f"must be one of {', '.join(self.words)}" + (f" ({word} is not)" if word is not value else "")
        return None


class NonEmpty(Validator):
    """A rule for a text or list that must not be empty. Null is valid, as in ConfigDef.NonEmptyString."""

    __slots__ = ()

    def problem(self, value: Any) -> str | None:
        return "must not be empty" if value is not None and len(value) == 0 else None


class Rule(Validator):
    """A rule whose test is a function. The function returns the broken rule in words, or None; `text` describes valid
    values."""

    __slots__ = ("_problem",)

    def __init__(self, text: str, problem: Callable[[Any], str | None]) -> None:
        super().__init__(text)
        self._problem = problem

    def problem(self, value: Any) -> str | None:
        return self._problem(value)


class ConfigKey:
    """The definition of one setting.

    default      a parsed value; None is Kafka's null
    importance   HIGH, MEDIUM or LOW
    doc          a sentence that describes the setting
    mode         an UpdateMode, for broker settings only
    effect       False: the setting is accepted but has no effect in this broker
    internal     True: the setting is not shown in the documentation
    """

    __slots__ = ("default", "doc", "effect", "importance", "internal", "mode", "name", "type", "validator")

    def __init__(
        self,
        name: str,
        type: str,
        default: Any,
        validator: Validator | None,
        importance: str,
        doc: str,
        *,
        mode: str = UpdateMode.READ_ONLY,
        effect: bool = True,
        internal: bool = False,
    ) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.validator = validator
        self.importance = importance
        self.doc = doc
        self.mode = mode
        self.effect = effect
        self.internal = internal

    @property
    def sensitive(self) -> bool:
        """True for passwords, which are never shown, logged or sent to a client."""
        return self.type == ConfigType.PASSWORD

    def parse(self, raw: Any) -> Any:
        """Return the value of this setting that `raw` stands for: text, or a value of the right Python type. Raises
        ConfigError if it is invalid."""
        shown = HIDDEN if self.sensitive else raw
        value = parse_value(self.name, self.type, raw, shown)
        if self.validator is not None:
            rule = self.validator.problem(value)
            if rule is not None:
                raise ConfigError(self.name, shown, rule)
        return value

    def format(self, value: Any) -> str | None:
        """Return the value as text, as Kafka writes it in configs and DescribeConfigs. None (null) stays None."""
        return format_value(self.type, value)

    def __repr__(self) -> str:
        return f"ConfigKey({self.name!r}, {self.type}, default={HIDDEN if self.sensitive else self.default!r})"


def key_table(keys: Iterable[ConfigKey]) -> dict[str, ConfigKey]:
    """Return the definitions as a dict by setting name. Raises ValueError for a duplicate name."""
    table: dict[str, ConfigKey] = {}
    for key in keys:
        if key.name in table:
            raise ValueError(f"the setting {key.name} is defined twice")
        table[key.name] = key
    return table


def parse_value(name: str, type: str, raw: Any, shown: Any = None) -> Any:
    """Return `raw` converted to the type `type`, as ConfigDef.parseType does. Lists become list[str], classes become
    their name, None stays None.

    Raises ConfigError for the setting `name`. The message has `shown` in place of `raw`, if given.
    """
    if raw is None:
        return None
    shown = raw if shown is None else shown
    text = raw.strip() if isinstance(raw, str) else None
    if type in _INT_BOUNDS:
        return _parse_int(name, type, raw if text is None else text, shown)
    if type == ConfigType.BOOLEAN:
        word = str(raw).lower() if text is None else text.lower()
        if word not in ("true", "false"):
            raise ConfigError(name, shown, "must be true or false")
        return word == "true"
    if type == ConfigType.DOUBLE:
        return _parse_double(name, raw if text is None else text, shown)
    if type == ConfigType.LIST:
        if text is None:
            return [str(item) for item in raw]
        return [item.strip() for item in text.split(",")] if text else []
    if text is None:
        raise ConfigError(name, shown, "must be text")
    return text


def _parse_int(name: str, type: str, raw: Any, shown: Any) -> int:
    low, high = _INT_BOUNDS[type]
    if isinstance(raw, str):
        digits = raw[1:] if raw[:1] in ("+", "-") else raw
        # int() would also accept "1_000" and " 7", which Java's parser rejects.
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 40:
            raise ConfigError(name, shown, f"must be a whole number of {_BITS[type]} bits")
        value = int(raw)
    elif isinstance(raw, int) and not isinstance(raw, bool):
        value = raw
    else:
        raise ConfigError(name, shown, f"must be a whole number of {_BITS[type]} bits")
    if not low <= value <= high:
        raise ConfigError(name, shown, f"must be a whole number of {_BITS[type]} bits, from {low} to {high}")
    return value


def _parse_double(name: str, raw: Any, shown: Any) -> float:
    try:
        if isinstance(raw, bool) or (isinstance(raw, str) and "_" in raw):
            raise ValueError
        value = float(raw)
    except (TypeError, ValueError):
        raise ConfigError(name, shown, "must be a number") from None
    if math.isnan(value):
        raise ConfigError(name, shown, "must be a number")
    return value


def format_value(type: str, value: Any) -> str | None:
    """Return a parsed value of type `type` as text, as ConfigDef.convertToString does. Passwords are not hidden;
    callers must hide them."""
    if value is None:
        return None
    if type == ConfigType.BOOLEAN:
        return "true" if value else "false"
    if type == ConfigType.LIST:
        return ",".join(value)
    if type == ConfigType.DOUBLE:
        return java_double(value)
    return str(value)


def java_double(value: float) -> str:
    """Return the text of Java's Double.toString: plain from 0.001 to 10 million, else in scientific notation with E."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    sign = "-" if value < 0 else ""
    text, _, exponent = repr(abs(float(value))).partition("e")
    whole, _, fraction = text.partition(".")
    if exponent:
        power, digits = int(exponent), whole + fraction
    elif whole != "0":
        power, digits = len(whole) - 1, whole + fraction
    else:
        digits = fraction.lstrip("0")
        power = len(digits) - len(fraction) - 1
    digits = digits.rstrip("0")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"
