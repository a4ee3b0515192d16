"""Definitions of settings: text becomes the values that Kafka reads, values become text, and wrong text is refused."""

import pytest

from kafkapy.runtime.config_def import (
    ConfigError,
    ConfigKey,
    NonEmpty,
    OneOf,
    Range,
    RangeOr,
    format_value,
    java_double,
    key_table,
    parse_value,
)


@pytest.mark.parametrize(
    ("type", "raw", "value"),
    [
        ("INT", " 42 ", 42),
        ("INT", "+7", 7),
        ("INT", "-2147483648", -(2**31)),
        ("SHORT", "32767", 32767),
        ("LONG", "9223372036854775807", 2**63 - 1),
        ("LONG", 5, 5),
        ("DOUBLE", "0.5", 0.5),
        ("DOUBLE", "1.7976931348623157E308", 1.7976931348623157e308),
        ("DOUBLE", "-Infinity", float("-inf")),
        ("BOOLEAN", " TRUE ", True),
        ("BOOLEAN", "false", False),
        ("BOOLEAN", True, True),
        ("STRING", "  a b ", "a b"),
        ("LIST", "", []),
        ("LIST", "  ", []),
        ("LIST", "a , b,,c", ["a", "b", "", "c"]),
        ("LIST", ["a", "b"], ["a", "b"]),
        ("CLASS", "org.example.C", "org.example.C"),
        ("INT", None, None),
    ],
)
def test_text_becomes_the_value_that_kafka_reads(type: str, raw: object, value: object) -> None:
    assert parse_value("k", type, raw) == value


@pytest.mark.parametrize(
    ("type", "raw"),
    [
        ("INT", "2147483648"),
        ("INT", "1_000"),
        ("INT", ""),
        ("INT", "1.0"),
        ("INT", "0x10"),
        ("INT", "--1"),
        ("INT", "\u0663"),  # the Arabic digit 3
        ("INT", "9" * 5000),
        ("INT", True),
        ("SHORT", "32768"),
        ("LONG", "9223372036854775808"),
        ("DOUBLE", "1_0.0"),
        ("DOUBLE", "nan"),
        ("DOUBLE", "half"),
        ("BOOLEAN", "yes"),
        ("BOOLEAN", "1"),
        ("STRING", 5),
    ],
)
def test_text_that_java_would_refuse_is_refused(type: str, raw: object) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_value("some.key", type, raw)
    assert caught.value.key == "some.key"
    assert "some.key=" in str(caught.value)


def test_an_error_names_key_value_and_rule() -> None:
    key = ConfigKey("num.network.threads", "INT", 3, Range(1), "HIGH", "")
    with pytest.raises(ConfigError, match=r"^num\.network\.threads=0: must be at least 1$"):
        key.parse("0")


def test_a_password_never_appears_in_an_error() -> None:
    key = ConfigKey("the.secret", "PASSWORD", None, NonEmpty("non-empty"), "HIGH", "")
    with pytest.raises(ConfigError) as caught:
        key.parse("")
    assert "[hidden]" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        key.parse(12345)
    assert "12345" not in str(caught.value)


def test_validators_describe_themselves_as_kafka_does() -> None:
    assert str(Range(1)) == "[1,...]"
    assert str(Range(1, 9)) == "[1,...,9]"
    assert str(Range(None, 9)) == "[...,9]"
    assert str(RangeOr(1, 9, -1)) == "[1,...,9] or -1"
    assert str(OneOf("a", "b", any_case=True)) == "(case insensitive) [a, b]"


def test_one_of_checks_every_element_of_a_list_and_may_ignore_case() -> None:
    assert OneOf("compact", "delete").problem(["delete", "compact"]) is None
    assert OneOf("compact", "delete").problem(["delete", "shrink"]) == "must be one of compact, delete (shrink is not)"
    assert OneOf("A", any_case=True).problem("a") is None
    assert OneOf("A").problem("a") == "must be one of A"
    assert OneOf("A").problem(None) is not None


def test_range_or_takes_its_special_value_and_nothing_else_outside() -> None:
    rule = RangeOr(1, 9, -1)
    assert rule.problem(-1) is None
    assert rule.problem(9) is None
    assert rule.problem(0) == "must be at least 1, or -1"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1.0, "1.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-12345678.5, "-1.23456785E7"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (0.00012345, "1.2345E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert java_double(value) == text


def test_values_are_written_as_config_text() -> None:
    assert format_value("BOOLEAN", True) == "true"
    assert format_value("LIST", ["a", "b"]) == "a,b"
    assert format_value("LONG", 5) == "5"
    assert format_value("STRING", None) is None


def test_a_key_defined_twice_is_a_mistake() -> None:
    key = ConfigKey("a", "INT", 1, None, "LOW", "")
    with pytest.raises(ValueError, match="defined twice"):
        key_table([key, key])
