"""Pieces: parts of replies that are produced while they are sent."""

import random
import socket
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.network import pieces
from kafkapy.network.connection import Connection
from kafkapy.network.pieces import Pieces, held
from kafkapy.network.replies import Reply
from kafkapy.network.sends import DONE, UNMADE, Outbox, PageCache, Sender
from tests.harness.examples import examples

from .conftest import Echo, Serve, rss, until
from .test_cold import GatedPool

DATA = random.Random(4).randbytes(3_000_000)


class Cut:
    """`data` cut into pieces of these sizes. After the last size, the first is used again."""

    def __init__(self, data: bytes, sizes: list[int], ready: int = 0) -> None:
        self.data = data
        self.sizes = sizes
        self.pieces = 0
        self.again = 0
        self._ends = [0, ready]

    def __call__(self, offset: int) -> memoryview:
        self.pieces += 1
        if offset < self._ends[-1]:
            self.again += 1
        else:
            assert offset == self._ends[-1]
            self._ends.append(offset + self.sizes[(len(self._ends) - 2) % len(self.sizes)])
        assert offset >= self._ends[-2]
        return memoryview(self.data[self._ends[-2] : self._ends[-1]])[offset - self._ends[-2] :]


class Answers(Echo):
    """Answers `pieces` with "head", the pieces from `make` and "tail"; echoes everything else."""

    def __init__(self, make: Callable[[], Pieces]) -> None:
        super().__init__()
        self.make = make

    def answer(self, connection: Connection, frame: bytes) -> Reply:
        return [b"head", self.make(), b"tail"] if frame == b"pieces" else super().answer(connection, frame)


@settings(max_examples=examples(60), deadline=None)
@given(
    length=st.integers(1, 300_000),
    sizes=st.lists(st.integers(1, 200_000), min_size=1, max_size=5),
    ready=st.sampled_from([0, 1, 5000, 400_000]),
    around=st.tuples(st.integers(0, 100), st.integers(0, 100_000)),
    room=st.sampled_from([4096, 1 << 20]),
    crowded=st.booleans(),
)
def test_pieces_of_any_size_arrive_in_order(
    length: int, sizes: list[int], ready: int, around: tuple[int, int], room: int, crowded: bool
) -> None:
    before, behind = DATA[: around[0]], DATA[-around[1] :] if around[1] else b""
    sizes = [max(size, length // 200 + 1) for size in sizes]
    make = Cut(DATA, sizes, ready)
    before_all = held.total
    part = Pieces(length, make, DATA[:ready])
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.MonkeyPatch.context() as patch:
        if crowded:
            patch.setattr(pieces, "MOST_HELD", -1)
        for sock in (ours, theirs):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        sender, box = Sender(True, 8192, PageCache()), Outbox()
        box.add([before, part, behind])
        received = bytearray()
        while (state := sender.flush(ours.fileno(), box)) != DONE:
            if state == UNMADE:
                assert sender.unmade is part
                sender.unmade = None
                part.put(part.make(box.offset))
            else:
                received += theirs.recv(1 << 20)
        while len(received) < len(before) + length + len(behind):
            received += theirs.recv(1 << 20)
        assert received == before + DATA[:length] + behind
    assert crowded or not make.again
    del part
    assert held.total == before_all


def test_a_reply_in_pieces_and_the_next_reply_arrive_over_tcp(serve: Serve) -> None:
    running = serve(Answers(lambda: Pieces(2_000_000, Cut(DATA, [100_000, 7, 300_000]))))
    client = running.connect()
    client.send(b"pieces", b"pieces", b"behind")
    for _ in range(2):
        assert client.exactly(2_000_008) == b"head" + DATA[:2_000_000] + b"tail"
    assert client.frame() == b"behind"


def test_other_connections_are_served_while_a_piece_is_converted(serve: Serve) -> None:
    pool = GatedPool()
    running = serve(Answers(lambda: Pieces(10, Cut(DATA, [5]))), disk_pool=pool)
    slow, other = running.connect(), running.connect()
    slow.send(b"pieces", b"behind")
    for _ in range(2):
        until(lambda: len(pool.jobs) == 1)
        for _ in range(5):
            assert other.is_open()
        assert len(pool.jobs) == 1
        pool.run()
    assert slow.exactly(18) == b"head" + DATA[:10] + b"tail"
    assert slow.frame() == b"behind"


@pytest.mark.parametrize("ending", ["error", "empty"])
def test_a_piece_that_cannot_be_converted_closes_the_connection(serve: Serve, caplog, ending: str) -> None:
    """The frame's size is sent already, so only closing the connection can show the client the failure."""
    produced = []

    def make(offset: int) -> bytes:
        produced.append(1)
        if len(produced) < 3:
            return b"x" * 100
        if ending == "empty":
            return b""
        raise ValueError("the batch at byte 17 is broken")

    running = serve(Answers(lambda: Pieces(1000, make)))
    client, other = running.connect(), running.connect()
    client.send(b"pieces")
    with pytest.raises((EOFError, ConnectionResetError)):
        client.exactly(1008)
    assert "in the middle of a reply" in caplog.text
    assert ("the batch at byte 17 is broken" if ending == "error" else "piece is empty") in caplog.text
    assert other.is_open()


def test_a_connection_whose_peer_leaves_while_a_piece_is_converted_is_closed(serve: Serve) -> None:
    pool = GatedPool()
    running = serve(Answers(lambda: Pieces(1 << 20, Cut(DATA, [1000]))), disk_pool=pool)
    client, other = running.connect(), running.connect()
    client.send(b"pieces")
    until(lambda: len(pool.jobs) == 1)
    client.close()
    assert other.is_open()
    while running.server.connections > 1:
        if pool.jobs:
            pool.run()
    assert other.is_open()


def test_slow_readers_hold_a_piece_each(serve: Serve, many_files: None) -> None:
    """Each reply has 10 MB; pieces that the client does not read are not produced."""
    produced: list[int] = []
    counting = threading.Lock()

    def make(offset: int) -> bytes:
        with counting:
            produced.append(1)
        return bytes(20_000)

    running = serve(Answers(lambda: Pieces(10_000_000, make)), socket_listen_backlog_size=256)
    running.connect().is_open()
    before = rss()
    stalled = [running.connect(receive_buffer=4096) for _ in range(200)]
    for client in stalled:
        client.send(b"pieces", b"again")
    until(lambda: running.count("network_frames_in") > 200)
    assert stalled[0].exactly(10_000_008) == b"head" + bytes(10_000_000) + b"tail"
    assert rss() - before < 64 << 20
    assert len(produced) < 200 * 500 / 2


def test_many_slow_readers_together_hold_no_more_than_is_allowed(
    serve: Serve, many_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces above the memory limit are dropped, and produced again when their sockets have room."""
    monkeypatch.setattr(pieces, "MOST_HELD", 3_000_000)
    makers: list[Cut] = []

    def promised() -> Pieces:
        makers.append(Cut(DATA, [1_000_000]))
        return Pieces(len(DATA), makers[-1])

    running = serve(Answers(promised), socket_send_buffer_bytes=4096, socket_listen_backlog_size=256)
    running.connect().is_open()
    stalled = [running.connect(receive_buffer=4096) for _ in range(60)]
    for client in stalled:
        client.send(b"pieces")
    until(lambda: sum(maker.pieces for maker in makers) >= 60)
    assert running.connect().is_open()
    until(lambda: held.total <= 4_000_000)
    for client in stalled[::10]:  # six clients, of which four may have kept their pieces
        assert client.exactly(len(DATA) + 8) == b"head" + DATA + b"tail"
    assert sum(make.again for make in makers)
    for client in stalled:
        client.close()
    until(lambda: held.total == 0)
