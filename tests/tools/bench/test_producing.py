"""The clients of `kafkapy bench produce`, with a broker that the test plays."""

import socket
import struct
from types import SimpleNamespace

import pytest

from kafkapy.client.raw.connection import RawConnection
from kafkapy.client.security import PLAINTEXT
from kafkapy.tools.bench import producing
from kafkapy.tools.bench.board import Board
from kafkapy.tools.bench.leaders import Place
from kafkapy.tools.bench.producing import Content, ProduceJob


def test_a_broker_that_hangs_after_the_last_request_without_acks_is_an_error(monkeypatch):
    monkeypatch.setattr(producing, "drive", lambda *_, **__: None)
    monkeypatch.setattr(producing, "TIMEOUT", 0.001)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connected,
        server.accept()[0],
    ):
        connection = RawConnection(connected, "test")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))  # as if it were TLS
        job = ProduceJob(Place("", PLAINTEXT, "t", (0,)), Content(10), 1, acks=0, window=1)
        job._bytes, job._lanes = 10.0, [SimpleNamespace(socket=connected, connection=connection)]
        with pytest.raises(TimeoutError, match="the broker has not answered"):
            job.run(Board(1).slots[0])
