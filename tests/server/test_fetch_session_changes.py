"""Fetch sessions return the same changes as fetches without a session, which read every partition."""

import os
import struct
import threading
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.append.rules import OwnBatch
from kafkapy.metadata.roles import PartitionRole
from kafkapy.protocol.apis import CREATE_TOPICS, DELETE_TOPICS, FETCH
from kafkapy.record.control import marker_batch
from kafkapy.replica.hosted_partition import READ_COMMITTED, READ_UNCOMMITTED
from tests.harness.appends import append_to
from tests.harness.examples import examples
from tests.harness.wire import Wire
from tests.server.requests import batch, produce, start_broker

VERSION = 12
ZSTD_SINCE = 10
ALL = 1 << 20
PARTITIONS = 2
NAMES = count()
EXAMPLES = int(os.environ.get("KAFKAPY_FAULT_ROUNDS", "30"))


class Everything:
    """A retention policy that deletes every segment that may be deleted."""

    reason = "the test wants it"

    def rules(self, log, now_ms):
        yield self

    def breached(self, segment, following_base_offset):
        return True


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    # Retention in the background could change a partition between a fetch in a session and its comparison.
    started = start_broker(tmp_path_factory.mktemp("sessions"), num_network_threads=2, log_retention_ms=-1)
    yield started
    started.stop()


@pytest.fixture
def scene(server):
    new_scene = Scene(server)
    yield new_scene
    new_scene.close()


class Scene:
    """Two topics of a broker, and methods that change their partitions."""

    def __init__(self, server):
        self.server = server
        self.services = server.services
        self.wires = []
        self.other = self.connect()
        prefix = f"changes-{next(NAMES)}"
        self.topics = [f"{prefix}-a", f"{prefix}-b"]
        for topic in self.topics:
            self.create(topic)

        self.keys = [(topic, index) for topic in self.topics for index in range(PARTITIONS)]

    def connect(self):
        """Return a new connection. The network threads get the connections in turn."""
        self.wires.append(Wire(self.server.bootstrap_servers))
        return self.wires[-1]

    def close(self):
        for wire in self.wires:
            wire.close()

    def create(self, topic):
        make = CREATE_TOPICS.Request
        wanted = make.Topics(name=topic, num_partitions=PARTITIONS, replication_factor=1)
        answer = self.other.call(CREATE_TOPICS, 5, make(topics=[wanted], timeout_ms=9000))
        assert answer.topics[0].error_code == Errors.NONE

    def delete(self, topic):
        answer = self.other.call(DELETE_TOPICS, 5, DELETE_TOPICS.Request(topic_names=[topic], timeout_ms=9000))
        assert answer.responses[0].error_code == Errors.NONE

    def partition(self, key):
        """Return the partition, or None if it is deleted."""
        try:
            return self.services.replicas.get(*key)
        except KafkaError:
            return None

    def append(self, key, records):
        partition = self.partition(key)
        if partition is not None:
            partition.log.verifies_transactions = False
            (verdict,) = append_to(partition, [records])
            assert not isinstance(verdict, KafkaError), verdict

    def begin(self, key, producer_id, sequence):
        settings = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        self.append(key, memoryview(bytearray(batch(b"open", transactional=True, **settings))))

    def end(self, key, producer_id, commit):
        data = marker_batch(producer_id, 0, commit=commit, coordinator_epoch=0, timestamp=1_600_000_000_000)
        self.append(key, OwnBatch(data))

    def append_one(self, key):
        self.append(key, memoryview(bytearray(batch(b"one"))))

    def shorten(self, key):
        """Delete the first remaining record."""
        partition = self.partition(key)
        if partition is not None:
            partition.delete_records(min(partition.log.log_start_offset + 1, partition.log.high_watermark))

    def retain(self, key):
        partition = self.partition(key)
        if partition is not None:
            partition.log.roll()
            partition.log.delete_old_segments(Everything())

    def truncate(self, key):
        partition = self.partition(key)
        if partition is not None:
            log = partition.log
            log.truncate_to(max(log.log_end_offset - 1, log.log_start_offset))

    def lead_again(self, key):
        partition = self.partition(key)
        if partition is not None:
            log, replicas = partition.log, self.services.replicas
            role = PartitionRole(*key, log.topic_id, 0, partition.leader_epoch + 1, 0, [0], [0], is_new=True)
            replicas.make_leader(role, log.config)


class Consumer:
    """A consumer with a fetch session. `wanted` has (offset, most bytes, leader epoch) of each partition, in the order
    in which the broker should read them."""

    def __init__(self, scene, version=VERSION):
        self.scene = scene
        self.wire = scene.connect()
        self.version = version
        self.id = self.epoch = 0
        self.wanted = {}
        self.forgotten = []
        self.named = set()
        self.known = {}

    def want(self, key, offset, most=ALL, epoch=-1):
        self.wanted[key] = (offset, most, epoch)
        self.named.add(key)

    def forget(self, key):
        if self.id and key in self.wanted and len(self.wanted) > 1:
            del self.wanted[key]
            self.known.pop(key, None)
            self.named.discard(key)
            self.forgotten.append(key)

    def _request(self, keys, session, *, max_bytes=ALL, isolation=READ_UNCOMMITTED, wait=0, min_bytes=1):
        make = FETCH.Request
        topics = []
        for key in keys:
            offset, most, epoch = self.wanted[key]
            one = make.Topics.Partitions(
                partition=key[1], fetch_offset=offset, partition_max_bytes=most, current_leader_epoch=epoch
            )
            topics.append(make.Topics(topic=key[0], partitions=[one]))
        request = make(
            replica_id=-1,
            max_wait_ms=wait,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            session_id=session[0],
            session_epoch=session[1],
            topics=topics,
        )
        if session[1] > 0:
            request.forgotten_topics_data = [
                make.ForgottenTopicsData(topic=t, partitions=[i]) for t, i in self.forgotten
            ]
        return request

    def ask(self, **how):
        keys = [key for key in self.wanted if key in self.named]
        self.wire.send(FETCH, self.version, self._request(keys, (self.id, self.epoch), **how))
        self.named.clear()
        self.forgotten.clear()

    def take(self):
        """Receive the response, and return it by partition."""
        _, answer = self.wire.receive(FETCH, self.version)
        assert answer.error_code == Errors.NONE
        self.id, self.epoch = answer.session_id, self.epoch + 1
        return partitions_in(answer)

    def fetch(self, **how):
        self.ask(**how)
        return self.take()

    def settle(self):
        """Fetch until a response is empty."""
        while self.fetch():
            pass

    def expected(self, **how):
        """Return the response expected in the session, computed from a fetch of every partition without a session."""
        answer = self.scene.other.call(FETCH, self.version, self._request(list(self.wanted), (0, -1), **how))
        news, rotated = {}, []
        for key, values in partitions_in(answer).items():
            error, high_watermark, _, start, _, records = values
            if records or error or not self.id or self.known.get(key, (-1, -1)) != (high_watermark, start):
                news[key] = values
            self.known[key] = (-1 if error else high_watermark, start)
            if records and self.id:
                rotated.append(key)
        for key in rotated:
            self.wanted[key] = self.wanted.pop(key)
        return news


def partitions_in(answer):
    return {
        (topic.topic, one.partition_index): (
            one.error_code,
            one.high_watermark,
            one.last_stable_offset,
            one.log_start_offset,
            [(each.producer_id, each.first_offset) for each in one.aborted_transactions or []],
            bytes(one.records),
        )
        for topic in answer.responses
        for one in topic.partitions
    }


def end_of(records, offset):
    """Return the offset after the last whole batch."""
    at = 0
    while at + 61 <= len(records):
        base, size = struct.unpack_from(">qi", records, at)
        if at + 12 + size > len(records):
            break
        (delta,) = struct.unpack_from(">i", records, at + 23)
        offset, at = base + delta + 1, at + 12 + size
    return offset


TOPIC = st.integers(0, 1)
KEY = st.tuples(TOPIC, st.integers(0, PARTITIONS - 1))
PRODUCER = st.integers(1, 2)
ISOLATION = st.sampled_from([READ_UNCOMMITTED, READ_COMMITTED])


class Sessions(RuleBasedStateMachine):
    """Random changes and fetches: each fetch in the session returns what a read of every partition would return."""

    server = None

    @initialize(version=st.sampled_from([VERSION, VERSION, ZSTD_SINCE - 1]), isolation=ISOLATION)
    def begin(self, version, isolation):
        self.scene = Scene(self.server)
        self.consumer = Consumer(self.scene, version)
        self.gone = set()
        self.open = {}
        self.sequences = {}
        self.isolation = isolation
        for key in self.scene.keys:
            self.consumer.want(key, 0)
        self.compare(ALL)

    def teardown(self):
        if hasattr(self, "scene"):
            self.scene.close()

    def key(self, drawn):
        return self.scene.topics[drawn[0]], drawn[1]

    @rule(drawn=KEY, size=st.sampled_from([1, 300]))
    def append(self, drawn, size):
        self.scene.append(self.key(drawn), batch(b"x" * size, b"y"))

    @rule(drawn=KEY, producer=PRODUCER)
    def in_a_transaction(self, drawn, producer):
        at = (drawn, producer)
        if drawn[0] not in self.gone:
            self.scene.begin(self.key(drawn), producer, self.sequences.get(at, 0))
            self.sequences[at] = self.sequences.get(at, 0) + 1
            self.open[at] = True

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commit=st.booleans())
    def end_a_transaction(self, data, commit):
        drawn, producer = at = data.draw(st.sampled_from(sorted(self.open)))
        del self.open[at]
        self.scene.end(self.key(drawn), producer, commit)

    @rule(drawn=KEY)
    def shorten(self, drawn):
        self.scene.shorten(self.key(drawn))

    @rule(drawn=KEY)
    def retain(self, drawn):
        self.scene.retain(self.key(drawn))

    @rule(drawn=KEY)
    def truncate(self, drawn):
        if not self.transactional(drawn):  # else the producer's next sequence number would be wrong
            self.scene.truncate(self.key(drawn))

    def transactional(self, drawn):
        return any(at[0] == drawn for at in self.sequences)

    @rule(drawn=KEY)
    def lead_again(self, drawn):
        self.scene.lead_again(self.key(drawn))

    @rule(topic=TOPIC)
    def delete_or_create(self, topic):
        if topic in self.gone:
            self.gone.remove(topic)
            self.scene.create(self.scene.topics[topic])
            return
        self.gone.add(topic)
        self.scene.delete(self.scene.topics[topic])
        for known in (self.open, self.sequences):
            for at in [at for at in known if at[0][0] == topic]:
                del known[at]

    @rule(drawn=KEY, offset=st.integers(0, 12), most=st.sampled_from([100, ALL]), epoch=st.integers(-1, 1))
    def go_to(self, drawn, offset, most, epoch):
        if self.key(drawn) not in self.consumer.forgotten:  # else the request would both forget and name it
            self.consumer.want(self.key(drawn), offset, most, epoch)

    @rule(drawn=KEY)
    def forget(self, drawn):
        self.consumer.forget(self.key(drawn))

    @rule(max_bytes=st.sampled_from([1, 200, 700, ALL]), continues=st.booleans())
    def fetch(self, max_bytes, continues):
        self.compare(max_bytes, continues)

    @rule(isolation=st.none() | ISOLATION)
    def catch_up(self, isolation):
        """Fetch until the consumer has seen everything, so that later responses have only changes."""
        self.isolation = self.isolation if isolation is None else isolation
        for _ in range(3):
            self.compare(ALL)

    @rule(
        drawn=KEY,
        change=st.sampled_from([Scene.append_one, Scene.shorten, Scene.retain, Scene.truncate, Scene.lead_again]),
    )
    def change_one_when_all_is_known(self, drawn, change):
        key = self.key(drawn)
        self.scene.append_one(key)
        if change is not Scene.truncate or not self.transactional(drawn):
            self.catch_up(None)
            change(self.scene, key)
            self.compare(ALL)

    def compare(self, max_bytes, continues=True):
        consumer, isolation = self.consumer, self.isolation
        response = consumer.fetch(max_bytes=max_bytes, isolation=isolation)
        consumer.id, session = (consumer.id if consumer.epoch > 1 else 0), consumer.id
        expected = consumer.expected(max_bytes=max_bytes, isolation=isolation)
        consumer.id = session
        assert list(response.items()) == list(expected.items())
        if continues:
            for key, (*_, records) in response.items():
                offset, most, epoch = consumer.wanted[key]
                behind = end_of(records, offset)
                if behind > offset:
                    consumer.want(key, behind, most, epoch)


def test_a_session_returns_the_same_changes_as_a_read_of_every_partition(server):
    Sessions.server = server
    run_state_machine_as_test(
        Sessions, settings=settings(max_examples=examples(EXAMPLES), stateful_step_count=30, deadline=None)
    )


# --- waiting


def waits(scene):
    """Wait until a fetch is in the purgatory."""
    while scene.services.replicas.fetch_purgatory.delayed == 0:
        pass


@pytest.fixture
def consumer(scene):
    new_consumer = Consumer(scene)
    for key in scene.keys:
        new_consumer.want(key, 0)
    new_consumer.settle()
    return new_consumer


def test_a_waiting_session_is_watched_for_once(scene, consumer):
    purgatory = scene.services.replicas.fetch_purgatory
    consumer.ask(wait=30_000)
    waits(scene)
    assert (purgatory.watched, purgatory.keys) == (1, 1)
    key = (scene.topics[1], 1)
    scene.append(key, batch(b"news"))
    assert list(consumer.take()) == [key]


def test_a_read_committed_session_is_woken_when_the_transaction_ends(scene, consumer):
    key = (scene.topics[0], 1)
    scene.begin(key, 1, 0)
    consumer.fetch(isolation=READ_COMMITTED)
    consumer.ask(wait=30_000, isolation=READ_COMMITTED)
    waits(scene)
    scene.append((scene.topics[0], 1), batch(b"behind the open one"))
    assert scene.services.replicas.fetch_purgatory.delayed == 1
    scene.end(key, 1, commit=True)
    assert list(consumer.take()) == [key]


@pytest.mark.parametrize("change", [Scene.shorten, Scene.retain])
def test_a_waiting_session_is_woken_when_its_next_record_is_deleted(scene, consumer, change):
    key = (scene.topics[0], 1)
    scene.append(key, batch(b"a"))
    consumer.ask(wait=30_000, min_bytes=ALL)
    waits(scene)
    change(scene, key)
    assert consumer.take()[key][0] == Errors.OFFSET_OUT_OF_RANGE


def test_a_waiting_session_is_woken_when_its_offset_is_truncated(scene, consumer):
    key = (scene.topics[0], 1)
    scene.append(key, batch(b"a"))
    consumer.want(key, 1)
    consumer.fetch()
    consumer.ask(wait=30_000)
    waits(scene)
    scene.partition(key).log.truncate_to(0)
    assert consumer.take()[key][0] == Errors.OFFSET_OUT_OF_RANGE


def test_a_waiting_session_is_woken_by_the_deletion_of_a_topic_and_gets_its_re_creation(scene, consumer):
    consumer.ask(wait=30_000)
    waits(scene)
    scene.delete(scene.topics[1])
    response = consumer.take()
    assert {key[0] for key in response} == {scene.topics[1]}
    assert {said[0] for said in response.values()} == {Errors.UNKNOWN_TOPIC_OR_PARTITION}
    consumer.fetch()
    scene.create(scene.topics[1])
    assert len(consumer.fetch()) == PARTITIONS
    assert consumer.fetch() == {}


def test_a_consumer_that_names_the_old_leader_epoch_is_fenced(scene, consumer):
    key = scene.keys[0]
    consumer.want(key, 0, epoch=0)
    consumer.settle()
    scene.lead_again(key)
    assert {key: values[0] for key, values in consumer.fetch().items()} == {key: Errors.FENCED_LEADER_EPOCH}


def test_a_waiting_fetch_is_answered_when_its_session_ends(scene, consumer):
    consumer.ask(wait=30_000)
    waits(scene)
    again = Consumer(scene)
    again.id, again.want((scene.topics[0], 0), 0)
    request = again._request([(scene.topics[0], 0)], (consumer.id, 0))
    scene.other.call(FETCH, VERSION, request)
    assert consumer.take() == {}


def test_of_two_fetches_that_wait_in_a_session_the_later_one_gets_the_records(scene, consumer):
    consumer.ask(wait=30_000)
    waits(scene)
    later = Consumer(scene)
    later.id, later.epoch = consumer.id, consumer.epoch + 1
    later.ask(wait=30_000)
    while scene.services.replicas.fetch_purgatory.delayed < 2:
        pass
    key = scene.keys[0]
    scene.append_one(key)
    assert list(later.take()) == [key]
    assert consumer.wire.receive(FETCH, VERSION)[1].error_code == Errors.INVALID_FETCH_SESSION_EPOCH


def test_a_stop_answers_the_sessions_that_wait(tmp_path):
    server = start_broker(tmp_path)
    scene = Scene(server)
    consumer = Consumer(scene)
    consumer.want((scene.topics[0], 0), 0)
    consumer.settle()
    consumer.ask(wait=2**31 - 1)
    waits(scene)
    server.stop()
    assert consumer.take() == {}
    scene.close()


def test_no_partition_knows_a_session_that_ended_or_forgot_it(scene, consumer):
    def watchers():
        return [len(scene.partition(key).log.watchers) for key in scene.keys]

    assert watchers() == [1] * 4
    consumer.forget((scene.topics[0], 0))
    consumer.fetch()
    assert watchers() == [0] + [1] * 3
    consumer.wire.call(FETCH, VERSION, consumer._request([], (consumer.id, -1)))
    assert watchers() == [0] * 4


def test_nothing_is_missed_while_both_network_threads_are_at_work(scene):
    """After a lost wake-up, a consumer would get an empty response or a time-out."""
    rounds, failures = 200, []

    def consume(consumer):
        try:
            for key in scene.keys:
                consumer.want(key, 0)
            consumer.fetch()
            read = 0
            while read < 2 * rounds:
                response = consumer.fetch(wait=20_000)
                assert response, f"{read} records were read, and of no more is told"
                for key, (*_, records) in response.items():
                    offset = consumer.wanted[key][0]
                    consumer.want(key, end_of(records, offset))
                    read += consumer.wanted[key][0] - offset
        except Exception as error:
            failures.append(error)

    def produce_to(wire, own):
        for turn in range(rounds):
            topic, index = own[turn % len(own)]
            produce(wire, topic, batch(b"x"), index=index)

    consumers = [threading.Thread(target=consume, args=(Consumer(scene),)) for _ in range(2)]
    halves = scene.keys[:PARTITIONS], scene.keys[PARTITIONS:]
    producers = [threading.Thread(target=produce_to, args=(scene.connect(), own)) for own in halves]
    for one in consumers + producers:
        one.start()
    for one in consumers + producers:
        one.join()
    assert failures == []
