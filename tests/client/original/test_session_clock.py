"""The session clock notices that the process was paused."""

import threading

import pytest

from kafkapy.client.original.consuming.session_clock import SessionClock
from kafkapy.client.original.consuming.streams import SLICE, OwnedPartition, Stream
from tests.client.original.test_streams import batch, put
from tests.harness.waiting import eventually


class Machine:
    """A machine whose clock the test moves, and the state of its session in ZooKeeper."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timeout_s = 6.0
        self.alive = True
        self.asked = 0
        self.clock = SessionClock("g_one", lambda: self.timeout_s, self.ask, clock=lambda: self.now)

    def ask(self) -> bool:
        self.asked += 1
        return self.alive

    def pass_time(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_ticking_clock_sends_no_request_to_zookeeper(machine: Machine) -> None:
    for _ in range(100):
        machine.pass_time(2.0)
        assert machine.clock.is_good()
        machine.clock.tick()
    assert machine.asked == 0


def test_after_a_pause_the_clock_is_good_once_zookeeper_confirms_the_session(machine: Machine) -> None:
    machine.pass_time(3.5)  # a ping may have been due since 2 s: 6 s without one is the end of the session
    assert not machine.clock.is_good()
    machine.alive = False
    machine.clock.tick()
    machine.clock.tick()
    assert not machine.clock.is_good()
    machine.alive = True
    machine.clock.tick()
    assert machine.clock.is_good()
    assert machine.asked == 3


def test_a_shorter_session_time_out_makes_the_clock_doubt_the_session_sooner(machine: Machine) -> None:
    machine.timeout_s = 2.0  # the time-out that ZooKeeper granted after the connection was lost
    machine.pass_time(0.5)
    machine.clock.tick()
    machine.pass_time(0.9)
    assert machine.clock.is_good()
    machine.pass_time(0.2)
    assert not machine.clock.is_good()


def test_a_pause_during_the_request_to_zookeeper_is_noticed(machine: Machine) -> None:
    machine.pass_time(10.0)

    def stopped_after_the_answer() -> bool:
        machine.pass_time(10.0)
        return True

    machine.clock._is_alive = stopped_after_the_answer
    machine.clock.tick()
    assert not machine.clock.is_good()


def test_after_a_pause_a_stream_delivers_at_most_a_slice_until_the_session_is_confirmed(
    machine: Machine,
) -> None:
    stream = Stream(-1, may_read=machine.clock.is_good)
    one, two = OwnedPartition(("t", "0"), stream, 0), OwnedPartition(("t", "1"), stream, 0)
    put(stream, one, batch(0, 10 * SLICE), 0)
    put(stream, two, batch(0, 1), 0)
    got = [next(stream).offset]
    machine.pass_time(100.0)
    reader = threading.Thread(target=lambda: got.extend(record.offset for record in stream), daemon=True)
    reader.start()
    eventually(lambda: len(got) == SLICE)
    reader.join(0.2)
    assert len(got) == SLICE
    assert one.consumed == SLICE
    stream.revoke([one])  # the session had expired, and the other partition was claimed in the next one
    machine.clock.tick()
    eventually(lambda: len(got) == SLICE + 1)
    assert got == [*range(SLICE), 0]
    assert one.consumed == SLICE
    stream.close()
    reader.join(10)
    assert not reader.is_alive()


def test_after_a_pause_no_chunk_is_delivered_until_the_session_is_confirmed(machine: Machine) -> None:
    stream = Stream(may_read=machine.clock.is_good)
    owned = OwnedPartition(("t", "0"), stream, 0)
    put(stream, owned, batch(0, 5), 0)
    machine.pass_time(100.0)
    assert stream.next_chunk(0.0) is None
    machine.clock.tick()
    assert stream.next_chunk(0.0) is not None


def test_waiting_for_the_session_ends_with_the_stream_and_at_the_time_out(machine: Machine) -> None:
    stream = Stream(may_read=machine.clock.is_good)
    put(stream, OwnedPartition(("t", "0"), stream, 0), batch(0, 5), 0)
    machine.pass_time(100.0)
    closing = threading.Timer(0.05, stream.close)
    closing.start()
    assert list(stream) == []
    closing.join()
