"""Records that go from a producer to consumers whose fetches wait."""

import socket
from contextlib import ExitStack
from types import SimpleNamespace
from typing import cast

import pytest

from perf import frames
from perf.measurements.small_requests import TAIL, _deliver
from perf.raw_client import RawClient


def test_a_consumer_whose_connection_is_closed_is_an_error_instead_of_an_endless_loop() -> None:
    with ExitStack() as ending:
        ours, brokers = (ending.enter_context(one) for one in socket.socketpair())
        brokers.shutdown(socket.SHUT_WR)
        producer = SimpleNamespace(
            socket=SimpleNamespace(sendall=lambda frame: None),
            produce_once=lambda frame: 10,
            end_offset=lambda topic: 0,
            discard=lambda length: None,
        )
        consumer = SimpleNamespace(socket=ours)
        with pytest.raises(ConnectionError, match="closed the connection of a consumer"):
            _deliver(cast(RawClient, producer), b"frame", [cast(RawClient, consumer)], frames.FetchFrame(TAIL), 1)
