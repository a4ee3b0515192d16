"""One record at a time through a broker whose responses come in an order that the test chooses."""

from types import SimpleNamespace

import pytest

from kafkapy.client.security import PLAINTEXT
from kafkapy.tools.bench.board import LONGEST, SECOND_LONGEST, Board
from kafkapy.tools.bench.leaders import Place
from kafkapy.tools.bench.producing import Content
from kafkapy.tools.bench.round_trips import RoundTripJob

OFFSET = 5
CONSUMER, PRODUCER = "consumer", "producer"


@pytest.mark.parametrize(
    ("responses", "arrived", "acknowledged"),
    [
        ([PRODUCER, CONSUMER], 2, 1),
        ([CONSUMER, PRODUCER], 1, 2),
        ([CONSUMER, CONSUMER, PRODUCER], 1, 3),  # the second one has a record of another producer
    ],
)
def test_the_record_has_come_with_the_first_response_that_has_its_offset(monkeypatch, responses, arrived, acknowledged):
    job = RoundTripJob(Place("", PLAINTEXT, "t", (0,)), Content(1), 1)
    job._producer = SimpleNamespace(session_ends=False, socket=SimpleNamespace(sendall=lambda _: None))
    job._feed = SimpleNamespace(socket=object())
    job._place = SimpleNamespace(offset=OFFSET)
    job._request, job._bytes = b"", 1
    sockets = {CONSUMER: job._feed.socket, PRODUCER: job._producer.socket}
    now = 0

    def ready(_):
        nonlocal now
        now += 1
        return [sockets[responses[now - 1]]]

    def receive():
        job._place.offset += 1
        return True

    job._ready, job._receive, job._read_ack = ready, receive, lambda: OFFSET
    monkeypatch.setattr("kafkapy.tools.bench.round_trips.time.perf_counter", lambda: float(now))
    slot = Board(1).slots[0]
    slot.begin()
    job._one(slot)
    assert now == len(responses)
    assert (slot.number(LONGEST), slot.number(SECOND_LONGEST)) == (arrived * 10**9, acknowledged * 10**9)
