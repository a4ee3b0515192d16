"""Replies leave in the order of the requests, whichever thread completes them and whenever it does."""

import random
import threading
from collections.abc import Sequence
from typing import ClassVar

import pytest

from kafkapy.network.connection import Connection
from kafkapy.network.replies import CLOSE, NO_REPLY, Last, Pending, Reply, Timed

from .conftest import LONG, Echo, Serve, framed, until


class Later(Echo):
    """Frames that begin with "p" are pending until the test completes them."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: dict[bytes, Pending] = {}
        self.cancelled: list[bytes] = []
        self.waiting = threading.Semaphore(0)

    def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
        self.connections[connection.id] = connection
        self.turns.append([bytes(frame) for frame in frames])
        replies: list[Reply] = []
        for frame in self.turns[-1]:
            if frame.startswith(b"p"):
                pending = Pending(connection, lambda frame=frame: self.cancelled.append(frame))
                self.pending[frame] = pending
                replies.append(pending)
                self.waiting.release()
                break
            replies.append([framed(frame)])
        return replies

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.waiting.acquire(timeout=LONG)

    def complete(self, frame: bytes) -> bool:
        return self.pending[frame].complete([framed(frame)])


def test_frames_after_a_pending_one_wait_and_are_handled_again(serve: Serve) -> None:
    running = serve(Later())
    client = running.connect()
    client.send(b"a", b"p1", b"b", b"p2", b"c")
    running.handler.wait()
    assert client.frame() == b"a"
    running.handler.complete(b"p1")
    assert client.frames(2) == [b"p1", b"b"]
    running.handler.wait()
    client.send(b"d")
    running.handler.complete(b"p2")
    assert client.frames(3) == [b"p2", b"c", b"d"]
    assert [turn[0] for turn in running.handler.turns] == [b"a", b"b", b"c"] + [b"d"] * (len(running.handler.turns) - 3)


def test_a_pending_reply_for_several_frames_answers_all_and_none_is_handled_again(serve: Serve) -> None:
    """A waiting gathered append contains all its requests: handling them again would append them twice."""

    class Gathering:
        seen: ClassVar[list[bytes]] = []

        def handle(self, conn: Connection, frames: list[memoryview]) -> list[Reply]:
            arrived = [bytes(frame) for frame in frames]
            self.seen.extend(arrived)
            if len(frames) < 3:
                return [[framed(frame)] for frame in arrived]
            pending = Pending(conn)
            pending.covers = len(frames) - 1
            threading.Thread(target=pending.complete, args=([framed(*arrived[1:])],)).start()
            return [[framed(arrived[0])], pending]

    client = serve(Gathering()).connect()
    client.send(b"one", b"two", b"three", b"four")
    assert client.frames(4) == [b"one", b"two", b"three", b"four"]
    client.send(b"five")
    assert client.frame() == b"five"
    assert Gathering.seen == [b"one", b"two", b"three", b"four", b"five"]


def test_pendings_completed_out_of_order_by_other_threads_keep_each_connections_order(serve: Serve) -> None:
    """Twenty connections pipeline; four threads complete the pending replies, in random order, after a random time."""

    class Shuffled(Echo):
        def __init__(self) -> None:
            super().__init__()
            self.waiting: list[tuple[Pending, bytes]] = []
            self.more = threading.Semaphore(0)
            self.stop = False

        def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
            replies: list[Reply] = []
            for frame in frames:
                if frame[-1] % 3 == 0:
                    pending = Pending(connection)
                    replies.append(pending)
                    self.waiting.append((pending, bytes(frame)))
                    self.more.release()
                    break
                replies.append([framed(bytes(frame))])
            return replies

        def work(self) -> None:
            rng = random.Random(threading.get_ident())
            while True:
                self.more.acquire()
                if self.stop:
                    return
                pending, frame = self.waiting.pop(rng.randrange(-1, 1))
                if rng.random() < 0.5:
                    pending.complete([framed(frame)])
                else:
                    pending.complete_with(lambda frame=frame: [framed(frame)])

    handler = Shuffled()
    running = serve(handler, num_network_threads=2)
    workers = [threading.Thread(target=handler.work) for _ in range(4)]
    for worker in workers:
        worker.start()
    clients = [running.connect() for _ in range(20)]
    rng = random.Random(7)
    expected = [[rng.randbytes(rng.choice([4, 40, 20_000])) for _ in range(60)] for _ in clients]
    senders = [client.send_aside(*frames) for client, frames in zip(clients, expected, strict=True)]
    for client, frames in zip(clients, expected, strict=True):
        assert client.frames(60) == frames
    for sender in senders:
        sender.join()
    handler.stop = True
    for _ in workers:
        handler.more.release()
    for worker in workers:
        worker.join()


def test_a_pending_may_be_completed_before_the_handler_returns_it(serve: Serve) -> None:
    class AtOnce(Echo):
        def answer(self, connection: Connection, frame: bytes) -> Reply:
            pending = Pending(connection)
            if frame == b"thread":
                thread = threading.Thread(target=pending.complete, args=([framed(frame)],))
                thread.start()
                thread.join()
            else:
                assert pending.complete([framed(frame)])
                assert not pending.complete([framed(b"again")])
            return pending

        def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
            return super().handle(connection, frames[:1])

    client = serve(AtOnce()).connect()
    client.send(b"same", b"thread", b"same")
    assert client.frames(3) == [b"same", b"thread", b"same"]


def test_a_dead_peer_cancels_its_pending_request(serve: Serve) -> None:
    running = serve(Later())
    client, other = running.connect(), running.connect()
    client.send(b"p1")
    running.handler.wait()
    client.close()
    until(lambda: running.handler.cancelled == [b"p1"])  # a moment after the connection is no longer counted
    assert running.handler.pending[b"p1"].cancelled
    assert running.server.connections == 1
    running.handler.complete(b"p1")
    assert other.is_open()


def test_a_reset_cancels_even_with_requests_behind(serve: Serve) -> None:
    running = serve(Later())
    client = running.connect()
    client.send(b"a", b"p1")
    running.handler.wait()
    until(lambda: bool(client.sock.recv(1, 2)))  # MSG_PEEK: the unread reply makes the close a reset
    client.send(b"b")
    client.close()
    until(lambda: running.handler.cancelled == [b"p1"])


def test_requests_sent_before_the_peer_left_are_handled_after_a_pending_one(serve: Serve) -> None:
    running = serve(Later())
    client = running.connect()
    client.send(b"p1", b"fire", b"and forget")
    running.handler.wait()
    client.close()
    assert not running.handler.pending[b"p1"].cancelled
    running.handler.complete(b"p1")
    until(lambda: running.server.connections == 0)
    assert [b"fire", b"and forget"] in running.handler.turns


def test_the_buffer_of_a_pending_request_that_keeps_it_stays_as_it_is(serve: Serve) -> None:
    class Keeping(Echo):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[tuple[Pending, memoryview]] = []

        def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
            if frames[0][:1] != b"k":
                return super().handle(connection, frames)
            pending = Pending(connection)
            pending.keeps_buffer = True
            self.kept.append((pending, frames[0]))
            return [pending]

    handler = Keeping()
    running = serve(handler)
    payloads = [b"k" + random.Random(i).randbytes(size) for i, size in enumerate([10, 500, 20_000, 100_000, 2_000_000])]
    clients = [running.connect() for _ in payloads]
    for client, payload in zip(clients, payloads, strict=True):
        client.send(payload, b"behind")
    until(lambda: len(handler.kept) == len(payloads))
    other = running.connect()
    for size in (10, 20_000, 100_000, 2_000_000):  # the same kinds of buffers are used meanwhile
        sender = other.send_aside(b"x" * size)
        assert len(other.frame()) == size
        sender.join()
    by_size = {len(view): (pending, view) for pending, view in handler.kept}
    for client, payload in zip(clients, payloads, strict=True):
        pending, view = by_size[len(payload)]
        assert bytes(view) == payload
        pending.complete([framed(bytes(view))])
        assert client.frames(2) == [payload, b"behind"]


def test_no_reply_sends_nothing_and_close_follows_the_earlier_replies(serve: Serve) -> None:
    class Words(Echo):
        def answer(self, connection: Connection, frame: bytes) -> Reply:
            return {b"none": NO_REPLY, b"close": CLOSE}.get(frame, [framed(frame)])

        def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
            replies = super().handle(connection, frames)
            return replies[: replies.index(CLOSE) + 1] if CLOSE in replies else replies

    client = serve(Words()).connect()
    client.send(b"none", b"a", b"none", b"b" * 1_000_000, b"close", b"never")
    assert client.frames(2) == [b"a", b"b" * 1_000_000]
    assert client.is_closed()


def test_on_sent_is_called_when_the_last_byte_is_sent(serve: Serve) -> None:
    class Measured(Echo):
        def __init__(self) -> None:
            super().__init__()
            self.sent: list[bytes] = []

        def answer(self, connection: Connection, frame: bytes) -> Reply:
            if frame == b"plain":
                return [framed(frame)]
            return Timed(
                [framed(frame * 3_000_000)] if frame == b"L" else [framed(frame)], lambda: self.sent.append(frame)
            )

    running = serve(Measured())
    client = running.connect(receive_buffer=4096)
    client.send(b"a", b"plain", b"L", b"b")
    assert client.frames(2) == [b"a", b"plain"]
    until(lambda: running.handler.sent == [b"a"])
    assert client.frames(2) == [b"L" * 3_000_000, b"b"]
    until(lambda: running.handler.sent == [b"a", b"L", b"b"])


@pytest.mark.parametrize(
    "replies",
    [
        lambda connection: [],
        lambda connection: [NO_REPLY, NO_REPLY, NO_REPLY],
        lambda connection: [None, None],
        lambda connection: [CLOSE, [framed(b"late")]],
        lambda connection: [Pending(connection), [framed(b"late")]],
        lambda connection: 1 // 0,
    ],
)
def test_a_handler_that_breaks_its_contract_closes_only_its_connection(serve: Serve, caplog, replies) -> None:
    class Broken(Echo):
        def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
            return replies(connection) if frames[0] == b"break" else super().handle(connection, frames)

    running = serve(Broken())
    client, other = running.connect(), running.connect()
    client.send(b"break", b"it")
    assert client.is_closed()
    assert "closed a connection" in caplog.text
    assert other.is_open()


def test_a_pending_completed_with_nonsense_or_an_error_closes(serve: Serve, caplog) -> None:
    running = serve(Later())
    for name, complete in {
        b"p1": lambda pending: pending.complete(pending),
        b"p2": lambda pending: pending.complete("text"),
        b"p3": lambda pending: pending.complete_with(lambda: 1 // 0),
        b"p4": lambda pending: pending.complete(CLOSE),
    }.items():
        client = running.connect()
        client.send(name)
        running.handler.wait()
        complete(running.handler.pending[name])
        assert client.is_closed()
    assert caplog.text.count("its pending request failed") == 3


def test_on_close_is_called_once(serve: Serve) -> None:
    running = serve()
    client = running.connect()
    assert client.is_open()
    (connection,) = running.handler.connections.values()
    assert connection.peer == client.sock.getsockname()
    assert connection.listener == "PLAINTEXT"
    assert connection.name.startswith(f"127.0.0.1:{running.port}-127.0.0.1:{connection.peer[1]}-")
    closed: list[bool] = []
    connection.on_close = lambda: closed.append(connection.closed)
    client.close()
    until(lambda: closed == [True])
    until(lambda: connection.on_close is None)  # otherwise it and the connection would be a reference cycle


def test_frames_that_a_handler_leaves_are_handled_when_its_replies_are_sent(serve: Serve) -> None:
    class Two(Echo):
        def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
            return super().handle(connection, frames[:2])

    running = serve(Two())
    client = running.connect()
    payloads = [b"%d" % number for number in range(99)]
    client.send(*payloads)
    assert client.frames(99) == payloads
    assert max(len(turn) for turn in running.handler.turns) == 2
    assert client.is_open()


def test_a_handler_that_answers_no_frame_closes_the_connection(serve: Serve) -> None:
    class Nothing(Echo):
        def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
            return []

    client = serve(Nothing()).connect()
    client.send(b"hello?")
    assert client.is_closed()


class Acks(Later):
    """A handler whose replies to other frames come when it has handled a frame "done", which completes all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.sent_before: list[int] = []

    def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
        if bytes(frames[0]) == b"done":
            outgoing = connection.processor
            before = outgoing.bytes_out
            for frame, pending in list(self.pending.items()):
                pending.complete([framed(frame)], at_once=True)
                self.sent_before.append(outgoing.bytes_out - before)
        return super().handle(connection, frames)


def test_a_reply_that_is_completed_at_once_is_sent_before_the_handler_returns(serve: Serve) -> None:
    running = serve(Acks())
    waiting, other = running.connect(), running.connect()
    waiting.send(b"p1")
    running.handler.wait()
    other.send(b"done")
    assert (waiting.frame(), other.frame()) == (b"p1", b"done")
    assert running.handler.sent_before == [len(framed(b"p1"))]


def test_only_some_replies_are_sent_at_once_and_the_others_soon_after(serve: Serve) -> None:
    running = serve(Acks())
    waiting = {f"p{number}".encode(): running.connect() for number in range(20)}
    for frame, client in waiting.items():
        client.send(frame)
    running.handler.wait(20)
    other = running.connect()
    other.send(b"done")
    assert other.frame() == b"done"
    assert [client.frame() for client in waiting.values()] == list(waiting)
    assert len(set(running.handler.sent_before)) == 16  # from then on nothing more is sent during the call


def test_a_thread_of_its_own_may_complete_a_request_at_once(serve: Serve) -> None:
    running = serve(Acks())
    client = running.connect()
    client.send(b"p1")
    running.handler.wait()
    assert running.handler.pending[b"p1"].complete([framed(b"from afar")], at_once=True)
    assert client.frame() == b"from afar"


def test_a_request_that_is_completed_at_once_before_it_is_pending_is_answered(serve: Serve) -> None:
    class Early(Later):
        def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
            pending = Pending(connection)
            pending.complete([framed(b"early")], at_once=True)
            return [pending]

    client = serve(Early()).connect()
    client.send(b"any")
    assert client.frame() == b"early"


@pytest.mark.parametrize("later", [False, True])
def test_a_last_reply_is_sent_and_then_the_connection_is_closed(serve: Serve, later: bool) -> None:
    running = serve(Later())
    if not later:
        running.handler.handle = lambda connection, frames: [Last([framed(b"the end")])]
    client = running.connect()
    client.send(b"p", b"not handled")
    if later:
        running.handler.wait()
        running.handler.pending[b"p"].complete(Last([framed(b"the end")]))
    assert client.frame() == b"the end"
    assert client.sock.recv(1) == b""
    assert [turn[0] for turn in running.handler.turns] == ([b"p"] if later else [])
