"""How requests count towards quotas, and how clients are throttled. The quotas' clock moves only in the tests."""

import time

import pytest

from kafkapy.errors import Errors
from kafkapy.metadata.quotas import CONSUMER, DEFAULT, MUTATION, PRODUCER, REQUEST, Entity
from kafkapy.protocol.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    METADATA,
    PRODUCE,
    STOP_REPLICA,
)
from kafkapy.protocol.headers import request_frame
from kafkapy.server.metrics.quotas import METRICS
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.lab import held, turns_of
from tests.server.requests import VERSION, batch, end_offset, fetch_request, make_topic, produce, request, start_broker

MANY = 5
CLIENT = Entity(client_id="wire")
FETCH_VERSION = 12
NO_TOPICS = METADATA.Request(topics=[])


@pytest.fixture
def server(tmp_path):
    running = start_broker(tmp_path, num_network_threads=1, num_partitions=2)
    yield running
    running.stop()


@pytest.fixture
def wires(server):
    connections = [Wire(server.bootstrap_servers) for _ in range(MANY)]
    make_topic(connections[0], "topic")
    for wire in connections:
        end_offset(wire, "topic")
    yield connections
    for wire in connections:
        wire.close()


class Standing:
    """A clock whose time moves only when a test says so."""

    def __init__(self):
        self.now = time.monotonic()

    def monotonic(self):
        return self.now


@pytest.fixture
def quotas(server):
    """Return a function that sets quotas, by default of the client id "wire", and returns the client quotas."""
    clients = server.services.client_quotas
    clients._clock = clock = Standing()
    server.services.meters.clock = server.services.meters.slow.clock = clock.monotonic

    def set_to(entity=CLIENT, **limits):
        clients.change(entity, limits)
        server.services.quotas = clients if clients.are_set else None
        return clients

    return set_to


def unmute(server, count=1, after_s=100):
    """Wait for `count` muted connections, move the quotas' clock by `after_s` seconds, and end the mute."""
    (processor,) = server._network._processors
    eventually(lambda: processor.muted == count)
    server.services.client_quotas._clock.now += after_s

    def end():
        for conn in list(processor._muted.values()):
            processor._unmute(conn.id, conn.muted_until)

    processor.post(end)


def size_of(api, version, message):
    return len(request_frame(api, version, 1, "wire", message)) - 4


def throttle_of(size, limit):
    """Return the throttle time after `size` bytes were counted in an empty window of ten seconds."""
    return round(size / limit * 1000) - 10_000


def test_a_produce_request_is_stored_and_its_connection_is_not_read_for_the_throttle_time(server, wires, quotas):
    quotas(**{PRODUCER: 1})
    message = request("topic", batch(b"a"))
    response = wires[0].call(PRODUCE, VERSION, message)
    assert response.throttle_time_ms == throttle_of(size_of(PRODUCE, VERSION, message), 1) > 0
    assert response.responses[0].partition_responses[0].error_code == Errors.NONE
    wires[0].send(METADATA, FETCH_VERSION, NO_TOPICS)
    assert end_offset(wires[1], "topic") == 1  # other connections are served
    unmute(server)
    assert wires[0].receive(METADATA, FETCH_VERSION)[1].throttle_time_ms == 0


@pytest.mark.parametrize("api", [PRODUCE, METADATA])
def test_requests_behind_a_throttled_one_of_the_same_turn_wait(server, wires, quotas, api):
    version, message = (VERSION, request("topic", batch(b"a"))) if api is PRODUCE else (FETCH_VERSION, NO_TOPICS)
    size = size_of(api, version, message)
    quotas(**({PRODUCER: size // 5} if api is PRODUCE else {REQUEST: 1e-9}))
    first = 3 if api is PRODUCE else 1  # ten seconds' worth is the size of two requests
    with held(server):
        sent = [wires[0].send(api, version, message) for _ in range(5)]
    assert [wires[0].receive(api, version)[0] for _ in range(first)] == sent[:first]
    (processor,) = server._network._processors
    assert processor.muted == 1
    assert end_offset(wires[1], "topic") == (first if api is PRODUCE else 0)
    quotas()
    unmute(server, 2 if api is METADATA else 1)
    assert [wires[0].receive(api, version)[0] for _ in range(5 - first)] == sent[first:]


def test_joined_requests_of_several_connections_are_counted_each(server, wires, quotas, monkeypatch):
    joined = turns_of(PRODUCE, monkeypatch)
    message = request("topic", batch(b"a"))
    size = size_of(PRODUCE, VERSION, message)
    quotas(**{PRODUCER: size})
    with held(server):
        for wire in wires:
            wire.send(PRODUCE, VERSION, message)
    assert {wire.receive(PRODUCE, VERSION)[1].throttle_time_ms for wire in wires} == {0}
    assert joined == [MANY]
    assert server.services.client_quotas.used(PRODUCER, ("", "wire")) == MANY * size / 10


def test_acks_0_counts_bytes_and_no_time(server, wires, quotas):
    quotas(**{PRODUCER: 1, REQUEST: 1e-9})
    quotas(**{REQUEST: 1e-9})
    wires[0].send(PRODUCE, VERSION, request("topic", batch(b"a"), acks=0))
    eventually(lambda: server.services.client_quotas.exempt_percent() > 0)
    assert server._network._processors[0].muted == 0
    quotas(**{PRODUCER: 1})
    wires[1].send(PRODUCE, VERSION, request("topic", batch(b"a"), acks=0))
    eventually(lambda: server._network._processors[0].muted == 1)


def test_a_throttled_fetch_is_empty_and_does_not_count(server, wires, quotas):
    quotas(**{CONSUMER: 1e9})
    produce(wires[0], "topic", batch(b"x" * 5000))
    opened = wires[0].call(FETCH, FETCH_VERSION, fetch_request("topic", session=(0, 0), max_bytes=9000))
    assert len(opened.responses[0].partitions[0].records) > 5000
    clients = quotas(**{CONSUMER: 100})
    before = clients.used(CONSUMER, ("", "wire"))
    again = fetch_request("topic", session=(opened.session_id, 1))
    response = wires[0].call(FETCH, FETCH_VERSION, again)
    assert (response.responses, response.session_id, response.error_code) == ([], opened.session_id, 0)
    assert response.throttle_time_ms > 0
    assert clients.used(CONSUMER, ("", "wire")) == before
    unmute(server)
    quotas(**{CONSUMER: 1e9})
    # The request names no partition. This one is still due in the session, since the throttled response had none.
    rest = fetch_request("topic", session=(opened.session_id, 2))
    rest.topics = []
    response = wires[0].call(FETCH, FETCH_VERSION, rest)
    assert len(response.responses[0].partitions[0].records) > 5000


def test_a_fetch_response_counts_with_the_size_that_kafka_counts(server, wires, quotas):
    clients = quotas(**{CONSUMER: 1e9})
    produce(wires[0], "topic", batch(b"x" * 100))
    for version in (11, FETCH_VERSION):
        clients._clock.now += 100
        wires[0].send(FETCH, version, fetch_request("topic"))
        frame = wires[0].frame()
        # FetchResponse.sizeOf: 4 bytes and the body. The header has 4 bytes, and 5 in flexible versions.
        expected = 4 + len(frame) - (5 if version == FETCH_VERSION else 4)
        assert clients.used(CONSUMER, ("", "wire")) == expected / 10
        clients._clock.now += 100
        quotas(**{CONSUMER: expected / 10})  # could be exceeded, so the size is checked; it is not
        assert wires[0].call(FETCH, version, fetch_request("topic")).responses[0].partitions[0].records
        assert clients.used(CONSUMER, ("", "wire")) == expected / 10
        quotas(**{CONSUMER: 1e9})


def test_a_fetch_is_capped_to_what_all_windows_can_take_so_that_it_gets_on(server, wires, quotas):
    for _ in range(3):
        produce(wires[0], "topic", batch(b"x" * 500))
    quotas(**{CONSUMER: 80})
    # 800 bytes of records fit, and the request asks for 5000. The rest of the response exceeds the quota by little.
    fetch = fetch_request("topic", min_bytes=5000, wait=30_000)
    throttled = wires[0].call(FETCH, FETCH_VERSION, fetch)
    assert throttled.responses == []
    assert 0 < throttled.throttle_time_ms < 1500
    unmute(server, after_s=throttled.throttle_time_ms / 1000)
    answer = wires[0].call(FETCH, FETCH_VERSION, fetch)
    assert len(answer.responses[0].partitions[0].records) == 800
    assert answer.throttle_time_ms == 0


def test_the_throttle_time_for_time_is_one_window_at_most(wires, quotas):
    quotas(**{REQUEST: 1e-12})
    assert wires[0].call(METADATA, FETCH_VERSION, NO_TOPICS).throttle_time_ms == 1000


def test_requests_between_brokers_are_exempt(server, wires, quotas):
    clients = quotas(**{REQUEST: 1e-12})
    message = STOP_REPLICA.Request(controller_id=0, controller_epoch=0, broker_epoch=-1, topic_states=[])
    wires[0].call(STOP_REPLICA, 3, message)
    assert server._network._processors[0].muted == 0
    assert clients.exempt_percent() > 0


def test_a_fetch_of_a_follower_is_exempt(server, wires, quotas):
    quotas(**{REQUEST: 1e-12, CONSUMER: 1})
    wires[0].call(FETCH, FETCH_VERSION, fetch_request("topic", replica=7))
    assert server._network._processors[0].muted == 0


def creation(*names):
    make = CREATE_TOPICS.Request
    topics = [
        make.Topics(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    return make(topics=topics, timeout_ms=30_000)


def deletion(version, name):
    make = DELETE_TOPICS.Request
    if version >= 6:
        return make(topics=[make.Topics(name=name)], timeout_ms=30_000)
    return make(topic_names=[name], timeout_ms=30_000)


def enlargement(name, count):
    make = CREATE_PARTITIONS.Request
    return make(topics=[make.Topics(name=name, count=count, assignments=None)], timeout_ms=30_000)


def test_topics_beyond_the_quota_are_refused_by_strict_versions(server, wires, quotas):
    quotas(**{MUTATION: 0.1})  # tokens for 1.1 partitions
    response = wires[0].call(CREATE_TOPICS, 7, creation("a", "b"))
    assert [one.error_code for one in response.topics] == [Errors.NONE, Errors.THROTTLING_QUOTA_EXCEEDED]
    assert response.throttle_time_ms == 9000  # until tokens for 0.9 partitions are refilled
    for wire, api, version, message in (
        (wires[1], DELETE_TOPICS, 6, deletion(6, "a")),
        (wires[2], CREATE_PARTITIONS, 3, enlargement("a", 3)),
    ):
        response = wire.call(api, version, message)
        (result,) = response.responses if api is DELETE_TOPICS else response.results
        assert result.error_code == Errors.THROTTLING_QUOTA_EXCEEDED
        assert response.throttle_time_ms == 9000
    unmute(server, 3)
    assert wires[0].call(CREATE_TOPICS, 7, creation("b")).topics[0].error_code == Errors.NONE


def test_older_versions_are_carried_out_and_then_throttled(server, wires, quotas):
    quotas(**{MUTATION: 0.1})
    response = wires[0].call(CREATE_TOPICS, 5, creation("a", "b"))
    assert [one.error_code for one in response.topics] == [Errors.NONE, Errors.NONE]
    assert response.throttle_time_ms == 29_000
    assert wires[1].call(CREATE_PARTITIONS, 2, enlargement("a", 3)).throttle_time_ms == 39_000
    assert wires[2].call(DELETE_TOPICS, 4, deletion(4, "b")).throttle_time_ms == 59_000


def test_topics_that_cannot_be_created_do_not_count(wires, quotas):
    clients = quotas(**{MUTATION: 1})
    assert wires[0].call(CREATE_TOPICS, 7, creation("topic")).topics[0].error_code == Errors.TOPIC_ALREADY_EXISTS
    assert clients.used(MUTATION, ("", "wire")) == 11


def test_topics_that_a_metadata_request_creates_count_but_are_never_refused(wires, quotas):
    clients = quotas(**{MUTATION: 0.1})
    for name in ("x", "y"):
        make_topic(wires[0], name)
    assert clients.used(MUTATION, ("", "wire")) == pytest.approx(1.1 - 4)


def test_user_anonymous_has_quotas_and_shares_them_among_client_ids(wires, quotas):
    clients = quotas(Entity(user="ANONYMOUS"), **{REQUEST: 1e6})
    wires[0].call(METADATA, FETCH_VERSION, NO_TOPICS)
    assert clients.used(REQUEST, ("ANONYMOUS", "")) > 0


def test_limits_apply_from_the_next_request_on_and_nothing_is_counted_without(server, wires, quotas):
    assert server.services.quotas is None
    clients = quotas(**{PRODUCER: 1e9})
    produce(wires[0], "topic", batch(b"a"))
    used = clients.used(PRODUCER, ("", "wire"))
    assert used > 0
    quotas()
    assert server.services.quotas is None
    produce(wires[0], "topic", batch(b"a"))
    assert clients.used(PRODUCER, ("", "wire")) == used
    quotas(**{PRODUCER: 1})
    assert wires[0].call(PRODUCE, VERSION, request("topic", batch(b"a"))).throttle_time_ms > 0


def test_a_hundred_thousand_client_ids_leave_bounded_traces(server, wires, quotas):
    clients = quotas(Entity(client_id=DEFAULT), **{REQUEST: 1e6})
    for number in range(100_000):
        clients._look_up("User:ANONYMOUS", f"client-{number}")
        if number % 10_000 == 0:  # the quota usage of an active client is not forgotten
            wires[0].call(METADATA, FETCH_VERSION, NO_TOPICS)
            clients._clock.now += 0.001
    assert sum(1 for _ in clients.buckets(REQUEST)) <= 10_000
    shown = server.services.counters.read()[METRICS["quota_request_percent"]]
    assert len(shown) == 1000


def test_a_throttled_connection_that_closes_leaves_nothing_behind(server, wires, quotas):
    quotas(**{PRODUCER: 1})
    wire = Wire(server.bootstrap_servers)
    produce(wire, "topic", batch(b"a"))
    (processor,) = server._network._processors
    assert processor.muted == 1
    wire.close()
    processor.post(lambda: [processor.close(conn) for conn in list(processor._muted.values())])
    eventually(lambda: processor.muted == 0)
    assert all(isinstance(argument, (int, float)) for timer in processor._timers for argument in timer[3])


def test_the_timers_of_throttled_connections_that_are_closed_do_not_stay_until_they_are_due(server, wires, quotas):
    quotas(**{PRODUCER: 1e-6})
    (processor,) = server._network._processors

    def throttled():
        wire = Wire(server.bootstrap_servers)
        produce(wire, "topic", batch(b"a"))
        return wire

    for _ in range(2):
        many = [throttled() for _ in range(150)]
        processor.post(lambda: [processor.close(conn) for conn in list(processor._muted.values())])
        eventually(lambda: processor.muted == 0)
        for wire in many:
            wire.close()
    throttled().close()
    assert sum(timer[2] == processor._unmute for timer in processor._timers) < 150
