"""An operator's own authorizer class may block, raise, hang or answer nonsense: that allows no request."""

import logging
import sys
import threading
import types

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol.apis import (
    API_VERSIONS,
    FETCH,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    PRODUCE,
)
from kafkapy.runtime.config_def import ConfigError
from kafkapy.security.acls.bindings import Binding, Entry, Pattern
from kafkapy.server.authorization import hook as hooks
from tests.harness.group_wire import GroupWire
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.requests import VERSION, batch, fetch_of_partitions, make_topic, produce, request, start_broker
from tests.server.test_acls import create, creation, delete, deletion, described
from tests.server.test_commit_together import commit_of

DENIED = Errors.TOPIC_AUTHORIZATION_FAILED


class Rules:
    """An authorizer class that denies the names in `denied`, and records its calls."""

    def __init__(self, settings):
        assert settings["log.dirs"]
        self.asked = []
        self.denied = set()
        self.stored = []
        self.on_call = lambda: None

    def authorize(self, client, actions):
        self.asked.append((client, list(actions)))
        self.on_call()
        return [action.name not in self.denied for action in actions]

    def authorize_by_resource_type(self, client, operation, resource_type):
        return (client.principal, operation, resource_type) == ("User:ANONYMOUS", "WRITE", "TOPIC")

    def acls(self, which):
        return [one for one in self.stored if which.matches_pattern(one.pattern) and which.matches_entry(one.entry)]

    def create(self, client, acls):
        self.stored += acls

    def delete(self, client, filters):
        gone = [self.acls(which) for which in filters]
        self.stored = [one for one in self.stored if not any(one in each for each in gone)]
        return gone


class Bare:
    def __init__(self, settings):
        pass

    def authorize(self, client, actions):
        return [True] * len(actions)


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Return a function that starts a broker with a class as its authorizer, and returns the broker and the object."""
    module = types.ModuleType("rules_of_this_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    running = []

    def start_with(cls, **settings):
        made = []
        module.Made = lambda given: made.append(cls(given)) or made[0]
        name = f"{module.__name__}:Made"
        settings = {"num_partitions": 1, "kafkapy_metrics_listen": "127.0.0.1:0", **settings}
        running.append(start_broker(tmp_path, authorizer_class_name=name, **settings))
        return running[-1], made[0]

    yield start_with
    for server in running:
        server.stop()


@pytest.fixture
def started(start):
    return start(Rules, group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=1)


@pytest.fixture
def rules(started):
    return started[1]


@pytest.fixture
def wire(started):
    with Wire(started[0].bootstrap_servers) as connection:
        make_topic(connection, "flights")
        yield connection


def produced(wire, topic="flights"):
    return produce(wire, topic, batch(b"x")).error_code


def test_every_request_is_asked_for_and_answered(started, rules, wire) -> None:
    assert [produced(wire) for _ in range(3)] == [Errors.NONE] * 3
    (one,) = wire.call(FETCH, 12, fetch_of_partitions("flights", [0])).responses[0].partitions
    assert (one.error_code, bool(one.records)) == (Errors.NONE, True)
    rules.denied.add("flights")
    assert produced(wire) == DENIED
    (one,) = wire.call(FETCH, 12, fetch_of_partitions("flights", [0])).responses[0].partitions
    assert (one.error_code, one.records) == (DENIED, b"")
    client, actions = rules.asked[-1]
    assert client == hooks.HookClient("User:ANONYMOUS", "127.0.0.1", "PLAINTEXT", "wire", "Fetch", 12)
    assert actions == [("READ", "TOPIC", "flights")]
    assert wire.call(API_VERSIONS, 0, API_VERSIONS.Request()).error_code == Errors.NONE
    assert wire.call(INIT_PRODUCER_ID, 4, INIT_PRODUCER_ID.Request(transactional_id=None)).error_code == Errors.NONE


def test_pipelined_requests_are_answered_in_order(rules, wire) -> None:
    sent = [wire.send(PRODUCE, VERSION, request("flights", batch(b"x"))) for _ in range(20)]
    assert [wire.receive(PRODUCE, VERSION)[0] for _ in sent] == sent
    assert len({id(call) for call in rules.asked}) >= 20


def test_groups_and_waiting_fetches_work(started, rules, wire) -> None:
    group = GroupWire(started[0].bootstrap_servers)
    group.find_coordinator("g")
    group.close()
    answer = wire.call(OFFSET_COMMIT, 8, OFFSET_COMMIT.Request(**commit_of("g", {("flights", 0): 1})))
    assert answer.topics[0].partitions[0].error_code == Errors.NONE
    rules.denied.add("g")
    answer = wire.call(OFFSET_COMMIT, 8, OFFSET_COMMIT.Request(**commit_of("g", {("flights", 0): 1})))
    assert answer.topics[0].partitions[0].error_code == Errors.GROUP_AUTHORIZATION_FAILED
    joining = JOIN_GROUP.Request(group_id="g", member_id="", protocol_type="consumer", session_timeout_ms=10_000)
    assert wire.call(JOIN_GROUP, 5, joining).error_code == Errors.GROUP_AUTHORIZATION_FAILED
    waiting = fetch_of_partitions("flights", [0])
    waiting.max_wait_ms, waiting.min_bytes = 60_000, 1
    wire.send(FETCH, 12, waiting)
    with Wire(started[0].bootstrap_servers) as other:
        assert produced(other) == Errors.NONE
    (one,) = wire.receive(FETCH, 12)[1].responses[0].partitions
    assert one.records


def test_a_slow_answer_delays_no_other_connection_of_the_thread(started, rules, wire) -> None:
    go_on, is_asked = threading.Event(), threading.Event()

    def wait() -> None:
        is_asked.set()
        assert go_on.wait(30)

    rules.on_call = wait
    wire.send(PRODUCE, VERSION, request("flights", batch(b"x")))
    assert is_asked.wait(30)
    rules.on_call = lambda: None
    with Wire(started[0].bootstrap_servers) as other:
        assert produced(other) == Errors.NONE
    go_on.set()
    assert wire.receive(PRODUCE, VERSION)[1].responses[0].partition_responses[0].error_code == Errors.NONE


@pytest.mark.parametrize("answer", [None, [], [True] * 9, "x", True, {"a": True}, [1], ["True"]])
def test_nonsense_denies(rules, wire, answer) -> None:
    rules.authorize = lambda client, actions: answer
    assert produced(wire) == DENIED


def test_a_class_that_raises_denies_and_is_reported_once(rules, wire, caplog) -> None:
    def fail() -> None:
        raise RuntimeError("no rules today")

    rules.on_call = fail
    assert [produced(wire) for _ in range(5)] == [DENIED] * 5
    (line,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert "authorize raised RuntimeError: no rules today" in line.getMessage()
    rules.on_call = lambda: None
    assert produced(wire) == Errors.NONE


def test_a_class_that_hangs_denies_in_time_and_at_once_when_no_thread_is_left(start, monkeypatch, caplog) -> None:
    monkeypatch.setattr(hooks, "THREADS", 2)
    server, rules = start(Rules, kafkapy_authorizer_timeout_ms=30_000)
    authorizer = server.services.authorizer
    assert authorizer._timeout_s == 30
    go_on = threading.Event()
    with Wire(server.bootstrap_servers) as wire:
        make_topic(wire, "flights")
        rules.on_call = lambda: go_on.wait(60)
        monkeypatch.setattr(authorizer, "_timeout_s", 0.05)
        assert [produced(wire) for _ in range(5)] == [DENIED] * 5
        assert "has not returned after 0.05 s" in caplog.text
        hung = sum(1 for client, _ in rules.asked if client.api == "Produce")
        assert hung == 2  # both threads hang, so the other requests were denied without a call
        monkeypatch.setattr(authorizer, "_timeout_s", 30)
        rules.on_call = lambda: None
        go_on.set()
        eventually(lambda: produced(wire) == Errors.NONE)


def test_answers_are_remembered_only_with_a_generation(start) -> None:
    server, rules = start(Rules)
    with Wire(server.bootstrap_servers) as wire:
        make_topic(wire, "flights")
        rules.asked.clear()
        assert [produced(wire) for _ in range(3)] == [Errors.NONE] * 3
        assert len(rules.asked) == 3
        rules.generation = 1
        rules.asked.clear()
        assert [produced(wire) for _ in range(3)] == [Errors.NONE] * 3
        assert len(rules.asked) == 1
        rules.denied.add("flights")
        rules.generation = 2
        assert [produced(wire) for _ in range(3)] == [DENIED] * 3
        assert len(rules.asked) == 2


def test_an_answer_on_one_listener_is_not_remembered_for_another(start) -> None:
    listeners = "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0"
    protocols = "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT"
    server, rules = start(Rules, listeners=listeners, listener_security_protocol_map=protocols)
    inside, outside = server.bootstrap_servers.split(",")
    rules.generation = 1
    rules.authorize = lambda client, actions: [client.listener == "PLAINTEXT"] * len(actions)
    with Wire(inside) as wire, Wire(outside) as other:
        make_topic(wire, "flights")
        assert [produced(one) for one in (wire, other, wire)] == [Errors.NONE, DENIED, Errors.NONE]
        for one, expected in ((wire, Errors.NONE), (other, DENIED), (wire, Errors.NONE)):
            (part,) = one.call(FETCH, 12, fetch_of_partitions("flights", [0])).responses[0].partitions
            assert part.error_code == expected


def test_an_answer_to_one_api_is_not_remembered_for_another(start) -> None:
    server, rules = start(Rules)
    rules.generation = 1
    rules.authorize = lambda client, actions: [client.api != "ListOffsets"] * len(actions)
    with Wire(server.bootstrap_servers) as wire:
        make_topic(wire, "flights")  # sends Metadata, which asks for DESCRIBE like ListOffsets
        make = LIST_OFFSETS.Request
        part = make.Topics.Partitions(partition_index=0, timestamp=-1)
        asked = make(replica_id=-1, topics=[make.Topics(name="flights", partitions=[part])])
        assert wire.call(LIST_OFFSETS, 5, asked).topics[0].partitions[0].error_code == DENIED
        assert wire.call(METADATA, 12, METADATA.Request(topics=None)).topics[0].error_code == Errors.NONE


def test_acls_are_those_of_the_class(rules, wire) -> None:
    assert create(wire, creation()) == [(Errors.NONE, "")]
    mine = Binding(Pattern("TOPIC", "flights"), Entry("User:alice", "*", "WRITE", "ALLOW"))
    assert rules.stored == [mine]
    assert described(wire) == [("flights", ["User:alice"])]
    assert delete(wire, deletion("TOPIC")) == [(0, None, [("flights", "User:alice")])]
    rules.create = None  # so that the call fails
    assert create(wire, creation())[0][0] == Errors.UNKNOWN_SERVER_ERROR


def test_a_class_without_acls_says_so(start) -> None:
    server, _ = start(Bare)
    with Wire(server.bootstrap_servers) as wire:
        code = Errors.UNSUPPORTED_VERSION
        assert create(wire, creation())[0][0] == code
        assert described(wire)[0] == code
        assert delete(wire, deletion())[0][0] == code
        denied = wire.call(INIT_PRODUCER_ID, 4, INIT_PRODUCER_ID.Request(transactional_id=None))
        assert denied.error_code == Errors.NONE  # the class allows IdempotentWrite on the cluster
        assert wire.call(METADATA, 12, METADATA.Request(topics=None)).topics == []


@pytest.mark.parametrize("name", ["no_such_module:Rules", "logging:NoSuchClass", "logging:Logger", "logging:getLogger"])
def test_a_class_that_cannot_be_used_refuses_the_start(tmp_path, name) -> None:
    with pytest.raises(ConfigError, match=r"^authorizer\.class\.name"):
        start_broker(tmp_path, authorizer_class_name=name)


def test_with_the_audit_log_at_debug_each_answer_is_a_line(start) -> None:
    server, rules = start(Rules)
    rules.generation = 1
    logger = logging.getLogger("kafka.authorizer.logger")
    logger.setLevel(logging.DEBUG)
    try:
        with Wire(server.bootstrap_servers) as wire:
            make_topic(wire, "flights")
            rules.asked.clear()
            assert [produced(wire) for _ in range(2)] == [Errors.NONE] * 2
            assert len(rules.asked) == 2
    finally:
        logger.setLevel(logging.NOTSET)
