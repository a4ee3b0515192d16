"""A connection for load, whose broker is played by the test."""

import socket
import struct

import pytest

from kafkapy.client.raw.connection import RawConnection


def test_a_broker_that_does_not_answer_is_named_instead_of_the_error_of_the_kernel() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connected,
        server.accept()[0],
    ):
        connection = RawConnection(connected, "test")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 1000))
        with pytest.raises(TimeoutError, match="the broker has not answered for 60 s"):
            connection.read_frame()


def test_the_time_out_of_a_socket_has_the_same_words_as_that_of_the_kernel() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connected,
        server.accept()[0],
    ):
        connection = RawConnection(connected, "test")
        connected.settimeout(0.001)
        with pytest.raises(TimeoutError, match="the broker has not answered for 60 s"):
            connection.read_frame()
