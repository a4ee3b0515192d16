"""An authorizer and quotas, as stand-ins: each request is asked about on its own, also when several are joined."""

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol.apis import FETCH, METADATA, PRODUCE
from kafkapy.server.admission import Action
from tests.server.conftest import Wire, start_broker
from tests.server.lab import held, turns_of
from tests.server.test_hostile import fetch_of
from tests.server.test_produce import VERSION, batch, end_offset, make_topic, request

MANY = 10


@pytest.fixture
def server(tmp_path):
    running = start_broker(tmp_path, num_network_threads=1, num_partitions=1)
    yield running
    running.stop()


@pytest.fixture
def wires(server):
    connections = [Wire(server) for _ in range(MANY)]
    for topic in ("open", "closed"):
        make_topic(connections[0], topic)
    for wire in connections:
        end_offset(wire, "open")
    yield connections
    for wire in connections:
        wire.close()


class Denies:
    """Denies an action, and remembers the principals."""

    def __init__(self, action):
        self.action = action
        self.principals = []

    def denied(self, call, actions):
        self.principals.append(call.connection.principal)
        return [one for one in actions if one == self.action]


class Throttles:
    """Throttles every other connection."""

    def __init__(self):
        self.counted = []
        self.throttled = []

    def throttle_time_ms(self, call, quota, size):
        self.counted.append((call.served.api.name, quota, size > 0))
        if call.connection.id % 2:
            return 0
        self.throttled.append(call.connection.id)
        return 7


def both_topics():
    message = request("open", batch(b"a"))
    message.topic_data += request("closed", batch(b"b")).topic_data
    return message


def codes(wire):
    _, response = wire.receive(PRODUCE, VERSION)
    return {one.name: one.partition_responses[0].error_code for one in response.responses}


@pytest.mark.parametrize("count", [1, MANY])
def test_a_denied_topic_is_refused_and_the_others_get_their_records(server, wires, monkeypatch, count):
    joined = turns_of(PRODUCE, monkeypatch)
    authorizer = Denies(Action("WRITE", "TOPIC", "closed"))
    monkeypatch.setattr(server.services, "authorizer", authorizer)
    with held(server):
        for wire in wires[:count]:
            wire.send(PRODUCE, VERSION, both_topics())
    for wire in wires[:count]:
        assert codes(wire) == {"open": Errors.NONE, "closed": Errors.TOPIC_AUTHORIZATION_FAILED}
    assert joined == ([MANY] if count == MANY else [])
    assert authorizer.principals == ["User:ANONYMOUS"] * count
    assert [end_offset(wires[0], topic) for topic in ("open", "closed")] == [count, 0]


def test_a_throttle_time_is_in_every_response_and_mutes_the_connection(server, wires, monkeypatch):
    joined = turns_of(PRODUCE, monkeypatch)
    quotas, muted = Throttles(), []
    (processor,) = server._network._processors
    plain = processor.mute
    monkeypatch.setattr(processor, "mute", lambda conn, until: (muted.append(conn.id), plain(conn, until)))
    monkeypatch.setattr(server.services, "quotas", quotas)
    for api, version, message, quota in (
        (PRODUCE, VERSION, request("open", batch(b"a")), "produce"),
        (FETCH, 12, fetch_of("open", [0]), "fetch"),
        (METADATA, 12, METADATA.Request(topics=[]), "request"),
    ):
        with held(server):
            for wire in wires:
                wire.send(api, version, message)
        times = [wire.receive(api, version)[1].throttle_time_ms for wire in wires]
        assert sorted(times) == [0] * (MANY // 2) + [7] * (MANY // 2)
        assert sorted(muted) == sorted(quotas.throttled)
        assert quotas.counted == [(api.name, quota, True)] * MANY
        quotas.counted.clear()
        quotas.throttled.clear()
        muted.clear()
    assert joined == [MANY]
