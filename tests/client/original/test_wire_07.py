"""The requests of Kafka 0.7, byte for byte, and invalid responses."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from kafkapy.client.errors import BrokerTimedOut, ConnectionFailed
from kafkapy.client.original.kafka_07.wire import LATEST, Asked, Connection07

Serve = Callable[[bytes], Connection07]


@pytest.fixture
def asked() -> list[bytes]:
    """Return the received requests, without their size fields."""
    return []


@pytest.fixture
def serve(asked: list[bytes]) -> Iterator[Serve]:
    """Return a function that connects to a new broker, which answers each request with the given bytes, or hangs up
    if they are empty."""
    opened: list[socket.socket] = []
    answer = b""

    def run(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with contextlib.suppress(ConnectionError), connection, connection.makefile("rb") as stream:
                while size := stream.read(4):
                    asked.append(stream.read(*struct.unpack(">i", size)))
                    if asked[-1][:2] in (b"\0\0", b"\0\3"):
                        continue
                    if not answer:
                        break
                    connection.sendall(answer)

    def start(given: bytes, timeout_s: float = 10) -> Connection07:
        nonlocal answer
        answer = given
        listener = socket.create_server(("127.0.0.1", 0))
        opened.append(listener)
        threading.Thread(target=run, args=(listener,), daemon=True).start()
        return Connection07("127.0.0.1", listener.getsockname()[1], timeout_s)

    yield start
    for listener in opened:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


OFFSETS = bytes.fromhex("0000000e 0000 00000001 00000000000002a0")


def test_requests_are_those_of_0_7(serve: Serve, asked: list[bytes]) -> None:
    connection = serve(OFFSETS)
    assert connection.offsets_before("abc", 1, LATEST, 2) == [672]
    connection.produce([("abc", -1, b"set")], wait=True)
    connection.produce([("a", 0, b"1"), ("b", 2, b"22")], wait=False)
    connection.offsets_before("abc", 1, 5, 2)
    connection.close()
    assert [one.hex() for one in asked] == [
        "0004000361626300000001ffffffffffffffff00000002",
        "00000003616263ffffffff00000003736574",
        "0004000361626300000000ffffffffffffffff00000001",
        "0003000200016100000000000000013100016200000002000000023232",
        "0004000361626300000001000000000000000500000002",
    ]


def test_fetches_of_one_and_of_several(serve: Serve, asked: list[bytes]) -> None:
    one = serve(bytes.fromhex("00000005 0000 616263"))
    assert [(code, bytes(data)) for code, data in one.fetch([Asked("t", 3, 9, 100)])] == [(0, b"abc")]
    several = serve(bytes.fromhex("00000010 0000 00000004 0000 6162 00000002 0001"))
    found = several.fetch([Asked("t", 3, 9, 100), Asked("u", 0, 0, 50)])
    assert [(code, bytes(data)) for code, data in found] == [(0, b"ab"), (1, b"")]
    assert [request.hex() for request in asked] == [
        "000100017400000003000000000000000900000064",
        "000200020001740000000300000000000000090000006400017500000000000000000000000000000032",
    ]
    for connection in (one, several):
        connection.close()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("", "it closed the connection"),
        ("00000001 00", "a size of 1 bytes"),
        ("ffffffff 0000", "a size of -1 bytes"),
        ("48545450 2f31", "is it a broker of Kafka 0.7"),
        ("00000010 0000 00000009 0000 6162 00000002 0001", "has wrong sizes"),
        ("00000010 0000 80000000 0000 6162 00000002 0001", "has wrong sizes"),
        ("00000008 0000 00000004 0000", "has wrong sizes"),
    ],
)
def test_an_invalid_response_is_refused_and_the_connection_closed(serve: Serve, answer: str, message: str) -> None:
    connection = serve(bytes.fromhex(answer))
    with pytest.raises(ConnectionFailed, match=message):
        connection.fetch([Asked("t", 0, 0, 100), Asked("u", 0, 0, 100)])
    assert connection.closed


@pytest.mark.parametrize(
    "answer", ["00000006 0000 7fffffff", "00000006 0000 ffffffff", "00000004 0000 0000", "00000002 0003"]
)
def test_an_invalid_offsets_response_is_refused(serve: Serve, answer: str) -> None:
    connection = serve(bytes.fromhex(answer))
    with pytest.raises(ConnectionFailed, match="about offsets of t-0"):
        connection.offsets_before("t", 0, LATEST, 1)
    assert connection.closed


def test_a_silent_broker_is_waited_for_only_until_the_time_out(serve: Callable[..., Connection07]) -> None:
    connection = serve(b"\0\0", timeout_s=0.05)  # a part of a size
    with pytest.raises(BrokerTimedOut, match=r"did not respond in 0\.05 s"):
        connection.fetch([Asked("t", 0, 0, 100)])
    assert connection.closed


@pytest.mark.parametrize(
    ("method", "ask"),
    [
        ("recv_into", lambda connection: connection.fetch([Asked("t", 0, 0, 100)])),
        ("sendall", lambda connection: connection.produce([("t", 0, b"set")], wait=False)),
    ],
    ids=["response", "request"],
)
def test_an_interrupted_request_closes_the_connection(
    serve: Serve, method: str, ask: Callable[[Connection07], object]
) -> None:
    """Without correlation ids, the next request would get the rest of this response."""

    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    interrupted = type("Interrupted", (socket.socket,), {method: interrupt})
    connection = serve(bytes.fromhex("00000005 0000 616263"))
    connection.fetch([Asked("t", 0, 0, 100)])
    assert connection._socket is not None
    connection._socket = interrupted(fileno=connection._socket.detach())
    with pytest.raises(KeyboardInterrupt):
        ask(connection)
    assert connection.closed
