"""queued.max.request.bytes: large requests wait for memory, in order, and never for each other."""

from __future__ import annotations

import gc
import random
import struct
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkapy.network.connection import Connection
from kafkapy.network.replies import CLOSE, Pending, Reply
from kafkapy.network.request_memory import LOGIN, NO_LIMIT, OTHER, PRODUCE, RequestMemory
from kafkapy.network.settings import NetworkSettings
from kafkapy.runtime.clock import ManualClock
from tests.harness.examples import examples

from .conftest import Client, Echo, Running, Serve, framed, until

MIB = 1 << 20
LIMIT = 4 * MIB


def produce(size: int, seed: int = 0) -> bytes:
    """Return a request that begins as a Produce request does."""
    return b"\0\0" + random.Random(seed).randbytes(size - 2)


def other(size: int) -> bytes:
    return b"\0\1" + bytes(size - 2)


class Keeping(Echo):
    """Keeps the buffers of Produce requests until `answer_all`; answers all other requests with their size."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[Pending, memoryview, bytes]] = []

    def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
        self.connections[connection.id] = connection
        if frames[0][:2] != b"\0\0":
            return [[framed(struct.pack(">i", len(frame)))] for frame in frames]
        pending = Pending(connection)
        pending.keeps_buffer = True
        self.kept.append((pending, frames[0], bytes(frames[0])))
        return [pending]

    def answer_all(self, reply: Reply | None = None) -> None:
        kept, self.kept = self.kept, []
        for pending, view, before in kept:
            assert bytes(view) == before
            pending.complete(reply or [framed(struct.pack(">i", len(view)))])

    def answered(self, client: Client) -> int:
        return struct.unpack(">i", client.frame())[0]


def serving(serve: Serve, handler: Echo, **kwargs) -> Running:
    kwargs.setdefault("queued_max_request_bytes", LIMIT)
    return serve(handler, connections_max_idle_ms=-1, **kwargs)


def waiting(running: Running, count: int) -> None:
    until(lambda: running.count("network_memory_waiting") == count)


@pytest.mark.parametrize("threads", [1, 2])
def test_large_requests_wait_until_others_are_answered_in_the_order_in_which_they_came(
    serve: Serve, threads: int
) -> None:
    handler = Keeping()
    running = serving(serve, handler, num_network_threads=threads)
    clients = [running.connect() for _ in range(6)]
    for number, client in enumerate(clients):
        client.send_aside(produce(3 * MIB, number))
        # The second may exceed the limit, since something was left.
        until(lambda n=number: len(handler.kept) + running.count("network_memory_waiting") == n + 1)
    assert len(handler.kept) == 2
    assert running.count("network_memory_used_bytes") == 2 * (3 * MIB + 4)
    assert running.count("network_memory_available_bytes") == LIMIT - 2 * (3 * MIB + 4)
    for number in (0, 2, 4):
        handler.answer_all()
        for client in clients[number : number + 2]:
            assert handler.answered(client) == 3 * MIB
        until(lambda n=number: len(handler.kept) == min(2, 4 - n))
    assert running.count("network_memory_used_bytes") == running.count("network_memory_waiting") == 0
    assert running.count("network_memory_depleted_seconds") > 0


def test_small_requests_and_those_of_brokers_do_not_wait_for_produce_requests(serve: Serve) -> None:
    handler = Keeping()
    running = serving(serve, handler)
    for number in range(3):
        running.connect().send_aside(produce(3 * MIB, number))
    waiting(running, 1)
    for size in (50, 16_000, 20_000, 3 * MIB):
        client = running.connect()
        client.send_aside(other(size))
        assert handler.answered(client) == size


def test_requests_other_than_produce_requests_have_a_limit_as_well(serve: Serve) -> None:
    running = serving(serve, Keeping())
    part = struct.pack(">i", 3 * MIB) + other(20_000)
    clients = [running.connect() for _ in range(4)]
    for client in clients:
        client.sock.sendall(part)
    waiting(running, 1)  # 3 of them reserve 9 MiB, which is above twice the limit
    clients[0].sock.sendall(bytes(3 * MIB - 20_000))
    waiting(running, 0)


def test_connections_that_wait_for_memory_can_be_closed(serve: Serve) -> None:
    handler = Keeping()
    running = serving(serve, handler)
    holders = [running.connect() for _ in range(2)]
    for number, client in enumerate(holders):
        client.send_aside(produce(3 * MIB, number))
    until(lambda: len(handler.kept) == 2)
    gone = [running.connect() for _ in range(5)]
    for client in gone:
        client.sock.sendall(struct.pack(">i", 3 * MIB) + produce(20_000))
    waiting(running, 5)
    last = running.connect()
    last.send_aside(produce(3 * MIB, 9))
    waiting(running, 6)
    for client in gone:
        client.sock.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER: a reset, so that the server knows at once
        client.close()
    waiting(running, 1)
    handler.answer_all()
    until(lambda: len(handler.kept) == 1)
    handler.answer_all()
    assert handler.answered(last) == 3 * MIB
    assert running.count("network_memory_used_bytes") == 0


def test_a_buffer_that_another_thread_still_reads_is_counted_after_its_connection_was_closed(serve: Serve) -> None:
    handler = Keeping()
    running = serving(serve, handler, num_network_threads=1)
    for reply in (CLOSE, None):
        client = running.connect()
        client.send_aside(produce(3 * MIB))
        until(lambda: len(handler.kept) == 1)
        if reply is None:
            client.close()  # the peer closes, and the request is still being handled
        else:
            handler.kept[0][0].complete(reply)
        until(lambda: running.server.connections == 0)
        assert running.count("network_memory_used_bytes") == 3 * MIB + 4
        handler.kept.clear()
        gc.collect()
        until(lambda: running.count("network_memory_used_bytes") == 0)


def test_a_small_request_that_keeps_the_shared_buffer_is_counted(serve: Serve) -> None:
    handler = Keeping()
    running = serving(serve, handler)
    client = running.connect()
    # The next request, a large one, begins in the same receive. It is not read before the first is answered, and
    # reserves nothing until then.
    client.send_aside(produce(1000), produce(2 * MIB))
    until(lambda: len(handler.kept) == 1)
    until(lambda: running.count("network_memory_used_bytes") == 64 << 10)
    handler.answer_all()
    until(lambda: len(handler.kept) == 1)
    assert running.count("network_memory_used_bytes") == 2 * MIB + 4
    handler.answer_all()
    assert [handler.answered(client) for _ in range(2)] == [1000, 2 * MIB]
    assert running.count("network_memory_used_bytes") == 0


def test_half_sent_requests_do_not_wait_for_each_other(serve: Serve) -> None:
    """More is claimed than there may be, and each request is complete only if it can go on without the others."""
    running = serving(serve, Echo())
    payloads = [produce(MIB, number) for number in range(12)]
    clients = [running.connect() for _ in payloads]
    for client, payload in zip(clients, payloads, strict=True):
        client.sock.sendall(framed(payload)[: MIB // 2])
    waiting(running, 8)
    senders = []
    for client, payload in zip(clients, payloads, strict=True):
        sender = threading.Thread(target=client.sock.sendall, args=(framed(payload)[MIB // 2 :],), daemon=True)
        sender.start()
        senders.append(sender)
    assert [client.frame() for client in clients] == payloads
    for sender in senders:
        sender.join()
    assert running.count("network_memory_used_bytes") == 0


def test_a_peer_that_sends_nothing_of_what_it_claims_loses_its_place_to_those_who_wait(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    running = serving(serve, Echo(), clock=clock)
    silent = [running.connect() for _ in range(2)]
    for client in silent:
        client.sock.sendall(struct.pack(">i", 3 * MIB) + produce(20_000))
    until(lambda: running.count("network_memory_used_bytes") == 2 * (3 * MIB + 4))
    clock.advance(60)
    assert not any("wait for memory" in record.message for record in caplog.records)  # no request waits
    honest = running.connect()
    payload = produce(3 * MIB, 3)
    honest.send_aside(payload)
    waiting(running, 1)
    clock.advance(1.5)
    assert honest.frame() == payload
    assert silent[0].is_closed()  # after that no request waits
    until(lambda: running.server.connections == 2)
    assert "closed a connection: it has sent 20004 of the 3145732 bytes of a request" in caplog.text


def test_without_a_setting_nothing_is_counted(serve: Serve) -> None:
    running = serving(serve, Echo(), queued_max_request_bytes=-1)
    client = running.connect()
    client.send_aside(produce(3 * MIB))
    assert len(client.frame()) == 3 * MIB
    assert running.count("network_memory_available_bytes") == NO_LIMIT
    assert running.count("network_memory_used_bytes") == 0


class FakeProcessor:
    def __init__(self) -> None:
        self.granted: list[tuple[int, int]] = []

    def post_granted(self, conn, size: int) -> None:
        self.granted.append((conn.id, size))


class FakeConnection:
    def __init__(self, id: int, processor: FakeProcessor) -> None:
        self.id = id
        self.processor = processor


def test_messages_before_the_login_use_half_of_the_limit() -> None:
    memory = RequestMemory(1000, ManualClock())
    processor = FakeProcessor()
    first, second, third = (FakeConnection(number, processor) for number in range(3))
    assert memory.reserve(first, 501, LOGIN)
    assert not memory.reserve(second, 10, LOGIN)
    assert memory.reserve(third, 10, PRODUCE)
    memory.release(501)
    assert processor.granted == [(1, 10)]
    assert memory.used == 20


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from([OTHER, PRODUCE, LOGIN]), st.integers(1, 400), st.integers(0, 5)), max_size=60
    )
)
def test_the_limits_hold_and_everybody_gets_memory_in_the_end(steps: list[tuple[int, int, int]]) -> None:
    memory = RequestMemory(1000, ManualClock())
    processor = FakeProcessor()
    held: dict[int, int] = {}
    asked: dict[int, tuple[int, int]] = {}
    order: dict[int, list[int]] = {OTHER: [], PRODUCE: [], LOGIN: []}

    def take_granted() -> None:
        for number, size in processor.granted:
            held[number] = size
            assert order[asked[number][0]].pop(0) == number
        processor.granted.clear()
        assert memory.used == sum(held.values()) <= 2000 + 400
        for kind, most in ((PRODUCE, 1000), (LOGIN, 500)):
            assert sum(size for number, size in held.items() if asked[number][0] == kind) <= most + 400

    for number, (kind, size, answered) in enumerate(steps):
        asked[number] = kind, size
        if memory.reserve(FakeConnection(number, processor), size, kind):
            held[number] = size
        else:
            order[kind].append(number)
        take_granted()
        for done in list(held)[:answered]:
            memory.release(held.pop(done))
            take_granted()
    while held:
        memory.release(held.popitem()[1])
        take_granted()
    assert not memory.has_waiting
    assert memory.used == memory.waiting == 0
    assert not any(order.values())


def test_many_large_requests_of_many_connections_come_through(serve: Serve) -> None:
    running = serving(serve, Echo(), queued_max_request_bytes=MIB, num_network_threads=2)
    rng = random.Random(4)
    payloads = {
        running.connect(): [produce(rng.choice([500, 17_000, 300_000, MIB - 8]), rng.random()) for _ in range(8)]
        for _ in range(20)
    }
    senders = [client.send_aside(*sent) for client, sent in payloads.items()]
    with ThreadPoolExecutor(len(payloads)) as readers:
        assert list(readers.map(lambda client: client.frames(8), payloads)) == list(payloads.values())
    for sender in senders:
        sender.join()
    assert running.count("network_memory_used_bytes") == 0
    assert NetworkSettings().queued_max_request_bytes == -1
