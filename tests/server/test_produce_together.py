"""Small produce requests of many connections share one append for each partition, and get the same responses as if
each had come alone."""

import random
import struct
import threading

import pytest

from kafkapy.errors import Errors
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.results import BUSY
from kafkapy.protocol.apis import PRODUCE
from kafkapy.server.producing.gather import Gather
from tests.harness.wire import Wire
from tests.server.lab import LONG, held, turns_of
from tests.server.requests import VERSION, batch, end_offset, fetch_values, make_topic, produce, request, start_broker


@pytest.fixture
def server(tmp_path):
    running = start_broker(tmp_path / "together", broker_id=0, num_network_threads=1, num_partitions=1)
    yield running
    running.stop()


@pytest.fixture
def wires(server):
    connections = [Wire(server.bootstrap_servers) for _ in range(40)]
    make_topic(connections[0], "a")
    make_topic(connections[0], "b")
    for wire in connections:  # so that the processor has accepted all connections
        produce(wire, "a", batch(b"there"))
    yield connections
    for wire in connections:
        wire.close()


@pytest.fixture
def gathers(monkeypatch):
    """Return a list that gets the number of connections of each gather."""
    return turns_of(PRODUCE, monkeypatch)


def answer(wire):
    return wire.receive(PRODUCE, VERSION)[1].responses[0].partition_responses[0]


def test_one_append_for_all(server, wires, gathers, monkeypatch):
    appends = []

    def append(log, sets, *args, **kwargs):
        appends.append(len(sets))
        return plain(log, sets, *args, **kwargs)

    plain = PartitionLog.append
    monkeypatch.setattr(PartitionLog, "append", append)
    with held(server):
        for number, wire in enumerate(wires):
            wire.send(PRODUCE, VERSION, request("b", batch(b"%d" % number)))
    answers = [answer(wire) for wire in wires]
    assert [one.error_code for one in answers] == [Errors.NONE] * 40
    assert sorted(one.base_offset for one in answers) == list(range(40))
    assert gathers == [40]
    assert appends == [40]
    values = fetch_values(wires[0], "b")
    assert [values[one.base_offset] for one in answers] == [b"%d" % number for number in range(40)]


def kinds(number):
    """Return {kind of request: (request, its error code, the values that it appends to topic b)}."""
    good = batch(b"%d" % number)
    damaged = bytearray(good)
    damaged[-1] ^= 1
    return {
        "good": (request("b", good), Errors.NONE, [b"%d" % number]),
        "all": (request("b", good, acks=-1), Errors.NONE, [b"%d" % number]),
        "zstd": (request("b", batch(b"%d" % number, codec=4)), Errors.NONE, [b"%d" % number]),
        "other": (request("a", good), Errors.NONE, []),
        "large": (request("b", batch(b"%d" % number * 20_000)), Errors.NONE, [b"%d" % number * 20_000]),
        "unknown": (request("nowhere-at-all", good, index=7), Errors.UNKNOWN_TOPIC_OR_PARTITION, []),
        "damaged": (request("b", bytes(damaged)), Errors.CORRUPT_MESSAGE, []),
        "acks": (request("b", good, acks=2), Errors.INVALID_REQUIRED_ACKS, []),
        "null": (request("b", None), Errors.INVALID_RECORD, []),
        "internal": (request("__consumer_offsets", good), None, []),
    }


@pytest.mark.parametrize("seed", range(6))
def test_each_answer_is_that_of_a_request_that_came_alone(server, wires, gathers, seed):
    source = random.Random(seed)
    asked = []
    with held(server):
        for number, wire in enumerate(wires):
            chosen = source.choices(list(kinds(number)), k=source.randint(1, 3))
            requests = [kinds(number)[kind] for kind in chosen]
            for message, _, _ in requests:
                wire.send(PRODUCE, VERSION, message)
            asked.append((chosen, requests))
    alone = Wire(server.bootstrap_servers)
    expected = []
    for wire, (chosen, requests) in zip(wires, asked, strict=True):
        for kind, (message, error, values) in zip(chosen, requests, strict=True):
            got = answer(wire)
            if error is None:
                error = alone.call(PRODUCE, VERSION, message).responses[0].partition_responses[0].error_code
            assert (kind, got.error_code) == (kind, error)
            if values:
                expected.append((got.base_offset, values[0]))
    assert fetch_values(alone, "b") == [value for _, value in sorted(expected)]
    assert sum(gathers) > 5
    alone.close()


def test_a_connection_that_wants_no_answer_is_closed_by_its_failure_alone(server, wires, gathers):
    with held(server):
        for wire in wires[:3]:
            wire.send(PRODUCE, VERSION, request("b", batch(b"x")))
        wires[3].send(PRODUCE, VERSION, request("nowhere-at-all", batch(b"x"), acks=0))
        wires[4].send(PRODUCE, VERSION, request("b", batch(b"y"), acks=0))
    assert [answer(wire).error_code for wire in wires[:3]] == [Errors.NONE] * 3
    assert wires[3].closed()
    assert produce(wires[4], "b", batch(b"z")).error_code == Errors.NONE
    assert end_offset(wires[0], "b") == 5


def test_a_failure_with_acks_0_does_not_suppress_the_earlier_response(server, wires):
    with held(server):
        wires[0].send(PRODUCE, VERSION, request("b", batch(b"x")))
        wires[1].send(PRODUCE, VERSION, request("b", batch(b"y")))
        wires[1].send(PRODUCE, VERSION, request("nowhere-at-all", batch(b"z"), acks=0))
    assert answer(wires[0]).error_code == answer(wires[1]).error_code == Errors.NONE
    assert wires[1].closed()


def test_a_frame_that_breaks_the_protocol_closes_its_own_connection(server, wires, gathers):
    broken = struct.pack(">hhi", PRODUCE.key, VERSION, 1) + b"\xff" * 20
    with held(server):
        wires[0].send(PRODUCE, VERSION, request("b", batch(b"x")))
        wires[1].socket.sendall(struct.pack(">i", len(broken)) + broken)
        wires[2].send(PRODUCE, VERSION, request("b", batch(b"y")))
    assert answer(wires[0]).error_code == answer(wires[2]).error_code == Errors.NONE
    assert wires[1].closed()


def test_a_connection_whose_requests_cannot_be_handled_is_closed_alone(server, wires, gathers, monkeypatch):
    def take(self, frame, topic, *args):
        if topic == "a":
            raise RuntimeError("an unforeseen error")
        return plain(self, frame, topic, *args)

    plain = Gather._take
    monkeypatch.setattr(Gather, "_take", take)
    with held(server):
        for wire, topic in zip(wires[:4], "babb", strict=True):
            wire.send(PRODUCE, VERSION, request(topic, batch(b"x")))
    assert [answer(wires[number]).error_code for number in (0, 2, 3)] == [Errors.NONE] * 3
    assert wires[1].closed()
    assert gathers == [4]


def test_appends_that_wait_delay_only_the_requests_they_belong_to(server, wires, gathers, monkeypatch):
    released = threading.Event()
    plain = PartitionLog.append

    def append(log, *args, **kwargs):
        if log.name == "b-0":
            if kwargs.get("blocking") is False:
                return BUSY
            released.wait(LONG)
        return plain(log, *args, **kwargs)

    monkeypatch.setattr(PartitionLog, "append", append)
    with held(server):
        for wire, topic in zip(wires[:4], "abab", strict=True):
            wire.send(PRODUCE, VERSION, request(topic, batch(b"x")))
    assert [answer(wires[number]).error_code for number in (0, 2)] == [Errors.NONE] * 2
    released.set()
    assert [answer(wires[number]).error_code for number in (1, 3)] == [Errors.NONE] * 2
    assert gathers == [4]
