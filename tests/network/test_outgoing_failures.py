"""Opening a connection fails in unusual ways: the caller gets the error, and no connection is left open."""

from __future__ import annotations

import socket

import pytest

from tests.network.conftest import LONG, Serve
from tests.network.test_outgoing import Link, Peer, listening, opened

__all__ = ["listening"]  # the fixture


@pytest.mark.parametrize("host", ["two..dots", "x" * 64])
def test_an_address_that_cannot_be_a_host_name_is_refused(serve: Serve, host: str) -> None:
    link = opened(serve(), Link(), (host, 9092))
    assert isinstance(link.error, UnicodeError)


def test_a_connection_whose_caller_fails_is_closed(serve: Serve, listening: socket.socket) -> None:
    serve().server.open(listening.getsockname(), Link(), lambda connection, error: 1 // 0, LONG)
    with listening.accept()[0] as sock:
        assert Peer(sock).is_closed()
