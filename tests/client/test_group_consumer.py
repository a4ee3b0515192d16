"""The group consumer's reaction to each response of a coordinator."""

import socket
import threading
import time
from collections import defaultdict

import pytest

from kafkapy.client import (
    CommitFailed,
    ConnectionFailed,
    GroupConsumer,
    GroupFailed,
    OffsetAndMetadata,
    RebalanceListener,
)
from kafkapy.client.fetching import fetcher
from kafkapy.client.groups import coordinator_link, group_consumer, heartbeats, membership
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol import apis
from kafkapy.protocol.consumer_protocol import ASSIGNMENT, SUBSCRIPTION
from kafkapy.record.batch import build
from tests.harness.waiting import eventually

PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def hardly_any_pauses(monkeypatch):
    for module in (coordinator_link, fetcher, membership):
        monkeypatch.setattr(module, "BACKOFF_S", 0.001)


class Coordinator:
    """One group on a fake broker, with at most one member. The error codes in `errors[api]` are its first responses."""

    def __init__(self, broker, node=1):
        self.broker = broker
        self.node = node
        self.errors = defaultdict(list)
        self.generation = 0
        self.offsets = {("t", 0): (3, "")}
        self.others = []  # more members in the JoinGroup response to the leader
        self.shares = {}
        broker.topics = {"t": [1, 1], "u": [1]}
        for api in (
            apis.FIND_COORDINATOR,
            apis.JOIN_GROUP,
            apis.SYNC_GROUP,
            apis.HEARTBEAT,
            apis.LEAVE_GROUP,
            apis.OFFSET_COMMIT,
            apis.OFFSET_FETCH,
            apis.LIST_OFFSETS,
            apis.FETCH,
        ):
            broker.answers[api.key] = lambda request, api=api: self.answer(api, request)

    def answer(self, api, request):
        error = self.errors[api.name].pop(0) if self.errors[api.name] else Errors.NONE
        return error if not isinstance(error, int) else getattr(self, api.name)(request, error)

    def FindCoordinator(self, request, code):
        shape = apis.FIND_COORDINATOR.Response
        port = self.broker.nodes[self.node]
        coordinators = [
            shape.Coordinators(key=key, node_id=self.node, host="127.0.0.1", port=port, error_code=code)
            for key in request.coordinator_keys
        ]
        more = {"node_id": self.node, "host": "127.0.0.1", "port": port, "error_code": code}
        return shape(coordinators=coordinators, **(more if request.key else {}))

    def JoinGroup(self, request, code):
        shape = apis.JOIN_GROUP.Response
        if code:
            return shape(error_code=code, member_id="given" if code == Errors.MEMBER_ID_REQUIRED else "")
        self.generation += 1
        member = request.member_id or f"member-{self.generation}"
        chosen = request.protocols[0]
        members = [shape.Members(member_id=member, metadata=bytes(chosen.metadata)), *self.others]
        return shape(
            generation_id=self.generation, protocol_name=chosen.name, leader=member, member_id=member, members=members
        )

    def SyncGroup(self, request, code):
        self.shares = {one.member_id: bytes(one.assignment) for one in request.assignments}
        return apis.SYNC_GROUP.Response(error_code=code, assignment=self.shares.get(request.member_id, b""))

    def Heartbeat(self, request, code):
        return apis.HEARTBEAT.Response(error_code=code)

    def LeaveGroup(self, request, code):
        return apis.LEAVE_GROUP.Response(error_code=code)

    def OffsetCommit(self, request, code):
        shape = apis.OFFSET_COMMIT.Response.Topics
        topics = []
        for topic in request.topics:
            for one in topic.partitions:
                if not code:
                    self.offsets[topic.name, one.partition_index] = one.committed_offset, one.committed_metadata
            answers = [
                shape.Partitions(partition_index=one.partition_index, error_code=code) for one in topic.partitions
            ]
            topics.append(shape(name=topic.name, partitions=answers))
        return apis.OFFSET_COMMIT.Response(topics=topics)

    def OffsetFetch(self, request, code):
        shape = apis.OFFSET_FETCH.Response.Topics
        return apis.OFFSET_FETCH.Response(
            topics=[
                shape(
                    name=topic.name,
                    partitions=[
                        shape.Partitions(
                            partition_index=index,
                            committed_offset=self.offsets.get((topic.name, index), (-1, ""))[0],
                            metadata=self.offsets.get((topic.name, index), (-1, ""))[1],
                            error_code=code,
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    def ListOffsets(self, request, code):
        shape = apis.LIST_OFFSETS.Response.Topics
        return apis.LIST_OFFSETS.Response(
            topics=[
                shape(
                    name=topic.name,
                    partitions=[
                        shape.Partitions(partition_index=one.partition_index, offset=0, error_code=code)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def Fetch(self, request, code):
        """Answer with up to ten records in each partition."""
        shape = apis.FETCH.Response.Responses
        data = build([(0, None, b"%d" % number, ()) for number in range(10)])
        if not any(one.fetch_offset < 10 for topic in request.topics for one in topic.partitions):
            time.sleep(request.max_wait_ms / 1000)
        return apis.FETCH.Response(
            responses=[
                shape(
                    topic=topic.topic,
                    partitions=[
                        shape.Partitions(
                            partition_index=one.partition,
                            error_code=code,
                            high_watermark=10,
                            records=data if one.fetch_offset < 10 and not code else None,
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


class Events(RebalanceListener):
    def __init__(self):
        self.calls = []

    def on_assigned(self, partitions):
        self.calls.append(("assigned", sorted(partitions)))

    def on_revoked(self, partitions):
        self.calls.append(("revoked", sorted(partitions)))

    def on_lost(self, partitions):
        self.calls.append(("lost", sorted(partitions)))


@pytest.fixture
def coordinator(fake_broker):
    return Coordinator(fake_broker)


@pytest.fixture
def consumer_of(fake_broker):
    created = []

    def make(topics=("t",), listener=None, **more):
        settings = {"auto_offset_reset": "earliest", "heartbeat_interval_s": 0.01, "timeout_s": 5.0, **more}
        consumer = GroupConsumer(fake_broker.address, "g", **settings)
        consumer.subscribe(topics, listener)
        created.append(consumer)
        return consumer

    yield make
    for consumer in created:
        consumer.close()


def poll_until(consumer, condition):
    deadline = time.monotonic() + PATIENCE_S
    records = []
    while not condition():
        records += consumer.poll(0.02)
        assert time.monotonic() < deadline, "it does not happen"
    return records


def joined(consumer):
    return lambda: consumer.positions()


RETRIED = [
    ("FindCoordinator", Errors.COORDINATOR_NOT_AVAILABLE),
    ("JoinGroup", Errors.COORDINATOR_LOAD_IN_PROGRESS),
    ("JoinGroup", Errors.NOT_COORDINATOR),
    ("JoinGroup", Errors.COORDINATOR_NOT_AVAILABLE),
    ("JoinGroup", Errors.UNKNOWN_MEMBER_ID),
    ("JoinGroup", Errors.REBALANCE_IN_PROGRESS),
    ("SyncGroup", Errors.REBALANCE_IN_PROGRESS),
    ("SyncGroup", Errors.NOT_COORDINATOR),
    ("SyncGroup", Errors.UNKNOWN_MEMBER_ID),
    ("SyncGroup", Errors.ILLEGAL_GENERATION),
    ("OffsetFetch", Errors.COORDINATOR_LOAD_IN_PROGRESS),
    ("OffsetFetch", Errors.NOT_COORDINATOR),
    ("OffsetFetch", Errors.UNSTABLE_OFFSET_COMMIT),
    ("ListOffsets", Errors.NOT_LEADER_OR_FOLLOWER),
    ("Fetch", Errors.NOT_LEADER_OR_FOLLOWER),
    ("Fetch", Errors.UNKNOWN_TOPIC_OR_PARTITION),
]


@pytest.mark.parametrize(("api", "code"), RETRIED)
def test_retriable_errors_are_retried(coordinator, consumer_of, api, code):
    coordinator.errors[api] += [code, code]
    consumer = consumer_of()
    records = poll_until(consumer, lambda: consumer.positions() == {("t", 0): 10, ("t", 1): 10})
    expected = [(0, offset) for offset in range(3, 10)] + [(1, offset) for offset in range(10)]
    assert sorted((record.partition, record.offset) for record in records) == expected


@pytest.mark.parametrize("api", ["FindCoordinator", "JoinGroup", "SyncGroup", "OffsetFetch", "ListOffsets", "Fetch"])
def test_a_broker_that_hangs_up_is_asked_again(coordinator, consumer_of, hang_up, api):
    consumer = consumer_of()
    consumer.poll(0)  # the first poll raises if no broker answers
    coordinator.errors[api] += [hang_up, hang_up]
    consumer.enforce_rebalance()
    poll_until(consumer, lambda: consumer.positions() == {("t", 0): 10, ("t", 1): 10})


def test_a_coordinator_that_has_moved_is_found(coordinator, consumer_of, second_broker):
    other = Coordinator(second_broker, node=2)
    consumer = consumer_of(auto_commit=False)
    poll_until(consumer, joined(consumer))
    coordinator.node = 2
    coordinator.errors["OffsetCommit"].append(Errors.NOT_COORDINATOR)
    coordinator.errors["Heartbeat"] += [Errors.NOT_COORDINATOR] * 3
    consumer.commit({("t", 0): 7})
    assert other.offsets["t", 0] == (7, "")
    poll_until(consumer, lambda: second_broker.requests("Heartbeat"))


def test_a_commit_does_not_go_to_a_connection_that_the_coordinator_has_closed(fake_broker, coordinator, consumer_of):
    consumer = consumer_of(auto_commit=False)
    poll_until(consumer, joined(consumer))
    idle = consumer._session.link.connection()
    fake_broker.drop_connections()
    eventually(lambda: not idle.usable)
    errors = []
    consumer.commit_async({("t", 0): 7}, lambda offsets, error: errors.append(error))
    poll_until(consumer, lambda: errors)
    assert errors == [None]


def naming(replica, request):
    """Answer a Fetch as a leader does that names a replica to fetch from instead (KIP-392)."""
    shape = apis.FETCH.Response.Responses
    return apis.FETCH.Response(
        responses=[
            shape(
                topic=topic.topic,
                partitions=[
                    shape.Partitions(
                        partition_index=one.partition, high_watermark=10, preferred_read_replica=replica, records=None
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def test_records_are_fetched_from_the_replica_that_the_leader_names(
    fake_broker, coordinator, consumer_of, second_broker
):
    Coordinator(second_broker)
    coordinator.Fetch = lambda request, code: naming(2, request)
    consumer = consumer_of(rack="r")
    records = poll_until(consumer, lambda: consumer.positions() == {("t", 0): 10, ("t", 1): 10})
    expected = [(0, offset) for offset in range(3, 10)] + [(1, offset) for offset in range(10)]
    assert sorted((record.partition, record.offset) for record in records) == expected
    assert [request.rack_id for request in fake_broker.requests("Fetch")] == ["r"]  # the leader gets only one Fetch


@pytest.mark.parametrize("code", [Errors.OFFSET_OUT_OF_RANGE, Errors.NOT_LEADER_OR_FOLLOWER])
def test_the_leader_is_asked_again_after_an_error_of_the_replica_that_it_has_named(
    coordinator, consumer_of, second_broker, code
):
    Coordinator(second_broker).errors["Fetch"] += [code]
    from_the_log = coordinator.Fetch

    def fetch(request, none):
        return from_the_log(request, none) if second_broker.requests("Fetch") else naming(2, request)

    coordinator.Fetch = fetch
    consumer = consumer_of(rack="r")
    records = poll_until(consumer, lambda: consumer.positions() == {("t", 0): 10, ("t", 1): 10})
    expected = [(0, offset) for offset in range(3, 10)] + [(1, offset) for offset in range(10)]
    assert sorted((record.partition, record.offset) for record in records) == expected


def test_a_refused_connection_is_an_error_at_the_first_poll():
    with socket.socket() as bound:  # the port is taken, but nothing listens
        bound.bind(("127.0.0.1", 0))
        with GroupConsumer(f"127.0.0.1:{bound.getsockname()[1]}", "g") as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(ConnectionFailed, match="Is a broker listening there"):
                consumer.poll()


def test_the_member_id_that_it_is_given_is_used(fake_broker, coordinator, consumer_of):
    coordinator.errors["JoinGroup"].append(Errors.MEMBER_ID_REQUIRED)
    consumer = consumer_of()
    poll_until(consumer, joined(consumer))
    assert [request.member_id for request in fake_broker.requests("JoinGroup")] == ["", "given"]
    assert consumer.group_metadata().member_id == "given"


@pytest.mark.parametrize(
    ("code", "what", "member_id"),
    [
        (Errors.REBALANCE_IN_PROGRESS, "revoked", "member-1"),
        (Errors.UNKNOWN_MEMBER_ID, "lost", ""),
        (Errors.ILLEGAL_GENERATION, "lost", "member-1"),
    ],
)
def test_it_joins_again_when_a_heartbeat_says_so(fake_broker, coordinator, consumer_of, code, what, member_id):
    events = Events()
    consumer = consumer_of(listener=events, assignors=["range"])
    poll_until(consumer, joined(consumer))
    coordinator.errors["Heartbeat"].append(code)
    poll_until(consumer, lambda: coordinator.generation == 2 and consumer.positions())
    held = [("t", 0), ("t", 1)]
    assert events.calls == [("assigned", held), (what, held), ("assigned", held)]
    again = fake_broker.requests("JoinGroup")[1]
    assert again.member_id == member_id
    assert again.reason


@pytest.mark.parametrize("code", [Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION])
@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup", "OffsetCommit"])
def test_a_cooperative_member_drops_its_partitions_when_it_is_lost_in_a_rebalance(
    fake_broker, coordinator, consumer_of, api, code
):
    events = Events()
    consumer = consumer_of(listener=events, assignors=["cooperative-sticky"], max_records=1, auto_commit_interval_s=1e6)
    first = poll_until(consumer, lambda: len(consumer.positions()) == 2 and consumer.positions()["t", 0] > 3)
    assert max(record.offset for record in first) < 8, "the consumer has more fetched than it has handed out"
    coordinator.offsets = {("t", 0): (8, ""), ("t", 1): (8, "")}  # the next owner's commits
    coordinator.errors[api].append(code)
    if api != "OffsetCommit":
        # This case does not test the commit before the rebalance.
        coordinator.errors["OffsetCommit"].append(Errors.OFFSET_METADATA_TOO_LARGE)
    consumer.enforce_rebalance()
    held, after = [("t", 0), ("t", 1)], []
    deadline = time.monotonic() + PATIENCE_S
    while consumer.positions() != {("t", 0): 10, ("t", 1): 10} or len(after) < 4:
        assert time.monotonic() < deadline, "it does not happen"
        records = consumer.poll(0.02)
        if ("lost", held) in events.calls:
            after += records  # includes the records of the poll that notices the loss
    assert sorted((record.partition, record.offset) for record in after) == [(0, 8), (0, 9), (1, 8), (1, 9)]
    assert events.calls == [("assigned", held), ("lost", held), ("assigned", held)]
    joins = [SUBSCRIPTION.decode(one.protocols[0].metadata)[1] for one in fake_broker.requests("JoinGroup")]
    assert joins[-1].owned_partitions == [], "it does not claim what others may own"


@pytest.mark.parametrize(
    ("assignor", "events_after"),
    [
        ("cooperative-sticky", [("assigned", [("u", 0)])]),
        ("range", [("revoked", [("t", 0), ("t", 1)]), ("assigned", [("t", 0), ("t", 1), ("u", 0)])]),
    ],
)
def test_an_assignment_that_comes_between_two_polls_is_taken_before_the_member_joins_again(
    fake_broker, coordinator, consumer_of, assignor, events_after
):
    events, may_answer, sync = Events(), threading.Event(), coordinator.SyncGroup

    def sync_later(request, code):
        assert may_answer.wait(PATIENCE_S)
        return sync(request, code)

    coordinator.SyncGroup = sync_later
    consumer = consumer_of(listener=events, assignors=[assignor])
    poll_until(consumer, lambda: fake_broker.requests("SyncGroup"))
    assert events.calls == []
    may_answer.set()
    assert consumer._session.link.connection().wait_for_answer(PATIENCE_S)
    consumer.subscribe(["t", "u"], events)
    poll_until(consumer, lambda: len(consumer.positions()) == 3)
    assert events.calls == [("assigned", [("t", 0), ("t", 1)]), *events_after]
    again = SUBSCRIPTION.decode(fake_broker.requests("JoinGroup")[1].protocols[0].metadata)[1]
    owned = [(one.topic, sorted(one.partitions)) for one in again.owned_partitions]
    assert owned == ([("t", [0, 1])] if assignor == "cooperative-sticky" else [])


def test_a_member_lost_during_the_lookup_of_positions_returns_no_records(coordinator, consumer_of, monkeypatch):
    monkeypatch.setattr(group_consumer, "BACKOFF_S", 0.0)
    events = Events()
    coordinator.errors["OffsetFetch"] += [Errors.UNSTABLE_OFFSET_COMMIT] * 1000
    consumer = consumer_of(listener=events, max_records=1, auto_commit_interval_s=0.0)
    poll_until(consumer, lambda: consumer.assignment)
    consumer.seek("t", 0, 3)
    poll_until(consumer, lambda: consumer.positions() == {("t", 0): 4})
    # The response to the commit is read before that to OffsetFetch, which asks for partition 1 again.
    coordinator.errors["OffsetCommit"].append(Errors.UNKNOWN_MEMBER_ID)
    assert consumer.poll(0.02) == []
    assert coordinator.errors["OffsetCommit"] == []
    poll_until(consumer, lambda: ("lost", [("t", 0), ("t", 1)]) in events.calls)


def test_heartbeats_continue_until_the_caller_joins_again(fake_broker, coordinator, consumer_of):
    consumer = consumer_of()
    poll_until(consumer, joined(consumer))
    coordinator.errors["Heartbeat"] += [Errors.REBALANCE_IN_PROGRESS] * 3
    deadline = time.monotonic() + PATIENCE_S
    while coordinator.errors["Heartbeat"]:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert coordinator.generation == 1
    poll_until(consumer, lambda: coordinator.generation == 2)


@pytest.mark.parametrize("late_in", ["between two polls", "the listener", "the last commit"])
def test_a_member_that_leaves_for_polling_too_late_does_not_join_with_that_id(
    fake_broker, coordinator, consumer_of, monkeypatch, hang_up, late_in
):
    leaves, joined_again = threading.Event(), threading.Event()

    def warning(*_):
        leaves.set()
        joined_again.wait(PATIENCE_S)

    monkeypatch.setattr(heartbeats.log, "warning", warning)
    consumer = consumer_of(max_poll_interval_s=0.1, auto_commit=late_in == "the last commit")
    poll_until(consumer, joined(consumer))

    def until_it_leaves(*_):
        assert leaves.wait(PATIENCE_S)
        return hang_up

    # The heartbeats' thread finds that the member polled too late; before it sends LeaveGroup, the caller is back.
    if late_in == "between two polls":
        until_it_leaves()
    elif late_in == "the listener":
        monkeypatch.setattr(RebalanceListener, "on_revoked", until_it_leaves)
    else:
        fake_broker.answers[apis.OFFSET_COMMIT.key] = until_it_leaves
    consumer.enforce_rebalance()
    poll_until(consumer, lambda: coordinator.generation == 2)
    joined_again.set()
    poll_until(consumer, lambda: fake_broker.requests("LeaveGroup"))
    left = {one.member_id for request in fake_broker.requests("LeaveGroup") for one in request.members}
    assert "member-1" in left
    assert not left.intersection(request.member_id for request in fake_broker.requests("JoinGroup"))


def test_a_heartbeat_thread_that_cannot_be_started_is_started_by_a_later_poll(
    fake_broker, coordinator, consumer_of, monkeypatch
):
    start, refused = threading.Thread.start, []

    def once_refused(thread):
        if thread.name == "kafkapy-heartbeats" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", once_refused)
    consumer = consumer_of(auto_commit=False)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        poll_until(consumer, joined(consumer))
    poll_until(consumer, lambda: consumer.positions() and fake_broker.requests("Heartbeat"))


def test_a_consumer_whose_heartbeat_thread_cannot_be_started_can_be_closed(coordinator, consumer_of, monkeypatch):
    start = threading.Thread.start

    def refused(thread):
        if thread.name == "kafkapy-heartbeats":
            raise RuntimeError("can't start new thread")
        start(thread)

    consumer = consumer_of(auto_commit=False)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            poll_until(consumer, joined(consumer))
    consumer.close()


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (Errors.FENCED_INSTANCE_ID, "another consumer has joined with the instance id 'i'"),
        (Errors.INCONSISTENT_GROUP_PROTOCOL, "no assignor in common"),
        (Errors.GROUP_MAX_SIZE_REACHED, r"group\.max\.size"),
        (Errors.INVALID_SESSION_TIMEOUT, r"group\.min and group\.max\.session\.timeout\.ms"),
        (Errors.GROUP_AUTHORIZATION_FAILED, "group 'g'"),
    ],
)
def test_a_refused_join_raises_an_error_with_advice(coordinator, consumer_of, code, advice):
    coordinator.errors["JoinGroup"].append(code)
    consumer = consumer_of(instance_id="i")
    with pytest.raises(GroupFailed, match=advice) as error:
        poll_until(consumer, joined(consumer))
    assert error.value.code == code


def test_poll_raises_when_the_group_instance_is_fenced(coordinator, consumer_of):
    consumer = consumer_of(instance_id="i")
    poll_until(consumer, joined(consumer))
    coordinator.errors["Heartbeat"].append(Errors.FENCED_INSTANCE_ID)
    with pytest.raises(GroupFailed, match="instance id 'i'"):
        poll_until(consumer, lambda: False)


@pytest.mark.parametrize(
    "code",
    [
        Errors.COORDINATOR_LOAD_IN_PROGRESS,
        Errors.NOT_COORDINATOR,
        Errors.COORDINATOR_NOT_AVAILABLE,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.REQUEST_TIMED_OUT,
    ],
)
def test_a_commit_is_tried_again(coordinator, consumer_of, code):
    consumer = consumer_of(auto_commit=False)
    poll_until(consumer, joined(consumer))
    coordinator.errors["OffsetCommit"] += [code] * 3
    consumer.commit({("t", 0): OffsetAndMetadata(7, "m")})
    assert coordinator.offsets["t", 0] == (7, "m")


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (Errors.REBALANCE_IN_PROGRESS, r"call poll\(\) and then commit again"),
        (Errors.UNKNOWN_MEMBER_ID, "poll more often"),
        (Errors.ILLEGAL_GENERATION, "poll more often"),
        (Errors.FENCED_INSTANCE_ID, "give each its own"),
    ],
)
def test_a_commit_of_an_unknown_member_fails_and_it_joins_again(coordinator, consumer_of, code, advice):
    consumer = consumer_of(auto_commit=False)
    poll_until(consumer, joined(consumer))
    coordinator.errors["OffsetCommit"].append(code)
    with pytest.raises(CommitFailed, match=advice):
        consumer.commit({("t", 0): 7})
    if code != Errors.FENCED_INSTANCE_ID:
        poll_until(consumer, lambda: coordinator.generation == 2 and consumer.positions())
    consumer.commit({("t", 0): 8})
    assert coordinator.offsets["t", 0] == (8, "")


def test_a_commit_that_cannot_succeed_raises_with_the_partition(coordinator, consumer_of):
    consumer = consumer_of(auto_commit=False)
    poll_until(consumer, joined(consumer))
    coordinator.errors["OffsetCommit"].append(Errors.OFFSET_METADATA_TOO_LARGE)
    with pytest.raises(KafkaError, match="group 'g' in t-0"):
        consumer.commit({("t", 0): 7})


def test_nothing_is_committed_while_the_group_rebalances(coordinator, consumer_of, silence):
    consumer = consumer_of(assignors=["cooperative-sticky"], auto_commit=False)
    poll_until(consumer, joined(consumer))
    coordinator.errors["JoinGroup"].append(silence)
    consumer.enforce_rebalance()
    poll_until(consumer, lambda: len(coordinator.broker.requests("JoinGroup")) == 2)  # one comes after a pause
    with pytest.raises(CommitFailed, match="commit again"):
        consumer.commit()
    assert consumer.committed([("t", 0)]) == {("t", 0): OffsetAndMetadata(3)}


def test_a_cooperative_member_reads_records_during_a_rebalance(coordinator, consumer_of, silence):
    consumer = consumer_of(assignors=["cooperative-sticky"], auto_commit=False, max_records=1)
    poll_until(consumer, joined(consumer))
    coordinator.errors["JoinGroup"].append(silence)
    consumer.enforce_rebalance()
    poll_until(consumer, lambda: consumer.positions() == {("t", 0): 10, ("t", 1): 10})


def test_a_closed_member_commits_and_leaves_the_group_with_a_reason(fake_broker, coordinator, consumer_of):
    consumer = consumer_of(auto_commit_interval_s=1000.0)
    poll_until(consumer, lambda: consumer.positions() == {("t", 0): 10, ("t", 1): 10})
    consumer.close()
    (left,) = fake_broker.requests("LeaveGroup")
    assert [(one.member_id, one.reason) for one in left.members] == [("member-1", "it is closed")]
    assert coordinator.offsets == {("t", 0): (10, ""), ("t", 1): (10, "")}


def test_a_closed_static_member_sends_no_leave_group(fake_broker, coordinator, consumer_of):
    consumer = consumer_of(instance_id="i")
    poll_until(consumer, joined(consumer))
    consumer.close()
    assert fake_broker.requests("LeaveGroup") == []


def test_the_leader_shares_out_what_the_group_subscribes(fake_broker, coordinator, consumer_of):
    other = SUBSCRIPTION.encode(SUBSCRIPTION.Message(topics=["u", "gone"]), 0)
    future = (99).to_bytes(2, "big") + SUBSCRIPTION.encode(SUBSCRIPTION.Message(topics=["t"]), 3)[2:] + b"more"
    shape = apis.JOIN_GROUP.Response.Members
    coordinator.others = [shape(member_id="a", metadata=other), shape(member_id="b", metadata=future)]
    consumer = consumer_of(assignors=["range"])
    poll_until(consumer, joined(consumer))
    assert sorted(consumer.assignment) == [("t", 1)]  # "b" comes before "member-1"
    assert set(coordinator.shares) == {"a", "b", "member-1"}


def test_requests_to_an_old_broker_have_a_version_that_it_knows(fake_broker, coordinator, consumer_of):
    for api, newest in (("JOIN_GROUP", 0), ("SYNC_GROUP", 0), ("HEARTBEAT", 0), ("LEAVE_GROUP", 0)):
        fake_broker.versions[getattr(apis, api).key] = (0, newest)
    for api, newest in (("FIND_COORDINATOR", 0), ("OFFSET_COMMIT", 2), ("OFFSET_FETCH", 1), ("FETCH", 2)):
        fake_broker.versions[getattr(apis, api).key] = (0, newest)
    consumer = consumer_of()
    poll_until(consumer, lambda: consumer.positions() == {("t", 0): 10, ("t", 1): 10})
    consumer.commit()
    consumer.close()
    assert coordinator.offsets == {("t", 0): (10, ""), ("t", 1): (10, "")}
    assert [request.member_id for request in fake_broker.requests("LeaveGroup")] == ["member-1"]


def test_metadata_is_refreshed_from_time_to_time_for_an_unknown_leader(
    fake_broker, coordinator, consumer_of, monkeypatch
):
    monkeypatch.setattr(fetcher, "BACKOFF_S", 1000.0)
    coordinator.offsets = {("t", 0): (3, ""), ("t", 1): (3, "")}
    fake_broker.topics["t"] = [-1, -1]
    consumer = consumer_of(auto_commit=False)
    poll_until(consumer, joined(consumer))
    consumer.poll(0)

    def asked():
        return len([request for request in fake_broker.requests("Metadata") if request.topics])

    before = asked()
    consumer.poll(0.1)
    assert asked() == before
    assert fake_broker.requests("Fetch") == []


def test_a_member_that_sends_no_subscription_is_named(coordinator, consumer_of):
    coordinator.others = [apis.JOIN_GROUP.Response.Members(member_id="broken-one", metadata=b"\0\0\0\0\xff\xff")]
    consumer = consumer_of()
    with pytest.raises(KafkaError, match="the group's member 'broken-one' sends a malformed subscription"):
        poll_until(consumer, joined(consumer))
    coordinator.others = []
    poll_until(consumer, joined(consumer))


def test_an_assignment_that_cannot_be_read_leaves_nothing_to_read(coordinator, consumer_of):
    events = Events()
    consumer = consumer_of(listener=events)
    poll_until(consumer, joined(consumer))
    right, coordinator.SyncGroup = (
        coordinator.SyncGroup,
        lambda request, code: apis.SYNC_GROUP.Response(assignment=b"?"),
    )
    coordinator.errors["Heartbeat"].append(Errors.REBALANCE_IN_PROGRESS)
    with pytest.raises(KafkaError, match="the group's leader sends a malformed assignment"):
        poll_until(consumer, lambda: False)
    coordinator.SyncGroup = right
    poll_until(consumer, lambda: events.calls[-1] == ("assigned", [("t", 0), ("t", 1)]) and len(events.calls) == 3)
    assert events.calls[1] == ("revoked", [("t", 0), ("t", 1)])


def test_partitions_that_are_assigned_twice_are_read_once(coordinator, consumer_of):
    shape = ASSIGNMENT.Message
    twice = shape(assigned_partitions=[shape.AssignedPartitions(topic="t", partitions=[1, 1, 0, 1])])
    data = ASSIGNMENT.encode(twice, 0)
    coordinator.SyncGroup = lambda request, code: apis.SYNC_GROUP.Response(assignment=data)
    events = Events()
    consumer = consumer_of(listener=events)
    poll_until(consumer, joined(consumer))
    assert events.calls == [("assigned", [("t", 0), ("t", 1)])]


def test_a_coordinator_that_gives_new_member_ids_again_and_again_is_an_error(fake_broker, coordinator, consumer_of):
    coordinator.errors["JoinGroup"] += [Errors.MEMBER_ID_REQUIRED] * 1000
    consumer = consumer_of()
    with pytest.raises(KafkaError, match="MEMBER_ID_REQUIRED"):
        poll_until(consumer, joined(consumer))
    assert len(fake_broker.requests("JoinGroup")) == 2


def test_records_of_partitions_that_were_not_requested_are_ignored(coordinator, consumer_of):
    right = coordinator.Fetch

    def with_more(request, code):
        answer = right(request, code)
        shape = apis.FETCH.Response.Responses
        answer.responses.append(shape(topic="other", partitions=[shape.Partitions(partition_index=0, error_code=1)]))
        return answer

    coordinator.Fetch = with_more
    consumer = consumer_of()
    poll_until(consumer, lambda: consumer.positions() == {("t", 0): 10, ("t", 1): 10})


def test_offsets_of_partitions_that_were_not_requested_are_ignored(coordinator, consumer_of):
    right = coordinator.ListOffsets

    def with_more(request, code):
        answer = right(request, code)
        shape = apis.LIST_OFFSETS.Response.Topics
        answer.topics.append(shape(name="other", partitions=[shape.Partitions(partition_index=0, offset=3)]))
        return answer

    coordinator.ListOffsets = with_more
    consumer = consumer_of()
    poll_until(consumer, lambda: consumer.positions() == {("t", 0): 10, ("t", 1): 10})
