"""connections.max.idle.ms under a manual clock."""

from kafkapy.network.connection import Connection
from kafkapy.network.idle import IdleConnections
from kafkapy.network.replies import Pending, Reply
from kafkapy.runtime.clock import ManualClock

from .conftest import Client, Echo, Running, Serve, framed, until


def pass_time(running: Running, clock: ManualClock, seconds: float) -> None:
    """Advance the clock, and return when the network has checked the new time."""
    turns = running.count("network_turns")
    clock.advance(seconds)
    until(lambda: running.count("network_turns") > turns)


def test_idle_connections_are_closed_and_active_ones_stay(serve: Serve) -> None:
    clock = ManualClock()
    running = serve(clock=clock, connections_max_idle_ms=10_000)
    idle, active = running.connect(), running.connect()
    assert idle.is_open()
    assert active.is_open()
    pass_time(running, clock, 6)
    assert active.is_open()
    pass_time(running, clock, 5)
    assert idle.is_closed()
    assert active.is_open()
    pass_time(running, clock, 11)
    assert active.is_closed()
    assert running.count("network_connections_closed_idle") == 2


def test_a_connection_that_sent_nothing_or_half_a_frame_is_idle_too(serve: Serve) -> None:
    clock = ManualClock()
    running = serve(clock=clock, connections_max_idle_ms=10_000)
    silent, half = running.connect(), running.connect()
    half.sock.sendall(b"\0\0\0\x09abc")
    until(lambda: running.count("network_bytes_in") == 7)
    until(lambda: running.server.connections == 2)
    pass_time(running, clock, 11)
    assert silent.is_closed()
    assert half.is_closed()


def test_a_reader_that_stopped_in_the_middle_of_a_reply_is_idle(serve: Serve) -> None:
    class Large(Echo):
        def answer(self, connection: Connection, frame: bytes) -> Reply:
            return [bytes(20_000_000)]

    clock = ManualClock()
    running = serve(Large(), clock=clock, connections_max_idle_ms=10_000)
    client = running.connect(receive_buffer=4096)
    client.send(b"go")
    until(lambda: running.count("network_bytes_out") > 0)
    pass_time(running, clock, 11)
    until(lambda: running.server.connections == 0)


class Later(Echo):
    """A handler whose requests wait until the test completes `pending`."""

    pending: Pending | None = None

    def answer(self, connection: Connection, frame: bytes) -> Reply:
        self.pending = Pending(connection)
        return self.pending


def with_pending_request(serve: Serve, clock: ManualClock) -> tuple[Running, Client]:
    """Return a server with a request that waits in `Later`, and the client that sent the request."""
    running = serve(Later(), clock=clock, connections_max_idle_ms=10_000)
    client = running.connect()
    client.send(b"wait")
    until(lambda: running.handler.pending is not None)
    return running, client


def test_a_reply_that_was_waited_for_counts_as_activity(serve: Serve) -> None:
    clock = ManualClock()
    running, client = with_pending_request(serve, clock)
    pass_time(running, clock, 9)
    first = running.handler.pending
    first.complete([framed(b"at last")])
    assert client.frame() == b"at last"
    pass_time(running, clock, 8)  # 17 seconds after the request, 8 after the reply
    client.send(b"again")
    until(lambda: running.handler.pending is not first)


def test_a_connection_with_a_pending_request_is_not_idle(serve: Serve) -> None:
    clock = ManualClock()
    running, client = with_pending_request(serve, clock)
    pass_time(running, clock, 100)
    pass_time(running, clock, 100)
    running.handler.pending.complete([framed(b"at last")])
    assert client.frame() == b"at last"
    pass_time(running, clock, 11)
    assert client.is_closed()


def test_a_negative_time_means_never(serve: Serve) -> None:
    clock = ManualClock()
    running = serve(clock=clock, connections_max_idle_ms=-1)
    client = running.connect()
    assert client.is_open()
    pass_time(running, clock, 1e9)
    assert client.is_open()


def test_an_idle_network_sleeps(serve: Serve) -> None:
    """Only the clock wakes the network thread: there are no periodic checks of connections."""
    clock = ManualClock()
    running = serve(clock=clock)
    clients = [running.connect() for _ in range(20)]
    assert all(client.is_open() for client in clients)
    until(lambda: running.server._processors[0]._timeout_ms() > 500_000)


def test_a_disconnected_peer_with_a_pending_request_is_idle_though_it_sent_more(serve: Serve) -> None:
    """Requests after the pending one keep the connection open, but not for the weeks that a fetch may wait."""
    clock = ManualClock()
    running, client = with_pending_request(serve, clock)
    client.send(b"more")
    client.close()
    (connection,) = running.handler.connections.values()
    until(lambda: connection.gone)
    pass_time(running, clock, 11)
    until(lambda: running.server.connections == 0)
    assert running.handler.pending.cancelled


def test_connections_that_are_gone_are_not_kept_until_they_would_have_been_idle() -> None:
    class Known:
        pending, parked, starved, gone, may_be_idle, last_active = None, False, False, False, False, 0.0

        def __init__(self, id: int, closed: bool) -> None:
            self.id, self.closed = id, closed

    idle = IdleConnections(600)
    idle.add(Known(0, closed=False))  # the oldest connection is still open, so that no later one is checked
    for id in range(1, 20_000):
        idle.add(Known(id, closed=True))
    assert len(idle) < 5000
    assert [one.id for one in idle.expired(600)] == [0]
