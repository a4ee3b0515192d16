"""Each request is authorized on its own, also when several are joined. The authorizer is a stand-in."""

import threading
from collections import Counter

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol.apis import (
    ADD_PARTITIONS_TO_TXN,
    CREATE_TOPICS,
    FETCH,
    JOIN_GROUP,
    LIST_GROUPS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
)
from kafkapy.server.admission import CLUSTER, Action
from kafkapy.server.api_table import TABLE
from tests.harness.group_wire import GroupWire
from tests.harness.wire import Wire
from tests.server.lab import busy, held, turns_of
from tests.server.requests import (
    VERSION,
    batch,
    end_offset,
    fetch_of_partitions,
    lead_with,
    make_topic,
    request,
    start_broker,
)
from tests.server.test_commit_together import commit_of

MANY = 10
TOPIC_DENIED = Errors.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def server(tmp_path):
    running = start_broker(
        tmp_path,
        num_network_threads=1,
        num_partitions=1,
        group_initial_rebalance_delay_ms=0,
        offsets_topic_num_partitions=1,
    )
    yield running
    running.stop()


@pytest.fixture
def wires(server):
    connections = [Wire(server.bootstrap_servers) for _ in range(MANY)]
    for topic in ("open", "closed"):
        make_topic(connections[0], topic)
    for wire in connections:
        end_offset(wire, "open")
    yield connections
    for wire in connections:
        wire.close()


@pytest.fixture
def coordinator(server):
    """Find a coordinator, so that the group coordinator is loaded."""
    group = GroupWire(server.bootstrap_servers)
    group.find_coordinator("any")
    yield
    group.close()


class Denies:
    """An authorizer that denies these actions. It records the principals, and the actions with and without logging."""

    def __init__(self, *actions):
        self.actions = set(actions)
        self.generation = 0
        self.principals = []
        self.logged = Counter()
        self.quiet = Counter()

    def change(self, *actions):
        self.actions = set(actions)
        self.generation += 1

    pool = None

    def denied(self, call, actions, *, logged=True):
        self.principals.append(call.connection.principal)
        assert all(isinstance(action.name, str) for action in actions)
        (self.logged if logged else self.quiet).update(actions)
        return [one for one in actions if one in self.actions]


@pytest.fixture
def denies(server, monkeypatch):
    """Return a function that sets an authorizer, which denies the given actions."""

    def set_to(*actions):
        authorizer = Denies(*actions)
        monkeypatch.setattr(server.services, "authorizer", authorizer)
        return authorizer

    return set_to


def topic_action(operation, name="closed"):
    return Action(operation, "TOPIC", name)


def cluster_action(operation):
    return Action(operation, "CLUSTER", CLUSTER)


# --- Produce


def both_topics(transactional_id=None, **settings):
    message = request("open", batch(b"a", **settings), transactional_id=transactional_id)
    message.topic_data += request("closed", batch(b"b", **settings)).topic_data
    return message


def codes(wire):
    _, response = wire.receive(PRODUCE, VERSION)
    return {one.name: one.partition_responses[0].error_code for one in response.responses}


@pytest.mark.parametrize("count", [1, MANY])
def test_a_denied_topic_is_refused_and_the_others_get_their_records(server, wires, monkeypatch, denies, count):
    joined = turns_of(PRODUCE, monkeypatch)
    authorizer = denies(topic_action("WRITE"))
    with held(server):
        for wire in wires[:count]:
            wire.send(PRODUCE, VERSION, both_topics())
    for wire in wires[:count]:
        assert codes(wire) == {"open": Errors.NONE, "closed": TOPIC_DENIED}
    assert joined == ([MANY] if count == MANY else [])
    assert authorizer.principals == ["User:ANONYMOUS"] * count
    assert [end_offset(wires[0], topic) for topic in ("open", "closed")] == [count, 0]


def test_a_denied_topic_looks_the_same_whether_it_exists(server, wires, denies):
    denies(topic_action("WRITE", "nowhere"), topic_action("WRITE"))
    for topic in ("nowhere", "closed"):
        response = wires[0].call(PRODUCE, VERSION, request(topic, batch(b"a"))).responses[0].partition_responses[0]
        assert response.error_code == TOPIC_DENIED


def test_a_denied_transactional_id_refuses_all_records_of_its_request_and_no_others(server, wires, denies, monkeypatch):
    asked = []
    monkeypatch.setattr(server.services.verifier, "verify", lambda *args, **kwargs: asked.append(args))
    denies(Action("WRITE", "TRANSACTIONAL_ID", "tx"), topic_action("WRITE"))
    in_transaction = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    with held(server):
        wires[0].send(PRODUCE, VERSION, request("open", batch(b"before")))
        wires[0].send(PRODUCE, VERSION, both_topics("tx", **in_transaction))
        wires[0].send(PRODUCE, VERSION, both_topics("tx"))  # without a transactional batch, the id is not checked
    assert codes(wires[0]) == {"open": Errors.NONE}
    assert codes(wires[0]) == dict.fromkeys(("open", "closed"), Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert codes(wires[0]) == {"open": Errors.NONE, "closed": TOPIC_DENIED}
    assert asked == []
    assert end_offset(wires[0], "open") == 2


def test_a_frame_that_is_handled_again_after_a_pending_reply_is_authorized_once(server, wires, monkeypatch, denies):
    busy(monkeypatch, "append")
    authorizer = denies()
    authorizer.generation = None  # so no answer may be remembered
    with held(server):
        for acks in (1, 0, 1):  # different acks are not joined; each append waits
            wires[0].send(PRODUCE, VERSION, request("open", batch(b"a"), acks=acks))
    assert codes(wires[0]) == codes(wires[0]) == {"open": Errors.NONE}
    assert len(authorizer.principals) == 3
    assert end_offset(wires[0], "open") == 3


# --- Fetch


def ids(wire):
    topics = wire.call(METADATA, 12, METADATA.Request(topics=None)).topics
    return {topic.name: topic.topic_id for topic in topics}


def fetch_by_id(topic_ids, session=(0, 0), offset=0, wait=0, replica=-1):
    make = FETCH.Request
    message = make(
        max_wait_ms=wait,
        min_bytes=1,
        max_bytes=9000,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            make.Topics(
                topic_id=topic_id,
                partitions=[make.Topics.Partitions(partition=0, fetch_offset=offset, partition_max_bytes=1000)],
            )
            for topic_id in topic_ids
        ],
    )
    message.replica_state.replica_id = replica
    return message


def fetched(response):
    assert response.error_code == Errors.NONE
    return {
        one.topic_id: (one.partitions[0].error_code, bool(one.partitions[0].records), one.partitions[0].high_watermark)
        for one in response.responses
    }


def test_a_topic_that_is_denied_by_its_id_is_not_read_and_its_session_notices_every_change_of_rights(
    server, wires, denies
):
    wire = wires[0]
    topic_ids = ids(wire)
    opened, closed, unknown = topic_ids["open"], topic_ids["closed"], bytes(15) + b"\1"
    wire.call(PRODUCE, VERSION, both_topics())
    authorizer = denies(topic_action("READ"))
    first = wire.call(FETCH, 16, fetch_by_id([opened, closed, unknown]))
    assert fetched(first) == {
        opened: (Errors.NONE, True, 1),
        closed: (TOPIC_DENIED, False, -1),
        unknown: (Errors.UNKNOWN_TOPIC_ID, False, -1),
    }
    session = first.session_id
    assert session
    authorizer.change()
    # From here on each request names only some of the session's partitions.
    granted = fetched(wire.call(FETCH, 16, fetch_by_id([opened], (session, 1), offset=1)))
    assert granted[closed] == (Errors.NONE, True, 1)
    settled = fetched(wire.call(FETCH, 16, fetch_by_id([closed], (session, 2), offset=1)))
    assert opened not in settled
    assert closed not in settled
    authorizer.change(topic_action("READ", "open"))
    revoked = fetched(wire.call(FETCH, 16, fetch_by_id([], (session, 3), wait=10_000)))
    assert revoked[opened] == (TOPIC_DENIED, False, -1)
    assert closed not in revoked
    authorizer.change()
    wires[1].call(PRODUCE, VERSION, both_topics())
    again = fetched(wire.call(FETCH, 16, fetch_by_id([], (session, 4))))
    assert again[opened] == again[closed] == (Errors.NONE, True, 2)


def test_a_session_is_authorized_again_when_another_principal_uses_it(server, wires, denies, monkeypatch):
    wire = wires[0]
    topic_ids = ids(wire)
    authorizer = denies()
    first = wire.call(FETCH, 16, fetch_by_id([topic_ids["open"]]))
    assert fetched(wire.call(FETCH, 16, fetch_by_id([], (first.session_id, 1)))) == {}
    (connection,) = (
        one for one in server._network._processors[0]._connections.values() if one.peer == wire.socket.getsockname()
    )
    authorizer.logged.clear()
    assert fetched(wire.call(FETCH, 16, fetch_by_id([], (first.session_id, 2)))) == {}
    assert not authorizer.logged  # no partition needs a read
    connection.principal = "User:other"
    assert fetched(wire.call(FETCH, 16, fetch_by_id([], (first.session_id, 3)))) == {}
    assert authorizer.logged == {topic_action("READ", "open"): 1}


@pytest.mark.parametrize("names", [["closed"], ["open", "closed"]])
def test_a_follower_needs_a_right_on_the_cluster_and_none_on_topics(server, wires, denies, names):
    wire = wires[0]
    topic_ids = ids(wire)
    me = server.services.broker_id
    for name in names:
        lead_with(server, name, [me, me + 1], [me])
    authorizer = denies(topic_action("READ"))
    asked = fetch_by_id([topic_ids[name] for name in names], (0, -1), replica=me + 1)
    assert {code for code, _, _ in fetched(wire.call(FETCH, 16, asked)).values()} == {Errors.NONE}
    authorizer.change(cluster_action("CLUSTER_ACTION"))
    assert {code for code, _, _ in fetched(wire.call(FETCH, 16, asked)).values()} == {TOPIC_DENIED}


def test_a_denied_topic_by_name_looks_the_same_whether_it_exists(server, wires, denies):
    denies(topic_action("READ"), topic_action("READ", "nowhere"))
    for topic in ("nowhere", "closed"):
        (one,) = wires[0].call(FETCH, 12, fetch_of_partitions(topic, [0])).responses[0].partitions
        assert (one.error_code, one.high_watermark, one.records) == (TOPIC_DENIED, -1, b"")


# --- requests between brokers


@pytest.mark.parametrize("denied", [["ALTER"], ["CLUSTER_ACTION"], ["ALTER", "CLUSTER_ACTION"]])
def test_transaction_markers_need_one_of_two_rights_on_the_cluster(server, wires, denies, denied):
    denies(*map(cluster_action, denied))
    make = WRITE_TXN_MARKERS.Request
    topics = [
        make.Markers.Topics(name="open", partition_indexes=[0]),
        make.Markers.Topics(name="x", partition_indexes=[1]),
    ]
    marker = make.Markers(producer_id=5, producer_epoch=0, transaction_result=True, coordinator_epoch=0, topics=topics)
    (one,) = wires[0].call(WRITE_TXN_MARKERS, 1, make(markers=[marker])).markers
    expected = [Errors.CLUSTER_AUTHORIZATION_FAILED] * 2
    if len(denied) == 1:
        expected = [Errors.NONE, Errors.UNKNOWN_TOPIC_OR_PARTITION]
    assert [topic.partitions[0].error_code for topic in one.topics] == expected


def test_verifications_of_transactions_need_a_right_on_the_cluster(server, wires, denies):
    denies(cluster_action("CLUSTER_ACTION"))
    for version in (4, 5):
        response = wires[0].call(ADD_PARTITIONS_TO_TXN, version, ADD_PARTITIONS_TO_TXN.Request(transactions=[]))
        assert response.error_code == Errors.CLUSTER_AUTHORIZATION_FAILED
    old = ADD_PARTITIONS_TO_TXN.Request(v3_and_below_transactional_id="tx", v3_and_below_producer_id=1)
    assert wires[0].call(ADD_PARTITIONS_TO_TXN, 3, old).error_code == Errors.NONE


# --- Metadata


def described(response):
    return {(topic.name, topic.topic_id): (topic.error_code, len(topic.partitions)) for topic in response.topics}


def test_all_topics_leaves_out_denied_topics(server, wires, denies):
    authorizer = denies(topic_action("DESCRIBE"))
    for version, topics in ((12, None), (0, [])):
        response = wires[0].call(METADATA, version, METADATA.Request(topics=topics))
        assert [topic.name for topic in response.topics] == ["open"]
    assert not authorizer.logged
    assert authorizer.quiet[topic_action("DESCRIBE")] == 2


def test_a_denied_topic_looks_the_same_in_metadata_whether_it_exists_and_is_not_created(server, wires, denies):
    topic_ids = ids(wires[0])
    authorizer = denies(topic_action("DESCRIBE"), topic_action("DESCRIBE", "nowhere"))
    make = METADATA.Request
    topics = [make.Topics(name=name) for name in ("closed", "nowhere", "open")]
    topics.append(make.Topics(name=None, topic_id=topic_ids["closed"]))
    answer = wires[0].call(METADATA, 12, make(topics=topics, allow_auto_topic_creation=True))
    assert described(answer) == {
        ("closed", bytes(16)): (TOPIC_DENIED, 0),
        ("nowhere", bytes(16)): (TOPIC_DENIED, 0),
        ("open", topic_ids["open"]): (Errors.NONE, 1),
        (None, topic_ids["closed"]): (TOPIC_DENIED, 0),
    }
    assert authorizer.logged[topic_action("DESCRIBE", "nowhere")] == 1
    assert "nowhere" not in server.services.topics


@pytest.mark.parametrize("on_cluster", [True, False])
def test_a_missing_topic_is_created_by_a_right_on_the_cluster_or_on_the_topic(server, wires, denies, on_cluster):
    authorizer = denies(topic_action("CREATE", "new-1"), *([] if on_cluster else [cluster_action("CREATE")]))
    make = METADATA.Request
    topics = [make.Topics(name=name) for name in ("new-1", "new-2")]
    answer = wires[0].call(METADATA, 12, make(topics=topics, allow_auto_topic_creation=True))
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "new-1": Errors.NONE if on_cluster else TOPIC_DENIED,
        "new-2": Errors.NONE,
    }
    assert ("new-1" in server.services.topics) == on_cluster
    assert authorizer.quiet == {cluster_action("CREATE"): 1}


# --- groups and topics


def test_denied_groups_are_left_out_unless_the_cluster_may_be_described(coordinator, wires, denies):
    wire = wires[0]
    for group in ("secret", "shown"):
        answer = wire.call(OFFSET_COMMIT, 8, OFFSET_COMMIT.Request(**commit_of(group, {("open", 0): 1})))
        assert answer.topics[0].partitions[0].error_code == Errors.NONE

    def listed():
        return sorted(group.group_id for group in wire.call(LIST_GROUPS, 4, LIST_GROUPS.Request()).groups)

    authorizer = denies(Action("DESCRIBE", "GROUP", "secret"))
    assert listed() == ["secret", "shown"]
    authorizer.change(Action("DESCRIBE", "GROUP", "secret"), cluster_action("DESCRIBE"))
    assert listed() == ["shown"]
    assert not authorizer.logged


def test_offsets_of_a_denied_topic_or_group_are_not_committed_in_a_joined_commit(
    coordinator, server, wires, monkeypatch, denies
):
    joined = turns_of(OFFSET_COMMIT, monkeypatch)
    denies(topic_action("READ"), topic_action("READ", "nowhere"), Action("READ", "GROUP", "group-3"))
    offsets = {("open", 0): 1, ("closed", 0): 1, ("nowhere", 0): 1, ("open", 7): 1}
    with held(server):
        for number, wire in enumerate(wires):
            wire.send(OFFSET_COMMIT, 8, OFFSET_COMMIT.Request(**commit_of(f"group-{number}", offsets)))
    for number, wire in enumerate(wires):
        _, answer = wire.receive(OFFSET_COMMIT, 8)
        found = {(one.name, part.partition_index): part.error_code for one in answer.topics for part in one.partitions}
        if number == 3:
            assert found == dict.fromkeys(offsets, Errors.GROUP_AUTHORIZATION_FAILED)
        else:
            assert found == {
                ("open", 0): Errors.NONE,
                ("closed", 0): TOPIC_DENIED,
                ("nowhere", 0): TOPIC_DENIED,
                ("open", 7): Errors.UNKNOWN_TOPIC_OR_PARTITION,
            }
    assert joined == [MANY]


@pytest.mark.parametrize("version", [5, 9])
def test_a_member_of_a_denied_group_does_not_join(coordinator, wires, denies, version):
    denies(Action("READ", "GROUP", "secret"))
    make = JOIN_GROUP.Request
    for group, expected in (("secret", Errors.GROUP_AUTHORIZATION_FAILED), ("shown", Errors.MEMBER_ID_REQUIRED)):
        answer = wires[0].call(
            JOIN_GROUP,
            version,
            make(
                group_id=group,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="",
                protocol_type="consumer",
                protocols=[make.Protocols(name="range", metadata=b"")],
            ),
        )
        assert answer.error_code == expected
        assert (answer.generation_id, answer.leader, answer.protocol_name or "") == (-1, "", "")


def creation(*names):
    make = CREATE_TOPICS.Request
    return make(
        topics=[
            make.Topics(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names
        ],
        timeout_ms=30_000,
    )


@pytest.mark.parametrize("on_cluster", [True, False])
def test_topics_are_created_by_a_right_on_the_cluster_or_on_each_topic(server, wires, denies, on_cluster):
    authorizer = denies(
        topic_action("CREATE", "new-1"),
        topic_action("DESCRIBE_CONFIGS", "new-2"),
        *([] if on_cluster else [cluster_action("CREATE")]),
    )
    answer = wires[0].call(CREATE_TOPICS, 7, creation("new-1", "new-2", "new-3"))
    first, second, third = answer.topics
    if on_cluster:
        assert (first.error_code, first.topic_config_error_code) == (Errors.NONE, Errors.NONE)
    else:
        assert (first.error_code, first.error_message) == (TOPIC_DENIED, "Authorization failed.")
        assert first.topic_config_error_code == Errors.NONE
    assert (second.error_code, second.topic_config_error_code) == (Errors.NONE, TOPIC_DENIED)
    assert (second.num_partitions, second.replication_factor, second.configs) == (-1, -1, [])
    assert (third.error_code, third.topic_config_error_code, third.num_partitions) == (Errors.NONE, Errors.NONE, 1)
    assert third.configs
    assert [name in server.services.topics for name in ("new-1", "new-2", "new-3")] == [on_cluster, True, True]
    assert authorizer.logged == (
        {} if on_cluster else {topic_action("CREATE", name): 1 for name in ("new-1", "new-2", "new-3")}
    )


def test_without_an_authorizer_nothing_is_prepared_for_one(server, wires, monkeypatch):
    def fail(broker, call):
        raise AssertionError("there is no authorizer")

    for key in TABLE.versions():
        monkeypatch.setattr(TABLE.find(key), "authorizes", fail)
    assert wires[0].call(PRODUCE, VERSION, both_topics()).responses[1].partition_responses[0].error_code == Errors.NONE


def asking_threads(authorizer):
    """Return a set that gets the kinds of threads that call the authorizer from now on, such as "network"."""
    ask, threads = authorizer.denied, set()

    def noted(*arguments, **settings):
        threads.add(threading.current_thread().name.split("-")[1])
        return ask(*arguments, **settings)

    authorizer.denied = noted
    return threads


@pytest.mark.parametrize("count", [1, 1000])
def test_a_pool_asks_for_the_many_topics_of_an_offset_for_leader_epoch_request(server, wires, denies, count):
    threads = asking_threads(denies(cluster_action("CLUSTER_ACTION"), topic_action("DESCRIBE", "t0")))
    make = OFFSET_FOR_LEADER_EPOCH.Request
    topics = [make.Topics(topic=f"t{n}", partitions=[make.Topics.Partitions(partition=0)]) for n in range(count)]
    answer = wires[0].call(OFFSET_FOR_LEADER_EPOCH, 3, make(topics=topics))
    codes = Counter(one.partitions[0].error_code for one in answer.topics)
    assert codes == Counter({TOPIC_DENIED: 1, Errors.UNKNOWN_TOPIC_OR_PARTITION: count - 1})
    assert threads == {"network" if count == 1 else "disk"}


@pytest.mark.parametrize("count", [1, 200])
def test_a_pool_asks_for_the_many_topics_of_a_fetch_once(server, wires, denies, count):
    threads = asking_threads(denies(topic_action("READ", "t0")))
    message = fetch_of_partitions("t0", [0])
    for number in range(1, count):
        message.topics += fetch_of_partitions(f"t{number}", [0]).topics
    for kind in ("network" if count == 1 else "disk", "network"):  # the second time, only the denied topic is checked
        threads.clear()
        answer = wires[0].call(FETCH, 12, message)
        codes = Counter(one.partitions[0].error_code for one in answer.responses)
        assert codes == Counter({TOPIC_DENIED: 1, Errors.UNKNOWN_TOPIC_OR_PARTITION: count - 1})
        assert threads == {kind}


def test_what_comes_after_a_denied_transactional_id_or_group_is_not_asked_for(server, wires, denies):
    transactional_id = Action("WRITE", "TRANSACTIONAL_ID", "id")
    group = Action("READ", "GROUP", "group")
    authorizer = denies(transactional_id, group)
    make = TXN_OFFSET_COMMIT.Request
    partitions = [make.Topics.Partitions(partition_index=0, committed_offset=1)]
    message = make(transactional_id="id", group_id="group", topics=[make.Topics(name="open", partitions=partitions)])

    def asked():
        authorizer.logged.clear()
        answer = wires[0].call(TXN_OFFSET_COMMIT, 3, message)
        return set(authorizer.logged), answer.topics[0].partitions[0].error_code

    assert asked() == ({transactional_id}, Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    authorizer.change(group)
    assert asked() == ({transactional_id, group}, Errors.GROUP_AUTHORIZATION_FAILED)
    authorizer.change(topic_action("READ", "open"))
    assert asked() == ({transactional_id, group, topic_action("READ", "open")}, TOPIC_DENIED)


# --- remembered answers of the authorizer


def test_what_was_allowed_is_not_asked_again_until_the_rules_change(server, wires, denies):
    wire = wires[0]
    authorizer = denies()

    def asked():
        authorizer.logged.clear()
        codes = [
            wire.call(PRODUCE, VERSION, request("open", batch(b"a"))).responses[0].partition_responses[0].error_code,
            wire.call(FETCH, 12, fetch_of_partitions("open", [0])).responses[0].partitions[0].error_code,
        ]
        return codes, set(authorizer.logged)

    both = {topic_action("WRITE", "open"), topic_action("READ", "open")}
    allowed, refused = [Errors.NONE] * 2, [TOPIC_DENIED] * 2
    assert asked() == (allowed, both)
    assert asked() == asked() == (allowed, set())
    authorizer.change(*both)
    assert asked() == asked() == (refused, both)
    authorizer.change()
    assert asked() == (allowed, both)
    assert asked() == (allowed, set())
    authorizer.generation = None  # so no answer may be remembered
    assert asked() == asked() == (allowed, both)


def test_connections_of_one_client_share_what_is_remembered_and_others_do_not(server, wires, denies):
    authorizer = denies()
    message = request("open", batch(b"a"))
    for wire in wires:
        wire.call(PRODUCE, VERSION, message)
    assert authorizer.logged == {topic_action("WRITE", "open"): 1}
    connection = next(
        one for one in server._network._processors[0]._connections.values() if one.peer == wires[0].socket.getsockname()
    )
    connection.principal = "User:other"
    authorizer.actions = {topic_action("WRITE", "open")}
    denied = wires[0].call(PRODUCE, VERSION, message).responses[0].partition_responses[0].error_code
    assert denied == TOPIC_DENIED
    connection.principal = "User:ANONYMOUS"
    assert wires[0].call(PRODUCE, VERSION, message).responses[0].partition_responses[0].error_code == Errors.NONE


def test_a_transactional_id_that_was_allowed_is_not_asked_again(server, wires, denies):
    authorizer = denies()
    message = both_topics("tx", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    needed = {topic_action("WRITE", "open"), topic_action("WRITE"), Action("WRITE", "TRANSACTIONAL_ID", "tx")}

    def asked():
        authorizer.logged.clear()
        wires[0].call(PRODUCE, VERSION, message)
        return set(authorizer.logged)

    assert asked() == needed
    assert asked() == set()
    authorizer.change(Action("WRITE", "TRANSACTIONAL_ID", "tx"))
    assert asked() == asked() == {Action("WRITE", "TRANSACTIONAL_ID", "tx")}
    authorizer.change()
    assert asked() == needed
    assert asked() == set()
