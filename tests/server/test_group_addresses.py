"""A member's address is written as Java prints it, because the group's record keeps it and tools show it."""

import pytest

from kafkapy.server.handlers.groups import java_address


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "/127.0.0.1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("2001:db8::8a2e:370:7334", "/2001:db8:0:0:0:8a2e:370:7334"),
        ("fe80::1%2", "/fe80:0:0:0:0:0:0:1%2"),
        ("::ffff:10.0.0.7", "/10.0.0.7"),
    ],
)
def test_an_address_is_written_as_java_does(host: str, shown: str) -> None:
    assert java_address(host) == shown
