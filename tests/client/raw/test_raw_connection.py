"""A connection for load, whose broker is played by the test."""

import socket
import struct
from collections.abc import Callable

import pytest

from kafkapy.client.raw.connection import RawConnection


def by_the_kernel(connected: socket.socket) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 1000))


def by_the_socket(connected: socket.socket) -> None:
    connected.settimeout(0.001)


@pytest.mark.parametrize("limit", [by_the_kernel, by_the_socket])
def test_a_broker_that_does_not_answer_is_named_instead_of_the_error(limit: Callable[[socket.socket], None]) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connected,
        server.accept()[0],
    ):
        connection = RawConnection(connected, "test")
        limit(connected)
        with pytest.raises(TimeoutError, match="the broker has not answered for 60 s"):
            connection.read_frame()
