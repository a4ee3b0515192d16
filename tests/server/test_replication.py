"""Brokers that replicate partitions to each other, in one process and over real sockets. The test is the controller."""

import itertools
import time

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.cache import LiveBroker
from kafkapy.metadata.roles import PartitionRole, StopPartition
from kafkapy.protocol.apis import FETCH, PRODUCE
from kafkapy.replica.isr_changes import WrittenIsr
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.requests import batch, end_offset, fetch_request, request, start_broker

LAG_MS = 2000
NUMBERS = itertools.count()


class Cluster:
    """Two brokers, and the state of one partition of which both have a replica. The methods act as the controller."""

    def __init__(self, directory):
        self.servers = [
            start_broker(
                directory / str(number),
                broker_id=number,
                replica_lag_time_max_ms=LAG_MS,
                replica_fetch_wait_max_ms=100,
                replica_fetch_backoff_ms=50,
            )
            for number in range(2)
        ]
        live = [
            LiveBroker(number, {"PLAINTEXT": ("127.0.0.1", int(server.bootstrap_servers.rpartition(":")[2]))})
            for number, server in enumerate(self.servers)
        ]
        for server in self.servers:
            server.services.cache.set_brokers(0, live)
            server.services.replicas.isr_env.submit = self.change_isr
            # Each broker has a metadata tree of its own, which does not have the topic.
            server.services.replicas._is_deleted = lambda topic, topic_id: False
        self.wires = [Wire(server.bootstrap_servers) for server in self.servers]
        self.answers = True  # False if the controller does not answer changes of the ISR

    def create(self, leader=0, **settings):
        """Create a topic with one partition, and return its name."""
        self.topic = f"replicated-{next(NUMBERS)}"
        self.topic_id = self.topic.encode().ljust(16, b"-")
        self.leader, self.leader_epoch, self.partition_epoch, self.isr = leader, 0, 0, (0, 1)
        self.tell((0, 1), is_new=True)
        for server in self.servers:
            log = self.log(server.services.broker_id)
            log.update_config(type(log.config)({**log.config.values, **settings}))
        return self.topic

    def elect(self, leader, isr=None, *, told=(0, 1)):
        self.leader, self.leader_epoch = leader, self.leader_epoch + 1
        self.partition_epoch += 1
        self.isr = self.isr if isr is None else isr
        self.tell(told)

    def tell(self, brokers, is_new=False):
        """Give these brokers their roles and the metadata of the partition."""
        role = PartitionRole(
            self.topic,
            0,
            self.topic_id,
            self.leader,
            self.leader_epoch,
            self.partition_epoch,
            self.isr,
            (0, 1),
            is_new,
        )
        for number in brokers:
            services = self.servers[number].services
            assert services.roles.apply(1, [role]) == {}
            services.roles.update_metadata(1, [role])

    def change_isr(self, change, done):
        """Carry out or refuse a leader's change of the ISR as a controller does."""
        if not self.answers:
            return True
        if change.leader_epoch != self.leader_epoch:
            done(KafkaError(Errors.FENCED_LEADER_EPOCH))
        elif change.partition_epoch != self.partition_epoch:
            done(KafkaError(Errors.INVALID_UPDATE_VERSION))
        else:
            self.isr, self.partition_epoch = tuple(change.isr), self.partition_epoch + 1
            done(WrittenIsr(self.leader, self.leader_epoch, self.partition_epoch, self.isr))
        return True

    def stop_following(self, number):
        """Make the broker keep its replica without fetching it."""
        stop = StopPartition(self.topic, 0, self.leader_epoch, delete=False)
        assert self.servers[number].services.roles.apply(1, [stop]) == {}

    def log(self, number):
        return self.servers[number].services.replicas.readable(self.topic, 0).log

    def partition(self):
        return self.servers[self.leader].services.replicas.get(self.topic, 0)

    def send(self, *values, acks=-1, timeout_ms=30_000):
        asked = request(self.topic, batch(*values), acks=acks)
        asked.timeout_ms = timeout_ms
        self.wires[self.leader].send(PRODUCE, 11, asked)

    def acknowledged(self):
        """Return (error code, base offset) of the response to the oldest `send` without one."""
        answer = self.wires[self.leader].receive(PRODUCE, 11)[1].responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    def until_equal(self):
        one, other = self.log(0), self.log(1)
        eventually(lambda: one.end[0] == other.end[0] == one.high_watermark == other.high_watermark)
        assert bytes_of(one) == bytes_of(other)
        assert epochs_of(one) == epochs_of(other)

    def stop(self):
        for wire in self.wires:
            wire.close()
        for server in self.servers:
            server.stop()


def epochs_of(log):
    """Return the leader epochs of the records, without the epoch of a leader that has not appended yet."""
    return [entry for entry in log.leader_epochs.entries if entry.start_offset < log.log_end_offset]


def bytes_of(log):
    return b"".join(path.read_bytes() for path in sorted(log.dir.glob("*.log")))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture(autouse=True)
def controller_answers(cluster):
    cluster.answers = True


def test_what_is_acknowledged_by_all_is_in_both_logs(cluster):
    cluster.create()
    for number in range(50):
        cluster.send(b"%d" % number)
        assert cluster.acknowledged() == (Errors.NONE, number)
        assert cluster.log(1).log_end_offset > number
    cluster.until_equal()


def test_many_requests_under_way_are_acknowledged_in_order(cluster):
    cluster.create()
    for number in range(300):
        cluster.send(bytes(1000 * (number % 7)), acks=-1 if number % 3 else 1)
    for number in range(300):
        assert cluster.acknowledged() == (Errors.NONE, number)
    cluster.until_equal()


def test_a_consumer_reads_from_the_follower(cluster):
    cluster.create()
    cluster.send(b"one", b"two")
    assert cluster.acknowledged() == (Errors.NONE, 0)
    cluster.wires[1].send(FETCH, 12, fetch_request(cluster.topic, 0, wait=30_000))
    read = cluster.wires[1].receive(FETCH, 12)[1].responses[0].partitions[0]
    assert (read.error_code, read.high_watermark, len(read.records)) == (Errors.NONE, 2, cluster.log(0).size)


def test_a_waiting_consumer_of_the_follower_gets_what_is_committed(cluster):
    cluster.create()
    cluster.wires[1].send(FETCH, 12, fetch_request(cluster.topic, 0, wait=30_000))
    cluster.send(b"one")
    assert cluster.acknowledged() == (Errors.NONE, 0)
    read = cluster.wires[1].receive(FETCH, 12)[1].responses[0].partitions[0]
    assert len(read.records) == cluster.log(0).size


def test_a_follower_that_stops_leaves_the_isr_and_returns_to_it(cluster):
    cluster.create(**{"min.insync.replicas": 1})
    cluster.stop_following(1)
    began = time.monotonic()
    cluster.send(b"one")
    assert cluster.acknowledged() == (Errors.NONE, 0)  # the time-out of the request is far longer
    assert cluster.isr == (0,)
    assert time.monotonic() - began < 30
    cluster.send(b"two")
    assert cluster.acknowledged() == (Errors.NONE, 1)
    assert cluster.log(1).log_end_offset == 0
    cluster.elect(0)
    eventually(lambda: cluster.isr == (0, 1))
    cluster.send(b"three")
    assert cluster.acknowledged() == (Errors.NONE, 2)
    cluster.until_equal()
    env = cluster.servers[0].services.replicas.isr_env
    assert (env.shrinks.value, env.expansions.value) >= (1, 1)


def test_below_min_insync_replicas_nothing_is_acknowledged_and_consumers_see_nothing_new(cluster):
    cluster.create(**{"min.insync.replicas": 2})
    cluster.stop_following(1)
    cluster.send(b"one", acks=1)
    assert cluster.acknowledged() == (Errors.NONE, 0)
    eventually(lambda: cluster.isr == (0,))
    cluster.send(b"two")
    assert cluster.acknowledged() == (Errors.NOT_ENOUGH_REPLICAS, -1)
    assert end_offset(cluster.wires[0], cluster.topic) == 0
    cluster.elect(0)
    eventually(lambda: cluster.isr == (0, 1) and cluster.log(0).high_watermark == 1)
    cluster.until_equal()


def test_without_the_controllers_answer_a_lost_follower_still_counts(cluster):
    cluster.create()
    cluster.answers = False
    cluster.stop_following(1)
    cluster.send(b"one", timeout_ms=LAG_MS * 2)
    assert cluster.acknowledged() == (Errors.REQUEST_TIMED_OUT, -1)
    assert (cluster.partition().isr, cluster.log(0).high_watermark) == ((0, 1), 0)
    cluster.answers = True
    cluster.elect(0)
    cluster.until_equal()


def test_an_append_that_waits_is_acknowledged_in_the_next_epoch_of_the_leader(cluster):
    cluster.create()
    cluster.stop_following(1)
    cluster.send(b"one")
    eventually(lambda: cluster.log(0).log_end_offset == 1)
    cluster.elect(0)
    assert cluster.acknowledged() == (Errors.NONE, 0)
    cluster.until_equal()


def test_records_that_were_not_replicated_are_removed_when_another_broker_leads(cluster):
    cluster.create()
    cluster.send(b"kept")
    assert cluster.acknowledged() == (Errors.NONE, 0)
    cluster.until_equal()
    cluster.stop_following(1)
    for _ in range(3):
        cluster.send(b"lost", acks=1)
        assert cluster.acknowledged()[0] == Errors.NONE
    cluster.send(b"waits")
    eventually(lambda: cluster.log(0).log_end_offset == 5)
    cluster.elect(1, told=(1,))
    cluster.send(b"other", acks=1)
    assert cluster.acknowledged() == (Errors.NONE, 1)
    cluster.tell((0,))
    answer = cluster.wires[0].receive(PRODUCE, 11)[1].responses[0].partition_responses[0]
    assert answer.error_code == Errors.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == 1
    cluster.until_equal()
    cluster.send(b"more")
    assert cluster.acknowledged() == (Errors.NONE, 2)
    cluster.until_equal()


def test_the_leadership_moves_to_and_fro_under_load(cluster):
    cluster.create()
    acknowledged = 0
    for leader in (1, 0, 1, 1, 0):
        for _ in range(20):
            cluster.send(b"value")
        for _ in range(20):
            code, _ = cluster.acknowledged()
            assert code == Errors.NONE
            acknowledged += 1
        cluster.elect(leader)
    cluster.until_equal()
    assert cluster.log(0).log_end_offset == acknowledged
