"""Patient connections, such as those of a thousand group members, do not delay other connections."""

import threading

from kafkapy.network.connection import Connection
from kafkapy.network.replies import Reply

from .conftest import LONG, Echo, Serve, framed, until


class Gated(Echo):
    """A handler that makes a connection patient if a frame begins with "m". A frame "stop" waits for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped = threading.Event()
        self.may_continue = threading.Event()

    def answer(self, connection: Connection, frame: bytes) -> Reply:
        if frame.startswith(b"m"):
            connection.patient = True
        if frame == b"stop":
            self.stopped.set()
            assert self.may_continue.wait(LONG)
        return [framed(frame)]


def test_patient_connections_are_served_after_others_and_a_few_at_a_time(serve: Serve) -> None:
    running = serve(Gated())
    members = [running.connect() for _ in range(60)]
    for number, member in enumerate(members):
        member.send(b"m%d" % number)
    for number, member in enumerate(members):
        assert member.frame() == b"m%d" % number
    gate, other = running.connect(), running.connect()
    other.send(b"first")
    assert other.frame() == b"first"  # the processor has this connection before it stops
    gate.send(b"stop")
    assert running.handler.stopped.wait(LONG)
    for member in members:
        member.send(b"more")
    other.send(b"now")
    running.handler.may_continue.set()
    assert other.frame() == b"now"
    assert [member.frame() for member in members] == [b"more"] * 60
    turns = [turn[0] for turn in running.handler.turns]
    handled = turns[turns.index(b"stop") + 1 :]
    assert sorted(handled) == [b"more"] * 60 + [b"now"]
    assert handled.index(b"now") < 20


def test_answers_that_are_ready_together_let_requests_between_them(serve: Serve) -> None:
    """A rebalance answers a thousand members at once; other requests wait for only a few of these answers."""
    handler = Gated()
    running = serve(handler)
    gate, other = running.connect(), running.connect()
    assert other.is_open()
    gate.send(b"stop")
    assert handler.stopped.wait(LONG)
    other.send(b"now")
    before: list[int] = []
    for number in range(200):
        running.server._processors[0].post(lambda number=number: before.append(len(handler.turns)))
    handler.may_continue.set()
    assert other.frame() == b"now"
    until(lambda: len(before) == 200)
    assert sum(turns == before[0] for turns in before) <= 20  # the other answers came after it
