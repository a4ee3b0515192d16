"""Objects of requests are freed when the requests are answered: no reference cycle keeps them.

Only the garbage collector frees a reference cycle. The collector runs rarely in a broker (kafkapy.tools.start), and all
threads wait for it: freeing the cycles of some thousand requests takes a tenth of a second.
"""

import itertools
import logging

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.record.batch import build
from kafkapy.record.legacy import build_set
from tests.harness.reference_cycles import objects_left_in_cycles
from tests.harness.waiting import eventually
from tests.server.lab import NOW, Lab, batch, busy, cold, fetch_of, produce_of, receive, send

TIMES = 20
KINDS = {}


def kind(setup):
    """Register a kind of request: `setup(lab, monkeypatch)` returns the step that the test repeats."""
    KINDS[setup.__name__] = setup
    return setup


@pytest.fixture(scope="module", params=["", "127.0.0.1:0"], ids=["plain", "metrics"])
def lab(request, tmp_path_factory):
    new_lab = Lab(tmp_path_factory.mktemp("cycles"), kafkapy_metrics_listen=request.param)
    yield new_lab
    new_lab.stop()


def good(answer):
    assert answer.error_code == Errors.NONE, answer
    return answer


# --- produce


@kind
def produce_without_answer(lab, monkeypatch):
    topic = lab.topic()

    def step():
        lab.produce(topic, acks=0)
        lab.wire.end_offset(topic, 0)

    return step


@kind
def produce(lab, monkeypatch):
    topic = lab.topic()

    def step():
        good(lab.produce(topic, acks=1))
        good(lab.produce(topic, acks=-1))

    return step


@kind
def produce_refused(lab, monkeypatch):
    topic = lab.topic()
    damaged = bytearray(batch())
    damaged[-1] ^= 1

    def step():
        assert lab.produce(topic, bytes(damaged)).error_code == Errors.CORRUPT_MESSAGE
        assert lab.produce("nowhere").error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION

    return step


@kind
def produce_with_acks_0_refused(lab, monkeypatch):
    open_ones = len(lab.processor)

    def step():
        wire = lab.connect()
        send(wire, apis.PRODUCE, 9, **produce_of("nowhere", acks=0))
        assert wire.socket.recv(1) == b""
        wire.socket.close()
        lab.until_connections(open_ones)

    return step


@kind
def produce_idempotent(lab, monkeypatch):
    topic, sequences, producer = lab.topic(), itertools.count(), lab.wire.init(None)

    def step():
        data = batch(producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=next(sequences))
        good(lab.produce(topic, data, -1))
        good(lab.produce(topic, data, -1))  # again

    return step


@kind
def produce_old_formats_and_codecs(lab, monkeypatch):
    topic, compressed = lab.topic(), lab.topic(compression_type="zstd")

    def step():
        good(lab.produce(topic, build_set([(NOW, b"k", b"v")], 1), version=2))
        good(lab.produce(topic, build_set([(NOW, b"k", b"v")], 0), version=1))
        good(lab.produce(compressed, batch(codec=1)))

    return step


@kind
def produce_that_waits_for_a_flush(lab, monkeypatch):
    topic = lab.topic(flush_messages="1")
    return lambda: good(lab.produce(topic, acks=-1))


@kind
def produce_that_waits_for_the_pool(lab, monkeypatch):
    topic = lab.topic()
    busy(monkeypatch, "append")
    return lambda: good(lab.produce(topic))


@kind
def produce_of_connections_together(lab, monkeypatch):
    topic, flushed = lab.topic(), lab.topic(flush_messages="1")
    wires = [lab.connect() for _ in range(4)]

    def step():
        with lab.held():
            for wire in wires:
                send(wire, apis.PRODUCE, 9, **produce_of(topic))
                send(wire, apis.PRODUCE, 9, **produce_of(flushed))
        for wire in wires:
            receive(wire)
            receive(wire)

    return step


# --- fetch


@kind
def fetch(lab, monkeypatch):
    topic = lab.topic()
    good(lab.produce(topic))

    def step():
        lab.fetch(topic)
        lab.fetch(topic, 1)
        assert lab.fetch(topic, 7).responses[0].partitions[0].error_code == Errors.OFFSET_OUT_OF_RANGE

    return step


@kind
def fetch_of_regions(lab, monkeypatch):
    topic = lab.topic()
    good(lab.produce(topic, batch_of(100_000)))
    return lambda: lab.fetch(topic)


def batch_of(size):
    return build([(NOW, None, bytes(size), [])])


@kind
def fetch_that_waits(lab, monkeypatch):
    topic, ends = lab.topic(), itertools.count()
    reader = lab.connect()

    def step():
        send(reader, apis.FETCH, 11, **fetch_of(topic, next(ends), 10_000))
        lab.until_waiting()
        good(lab.produce(topic))
        receive(reader)

    return step


@kind
def fetch_that_waits_for_the_pool(lab, monkeypatch):
    topic, ends = lab.topic(), itertools.count()
    reader = lab.connect()
    busy(monkeypatch, "read")

    def step():
        send(reader, apis.FETCH, 11, **fetch_of(topic, next(ends), 10_000))
        lab.until_waiting()
        good(lab.produce(topic))
        receive(reader)
        lab.fetch(topic)

    return step


@kind
def fetch_that_waits_in_vain(lab, monkeypatch):
    topic = lab.topic()
    return lambda: lab.fetch(topic, wait=1)


@kind
def fetch_in_a_session(lab, monkeypatch):
    topic, other, epochs = lab.topic(), lab.topic(), itertools.count(1)
    session = lab.fetch(topic, session=(0, 0)).session_id

    def step():
        lab.fetch(session=(session, next(epochs)), wait=1)
        good(lab.produce(topic))
        lab.fetch(session=(session, next(epochs)), wait=1)
        lab.fetch(topic, session=(lab.fetch(other, session=(0, 0)).session_id, -1))  # opened and closed

    return step


@kind
def fetch_whose_client_goes(lab, monkeypatch):
    topic, open_ones = lab.topic(), len(lab.processor)

    def step():
        wire = lab.connect()
        send(wire, apis.FETCH, 11, **fetch_of(topic, 0, 600_000))
        lab.until_waiting()
        wire.socket.close()
        lab.until_waiting(0)
        lab.until_connections(open_ones)

    return step


@kind
def fetch_whose_topic_goes(lab, monkeypatch):
    reader = lab.connect()

    def step():
        topic = lab.topic()
        send(reader, apis.FETCH, 11, **fetch_of(topic, 0, 600_000))
        lab.until_waiting()
        lab.wire.call(apis.DELETE_TOPICS, 1, topic_names=[topic], timeout_ms=10_000)
        receive(reader)

    return step


@kind
def fetch_cold(lab, monkeypatch):
    topic = lab.topic()
    for _ in range(4):
        good(lab.produce(topic, batch_of(300_000)))
    cold(lab, monkeypatch)
    open_ones = len(lab.processor)

    def step():
        lab.fetch(topic)
        wire = lab.connect()
        for _ in range(4):
            send(wire, apis.FETCH, 11, **fetch_of(topic))
        wire.socket.recv(1000)
        wire.socket.close()
        lab.until_connections(open_ones)

    return step


@kind
def fetch_converted_for_old_clients(lab, monkeypatch):
    topic = lab.topic()
    good(lab.produce(topic, batch(codec=1)))
    ends = itertools.count(1)
    reader = lab.connect()

    def step():
        for version in (0, 2, 3):
            lab.fetch(topic, version=version)
        send(reader, apis.FETCH, 2, **fetch_of(topic, next(ends), 10_000))
        lab.until_waiting()
        good(lab.produce(topic))
        receive(reader)

    return step


# --- other requests


@kind
def metadata_and_offsets(lab, monkeypatch):
    topic = lab.topic(3)
    good(lab.produce(topic))
    epochs = apis.OFFSET_FOR_LEADER_EPOCH.Request
    lists = apis.LIST_OFFSETS.Request

    def step():
        lab.wire.call(apis.API_VERSIONS, 3, client_software_name="a", client_software_version="1")
        lab.wire.call(apis.METADATA, 12, topics=None)
        lab.wire.call(apis.METADATA, 5, topics=[apis.METADATA.Request.Topics(name="nowhere")])
        lab.wire.call(apis.DESCRIBE_CLUSTER, 0)
        for at in (-1, -2, -3, NOW):
            part = lists.Topics.Partitions(partition_index=0, timestamp=at)
            for version in (0, 1, 7):
                asked = [lists.Topics(name=topic, partitions=[part])]
                lab.wire.call(apis.LIST_OFFSETS, version, replica_id=-1, topics=asked)
        part = epochs.Topics.Partitions(partition=0, leader_epoch=0)
        lab.wire.call(apis.OFFSET_FOR_LEADER_EPOCH, 3, topics=[epochs.Topics(topic=topic, partitions=[part])])

    return step


@kind
def topics_made_and_deleted(lab, monkeypatch):
    more = apis.CREATE_PARTITIONS.Request.Topics

    def step():
        topic = lab.topic(2)
        good(lab.produce(topic))
        lab.wire.call(apis.CREATE_PARTITIONS, 1, topics=[more(name=topic, count=3)], timeout_ms=10_000)
        lab.wire.call(apis.DELETE_TOPICS, 1, topic_names=[topic, "nowhere"], timeout_ms=10_000)

    return step


@kind
def administration(lab, monkeypatch):
    topic = lab.topic()
    describe = apis.DESCRIBE_CONFIGS.Request.Resources
    alter = apis.INCREMENTAL_ALTER_CONFIGS.Request.Resources
    doomed = apis.DELETE_RECORDS.Request.Topics
    producers = apis.DESCRIBE_PRODUCERS.Request.Topics

    def step():
        asked = [describe(resource_type=2, resource_name=topic, configuration_keys=None)]
        lab.wire.call(apis.DESCRIBE_CONFIGS, 1, resources=asked)
        changes = [alter.Configs(name="retention.ms", config_operation=0, value="100000")]
        asked = [alter(resource_type=2, resource_name=topic, configs=changes)]
        lab.wire.call(apis.INCREMENTAL_ALTER_CONFIGS, 0, resources=asked)
        good(lab.produce(topic))
        asked = [doomed(name=topic, partitions=[doomed.Partitions(partition_index=0, offset=-1)])]
        lab.wire.call(apis.DELETE_RECORDS, 1, topics=asked, timeout_ms=10_000)
        lab.wire.call(apis.DESCRIBE_LOG_DIRS, 1, topics=None)
        lab.wire.call(apis.DESCRIBE_PRODUCERS, 0, topics=[producers(name=topic, partition_indexes=[0])])
        lab.wire.call(apis.ELECT_LEADERS, 1, topic_partitions=None, timeout_ms=1000)
        lab.wire.call(apis.LIST_PARTITION_REASSIGNMENTS, 0, topics=None, timeout_ms=1000)

    return step


# --- groups


@kind
def members_alone(lab, monkeypatch):
    topic, wire = lab.topic(), lab.group

    def step():
        group = lab.name()
        member, generation = wire.join(group, [topic])
        good(
            wire.call(
                apis.HEARTBEAT, 3, apis.HEARTBEAT.Request(group_id=group, generation_id=generation, member_id=member)
            )
        )
        assert set(wire.commit(group, {(topic, 0): 1}, generation=generation, member=member).values()) == {0}
        wire.fetch(group, {topic: [0]})
        wire.state_of(group)
        good(wire.call(apis.LEAVE_GROUP, 1, apis.LEAVE_GROUP.Request(group_id=group, member_id=member)))
        wire.call(apis.LIST_GROUPS, 4, apis.LIST_GROUPS.Request())
        wire.delete_offsets(group, {topic: [0]})
        wire.call(apis.DELETE_GROUPS, 1, apis.DELETE_GROUPS.Request(groups_names=[group]))

    return step


def join_of(group, member_id=""):
    protocol = apis.JOIN_GROUP.Request.Protocols(name="range", metadata=b"")
    return {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [protocol],
    }


class Two:
    """The leader of a consumer group, whose other members join and leave."""

    def __init__(self, lab):
        self.group, self.wire = lab.name(), lab.connect()
        self.answer = good(self.wire.call(apis.JOIN_GROUP, 2, **join_of(self.group)))
        self.member = self.answer.member_id
        self._sync()

    def until_rebalance(self):
        fields = {"group_id": self.group, "generation_id": self.answer.generation_id, "member_id": self.member}
        eventually(lambda: self.wire.call(apis.HEARTBEAT, 1, **fields).error_code == Errors.REBALANCE_IN_PROGRESS)

    def join(self):
        """Send the leader's join, which completes the rebalance. Return the ids of the other members."""
        self.answer = good(self.wire.call(apis.JOIN_GROUP, 2, **join_of(self.group, self.member)))
        return [one.member_id for one in self.answer.members if one.member_id != self.member]

    def goes(self, other):
        good(self.wire.call(apis.LEAVE_GROUP, 1, group_id=self.group, member_id=other))
        self.join()
        self._sync()

    def _sync(self):
        good(self.wire.call(apis.SYNC_GROUP, 1, **self.sync_of(self.member, [self.member])))

    def sync_of(self, member, assigned=()):
        share = apis.SYNC_GROUP.Request.Assignments
        return {
            "group_id": self.group,
            "generation_id": self.answer.generation_id,
            "member_id": member,
            "assignments": [share(member_id=one, assignment=b"a") for one in assigned],
        }


@kind
def members_that_rebalance(lab, monkeypatch):
    """Both members wait once for the other's join, and the follower also for the leader's assignments."""
    two, other = Two(lab), lab.connect()

    def step():
        send(other, apis.JOIN_GROUP, 2, **join_of(two.group))
        two.until_rebalance()
        (follower,) = two.join()
        receive(other)
        send(other, apis.SYNC_GROUP, 1, **two.sync_of(follower))
        good(two.wire.call(apis.SYNC_GROUP, 1, **two.sync_of(two.member, [two.member, follower])))
        receive(other)
        two.goes(follower)

    return step


@kind
def member_whose_client_goes(lab, monkeypatch):
    """The client disconnects while its member waits for another member's join."""
    two = Two(lab)
    open_ones = len(lab.processor)

    def step():
        other = lab.connect()
        send(other, apis.JOIN_GROUP, 2, **join_of(two.group))
        two.until_rebalance()
        other.socket.close()
        lab.until_connections(open_ones)
        (follower,) = two.join()
        two.goes(follower)

    return step


@kind
def offsets_committed(lab, monkeypatch):
    topic, group = lab.topic(), lab.name()

    def step():
        for version in (0, 1, 8):
            assert set(lab.group.commit(group, {(topic, 0): 1}, version=version).values()) == {0}
        lab.group.commit(group, {("nowhere", 0): 1})
        lab.group.commit(group, {(topic, 0): 1}, generation=7, member="nobody")
        for version in (0, 7, 8):
            lab.group.fetch(group, {topic: [0]}, version=version)
        lab.group.offsets(group)

    return step


@kind
def offsets_committed_that_wait_for_the_pool(lab, monkeypatch):
    topic, group = lab.topic(), lab.name()
    busy(monkeypatch, "append")
    return lambda: lab.group.commit(group, {(topic, 0): 1})


@kind
def offsets_committed_together(lab, monkeypatch):
    topic, wires = lab.topic(), [lab.connect() for _ in range(4)]
    partition = apis.OFFSET_COMMIT.Request.Topics.Partitions(partition_index=0, committed_offset=1)
    topics = [apis.OFFSET_COMMIT.Request.Topics(name=topic, partitions=[partition])]

    def step():
        with lab.held():
            for number, wire in enumerate(wires):
                send(wire, apis.OFFSET_COMMIT, 8, group_id=f"group-{number}", topics=topics)
        for wire in wires:
            receive(wire)

    return step


# --- transactions


@kind
def transactions(lab, monkeypatch):
    topic, name, group = lab.topic(), lab.name(), lab.name()
    producer, sequences, commits = lab.wire.producer(name), itertools.count(), itertools.cycle((True, False))

    def step():
        assert lab.wire.add(name, producer, [(topic, 0)]) == [Errors.NONE]
        data = batch(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=next(sequences),
            transactional=True,
        )
        good(lab.produce(topic, data, -1, transactional_id=name))
        assert lab.wire.add_offsets(name, producer, group) == Errors.NONE
        lab.group.commit_in_transaction(name, producer, group, {(topic, 0): 1})
        assert lab.wire.end(name, producer, next(commits)) == Errors.NONE
        lab.wire.wait_for_state(name, "CompleteCommit", "CompleteAbort")
        lab.wire.call(apis.LIST_TRANSACTIONS, 0, state_filters=[], producer_id_filters=[])

    return step


@kind
def producers_begun(lab, monkeypatch):
    name = lab.name()
    lab.wire.producer(name)

    def step():
        lab.wire.init(name)
        lab.wire.init(None)
        lab.wire.init(name, 0)  # refused

    return step


# --- connections


@kind
def connections(lab, monkeypatch):
    open_ones = len(lab.processor)

    def step():
        idle, asking, broken = lab.connect(), lab.connect(), lab.connect()
        asking.call(apis.METADATA, 5, topics=[])
        broken.socket.sendall(b"\x7f" * 8)
        assert broken.socket.recv(1) == b""
        for wire in (idle, asking, broken):
            wire.socket.close()
        lab.until_connections(open_ones)

    return step


@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_left_behind(lab, monkeypatch, caplog, name):
    caplog.set_level(logging.ERROR, "kafkapy")  # caplog keeps every record that it captures
    step = KINDS[name](lab, monkeypatch)
    left = objects_left_in_cycles(step, TIMES)
    assert left.total() < TIMES, f"{TIMES} times {name} left reference cycles of {dict(left.most_common(12))}"
