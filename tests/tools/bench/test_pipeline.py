"""Requests in flight on a connection whose other end the test plays."""

import socket
from functools import partial

import pytest

from kafkapy.client.raw.connection import RawConnection
from kafkapy.client.raw.requests import ProduceReply
from kafkapy.protocol.apis import PRODUCE
from kafkapy.protocol.headers import response_frame
from kafkapy.tools.bench.pipeline import Lane, Tape, repeated
from kafkapy.tools.common.errors import ToolError

VERSION = 9
REPLY = ProduceReply("t", VERSION)


def answer(code: int = 0, offset: int = 7, message: str | None = None) -> bytes:
    response = PRODUCE.Response
    partition = response.Responses.PartitionResponses(
        index=0, error_code=code, base_offset=offset, error_message=message
    )
    topic = response.Responses(name="t", partition_responses=[partition])
    return response_frame(PRODUCE, VERSION, 1, response(responses=[topic]))


class Ends:
    """A lane, and the broker's end of its connection."""

    def __init__(self, window: int = 4, frames: tuple[bytes, ...] = (b"one", b"two", b"3")) -> None:
        ours, self.broker = socket.socketpair()
        self.explained: list[bytes] = []
        # TCP_NODELAY is not an option of socket pairs.
        connection = RawConnection.__new__(RawConnection)
        connection.socket = ours
        connection._lender = None
        self.lane = Lane(connection, list(frames), window, REPLY.size, REPLY.are_good, self._explain)
        ours.setblocking(False)
        self.broker.settimeout(5)

    def _explain(self, frame: bytes) -> None:
        self.explained.append(frame)
        raise ToolError("explained")

    def receive(self) -> list[float]:
        found: list[float] = []
        self.lane.receive(found.append)
        return found


@pytest.fixture
def ends():
    made = Ends()
    yield made
    made.lane.socket.close()
    made.broker.close()


def test_requests_are_sent_up_to_the_window_in_order_and_again(ends):
    ends.lane.send(100, 1.0, None)
    assert ends.broker.recv(100) == b"onetwo3one"
    ends.broker.sendall(answer() + answer())
    assert len(ends.receive()) == 2
    ends.lane.send(100, 1.0, None)
    assert ends.broker.recv(100) == b"two3"
    assert ends.lane.sent == 6


def test_a_part_of_a_response_counts_when_the_rest_has_come(ends):
    ends.lane.send(2, 1.0, None)
    both = answer() + answer()
    ends.broker.sendall(both[:3])
    assert ends.receive() == []
    ends.broker.sendall(both[3:-1])
    assert len(ends.receive()) == 1
    ends.broker.sendall(both[-1:])
    assert len(ends.receive()) == 1
    assert ends.lane.is_idle


def test_a_request_that_had_no_room_counts_from_when_it_was_due(ends, monkeypatch):
    ends.lane.send(4, 1.0, (0.0, 1.0))  # request k is due at second k
    ends.lane.send(1, 4.5, (0.0, 1.0))
    ends.broker.sendall(answer() * 4)
    monkeypatch.setattr("time.perf_counter", lambda: 9.0)
    assert ends.receive() == [8.0] * 4
    ends.lane.send(2, 9.0, (0.0, 1.0))
    ends.broker.sendall(answer() * 2)
    monkeypatch.setattr("time.perf_counter", lambda: 10.0)
    assert ends.receive() == [10.0 - 4.5, 10.0 - 5.0]


@pytest.mark.parametrize("bad", [answer(3), answer(10, message="too large")], ids=["same length", "other length"])
@pytest.mark.parametrize("before", [b"", answer()], ids=["first", "second"])
def test_an_error_is_explained_also_if_it_comes_in_parts(ends, bad, before):
    ends.lane.send(3, 1.0, None)
    ends.lane._explain = partial(_first_error, ends.explained)
    ends.broker.sendall(before + bad[:3])
    ends.receive()
    assert not ends.explained
    ends.broker.sendall(bad[3:])
    with pytest.raises(ToolError, match="explained"):
        ends.receive()
    assert ends.explained[-1] == bad[4:]


def _first_error(explained, frame):
    explained.append(frame)
    if frame != answer()[4:]:
        raise ToolError("explained")


def test_a_response_to_no_request_is_an_error(ends):
    ends.broker.sendall(answer())
    with pytest.raises(ToolError):
        ends.receive()


def test_the_end_of_the_connection_is_an_error(ends):
    ends.broker.close()
    with pytest.raises(ToolError, match="the broker closed the connection"):
        ends.receive()


def test_what_a_socket_does_not_take_at_once_is_sent_later():
    ends = Ends(window=1, frames=(bytes(1 << 22),))
    ends.lane.send(1, 1.0, None)
    assert ends.lane.waits_to_send
    got = 0
    while ends.lane.waits_to_send:
        got += len(ends.broker.recv(1 << 20))
        ends.lane.flush()
    while got < 1 << 22:
        got += len(ends.broker.recv(1 << 20))
    assert got == 1 << 22
    ends.lane.socket.close()
    ends.broker.close()


def test_a_tape_hands_out_whole_requests_and_begins_again_at_its_end():
    tape = Tape([b"a", b"bb", b"ccc"])
    assert [(count, bytes(data)) for count, data in (tape.take(2), tape.take(2), tape.take(9))] == [
        (2, b"abb"),
        (1, b"ccc"),
        (3, b"abbccc"),
    ]
    assert repeated([b"a", b"b"], 5) == [b"a", b"b"] * 3
    assert repeated([bytes(1 << 21)], 5) == [bytes(1 << 21)]


def test_the_offset_and_the_error_of_a_response_are_found_without_decoding_it():
    assert REPLY.base_offset(answer(offset=1234)) == 1234
    assert REPLY.are_good(memoryview(answer() + answer(offset=99)))
    assert not REPLY.are_good(memoryview(answer() + answer(6)))
