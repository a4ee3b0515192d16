"""Connections that are opened, served once and closed."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace
from typing import cast

from perf.brokers import Broker
from perf.measurements.connections import _connect


def test_a_connection_that_the_broker_opens_for_itself_meanwhile_does_not_count() -> None:
    with ExitStack() as ending:
        server = ending.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve() -> None:
            with server.accept()[0] as accepted:
                accepted.recv(1024)
                accepted.sendall(b"\0\0\0\1.")
                assert not accepted.recv(1)
                for one in socket.socketpair():
                    ending.enter_context(one)

        with ThreadPoolExecutor(1) as pool:
            served = pool.submit(serve)
            broker = SimpleNamespace(pid=os.getpid(), port=server.getsockname()[1])
            opened = _connect(cast(Broker, broker), 1)
            served.result()
    assert min(opened) > 0
