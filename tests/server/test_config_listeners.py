"""Listeners, protocol maps and limits by address are parsed, and refused with the rule that they break."""

import pytest

from kafkapy.runtime.config_def import ConfigError
from kafkapy.server.config.listeners import Listener, parse_listeners, parse_per_ip, parse_protocol_map

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "IN": "PLAINTEXT", "SSL": "SSL"}


def parse(text: str, *, distinct_ports: bool = True) -> tuple[Listener, ...]:
    return parse_listeners("listeners", text, PROTOCOLS, distinct_ports=distinct_ports)


def test_listeners_have_a_name_a_host_a_port_and_a_protocol() -> None:
    assert parse("PLAINTEXT://:9092, in://h-1.example_x:0,SSL://[::1]:9093") == (
        Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),
        Listener("IN", "h-1.example_x", 0, "PLAINTEXT"),
        Listener("SSL", "::1", 9093, "SSL"),
    )
    assert parse("") == ()


def test_a_listener_is_written_as_it_is_read() -> None:
    for text in ("PLAINTEXT://h:1", "IN://[fe80::1%eth0]:2", "PLAINTEXT://:0"):
        assert str(parse(text)[0]) == text


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("h:9092", "NAME://HOST:PORT"),
        ("://h:9092", "NAME://HOST:PORT"),
        ("PLAINTEXT://h", "NAME://HOST:PORT"),
        ("PLAINTEXT://h:", "a port must be a number"),
        ("PLAINTEXT://h:x", "a port must be a number"),
        ("PLAINTEXT://h:-1", "a port must be a number"),
        ("PLAINTEXT://h:65536", "a port must be a number"),
        ("PLAINTEXT://::1:9092", "in brackets"),
        ("PLAINTEXT://[h]:9092", "is not a host"),
        ("PLAINTEXT://a/b:9092", "is not a host"),
        ("OUT://h:9092", "has no security protocol"),
        ("PLAINTEXT://h:1,plaintext://h:2", "two listeners have the name PLAINTEXT"),
        ("PLAINTEXT://h:1,IN://h:1", "two listeners have the port 1"),
        ("PLAINTEXT://h:1,IN://[::1]:1", "two listeners have the port 1"),
    ],
)
def test_an_invalid_listener_is_refused_with_the_rule(text: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule) as caught:
        parse(text)
    assert str(caught.value).startswith(f"listeners={text}: ")


def test_ports_may_repeat_where_they_cannot_clash() -> None:
    parse("PLAINTEXT://h:0,IN://h:0")
    parse("PLAINTEXT://1.2.3.4:9092,IN://[::1]:9092")
    parse("PLAINTEXT://h:9092,IN://h:9092", distinct_ports=False)


def test_a_protocol_map_gives_each_name_its_protocol() -> None:
    assert parse_protocol_map("k", "in:PLAINTEXT, OUT : sasl_ssl,") == {"IN": "PLAINTEXT", "OUT": "SASL_SSL"}
    for text in ("IN", "IN:TLS", ":PLAINTEXT"):
        with pytest.raises(ConfigError, match=f"k={text}"):
            parse_protocol_map("k", text)


def test_limits_by_host() -> None:
    assert parse_per_ip("k", "h:1, 10.0.0.1:200,[::1]:3") == {"h": 1, "10.0.0.1": 200, "::1": 3}
    assert parse_per_ip("k", "") == {}
    for text in ("h", "h:x", ":1", "h:-1"):
        with pytest.raises(ConfigError, match=f"k={text}"):
            parse_per_ip("k", text)
