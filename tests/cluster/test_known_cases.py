"""Known bugs of replication are replayed with a kafkapy broker as leader or follower. Kafka is the controller."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from kafkapy.errors import Errors
from kafkapy.metadata.roles import NO_LEADER
from kafkapy.protocol import apis
from tests.cluster import nemesis
from tests.cluster.logs_by_hand import batch, write_log
from tests.cluster.replicas import differences
from tests.cluster.segments import read_batches, read_epochs
from tests.harness.cluster import Cluster
from tests.harness.raw import Connection
from tests.harness.waiting import eventually
from tests.harness.wire import Producer as Sender
from tests.harness.wire import Wire

pytestmark = [pytest.mark.other_runtime, pytest.mark.timeout(300)]
KAFKAPY, CONTROLLER, OTHER = 1, 2, 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"auto.leader.rebalance.enable": "false"}
    with Cluster(tmp_path_factory.mktemp("cluster"), ("kafkapy", "kafka", "kafka"), settings) as running:
        yield running
    # The tests share the cluster; `_healed` heals it after each test.


@pytest.fixture(autouse=True)
def _healed(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.heal()
    cluster.wait_until_quiet()


def produce(cluster: Cluster, topic: str, *values: str, acks: str = "all", timeout_ms: int = 60_000) -> list[str]:
    """Write records. Return the errors."""
    errors: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(str(error))

    settings = {"acks": acks, "message.timeout.ms": timeout_ms, "request.timeout.ms": min(timeout_ms, 5000)}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(timeout_ms / 1000 + 20) == 0
    return errors


def high_watermark(cluster: Cluster, number: int, topic: str) -> int:
    """Return the high watermark that the leader tells consumers, or the negative error code."""
    topics = apis.LIST_OFFSETS.Request.Topics
    one = topics.Partitions(partition_index=0, current_leader_epoch=-1, timestamp=-1)
    with Wire(cluster[number].address, 10) as wire:
        answer = wire.call(
            apis.LIST_OFFSETS, 5, replica_id=-1, isolation_level=0, topics=[topics(name=topic, partitions=[one])]
        )
    (found,) = answer.topics[0].partitions
    return int(found.offset) if found.error_code == Errors.NONE else -int(found.error_code)


def directories(cluster: Cluster, topic: str, *numbers: int) -> dict[int, Path]:
    return {number: cluster[number].data / f"{topic}-0" for number in numbers}


def wait_until_equal(cluster: Cluster, topic: str, *numbers: int) -> None:
    deadline = time.monotonic() + 60
    while different := differences(directories(cluster, topic, *numbers)):
        assert time.monotonic() < deadline, f"{different}\n{cluster.ends_of_logs()}"
        time.sleep(0.1)


def test_without_enough_in_sync_replicas_consumers_see_nothing_new(cluster: Cluster) -> None:
    """KAFKA-15583: the high watermark does not advance below min.insync.replicas, not even for acks=1."""
    topic = "kafka-15583"
    cluster.create_topic(topic, 1, on=[(KAFKAPY, CONTROLLER, OTHER)])
    assert produce(cluster, topic, "a", "b") == []
    eventually(lambda: high_watermark(cluster, KAFKAPY, topic) == 2)
    for number in (CONTROLLER, OTHER):
        cluster[number].freeze()
    assert produce(cluster, topic, "c", acks="1") == []
    assert produce(cluster, topic, "d", timeout_ms=6000) != []
    # In a new epoch, a leader does not return a high watermark from before that epoch (KIP-207).
    assert high_watermark(cluster, KAFKAPY, topic) in (2, -Errors.OFFSET_NOT_AVAILABLE)
    cluster.heal()
    cluster.wait_until_quiet()
    eventually(lambda: high_watermark(cluster, KAFKAPY, topic) >= 3)
    wait_until_equal(cluster, topic, KAFKAPY, CONTROLLER, OTHER)


def test_a_follower_that_stands_still_leaves_the_isr_and_the_producer_goes_on(cluster: Cluster) -> None:
    """KAFKA-13091: the high watermark also advances when the ISR shrinks."""
    topic = "kafka-13091"
    cluster.create_topic(topic, 1, on=[(KAFKAPY, CONTROLLER, OTHER)])
    assert produce(cluster, topic, "a") == []
    cluster[OTHER].freeze()
    assert produce(cluster, topic, "b", timeout_ms=30_000) == []
    assert cluster.stored_view()[topic, 0].isr == (KAFKAPY, CONTROLLER)
    assert high_watermark(cluster, KAFKAPY, topic) == 2


def test_a_move_away_from_a_dead_broker(cluster: Cluster) -> None:
    """KAFKA-9672: during the move, the ISR may name a broker that is not a replica."""
    topic = "kafka-9672"
    cluster.create_topic(topic, 1, on=[(KAFKAPY, CONTROLLER, OTHER)])
    assert produce(cluster, topic, "a") == []
    cluster[OTHER].kill()
    cluster.move(topic, {0: (KAFKAPY, CONTROLLER)})
    assert produce(cluster, topic, "b") == []
    assert cluster.stored_view()[topic, 0].isr == (KAFKAPY, CONTROLLER)
    wait_until_equal(cluster, topic, KAFKAPY, CONTROLLER)


def test_a_restart_that_the_controller_sees_only_as_a_new_registration(cluster: Cluster) -> None:
    """KAFKA-7235 (KIP-380): the partitions of the restarted broker get leaders and followers as after a failure."""
    topic = "kafka-7235"
    cluster.create_topic(topic, 2, on=[(KAFKAPY, CONTROLLER, OTHER), (CONTROLLER, KAFKAPY, OTHER)])
    assert produce(cluster, topic, "a") == []
    if cluster.controller() == KAFKAPY:  # another broker must be the controller, which will be frozen
        cluster[KAFKAPY].stop()
        eventually(lambda: cluster.controller() in (CONTROLLER, OTHER))
        cluster.heal()
        cluster.wait_until_quiet()
    nemesis.bounce_unnoticed_of(cluster, cluster[KAFKAPY])
    cluster.heal()
    cluster.wait_until_quiet()
    assert cluster.stored_view()[topic, 0].epoch > 0
    assert produce(cluster, topic, "b") == []
    wait_until_equal(cluster, topic, KAFKAPY, CONTROLLER, OTHER)


@pytest.mark.parametrize("leader", [KAFKAPY, CONTROLLER], ids=["kafkapy leads", "kafka leads"])
def test_replicas_without_a_high_watermark_checkpoint_keep_what_was_acknowledged(cluster: Cluster, leader: int) -> None:
    """KAFKA-1211 (KIP-101): a replica must not truncate its log to its own high watermark, which may be outdated."""
    follower = CONTROLLER if leader == KAFKAPY else KAFKAPY
    topic = f"kafka-1211-{leader}"
    cluster.create_topic(topic, 1, on=[(follower, leader)])
    assert produce(cluster, topic, *"abc") == []
    wait_until_equal(cluster, topic, leader, follower)
    for number in (leader, follower):
        cluster[number].kill()
        for file in cluster[number].data.glob("replication-offset-checkpoint"):
            file.unlink()
    _stored_state(cluster, topic, leader=leader, isr=[leader, follower])
    cluster.start([leader])
    eventually(lambda: cluster.stored_view()[topic, 0].leader == leader, seconds=60)
    cluster.start([follower])
    cluster.wait_until_quiet()
    wait_until_equal(cluster, topic, leader, follower)
    batches = read_batches(directories(cluster, topic, follower)[follower])
    assert batches[-1].last_offset == 2
    eventually(lambda: high_watermark(cluster, cluster.stored_view()[topic, 0].leader, topic) == 3)


def _stored_state(cluster: Cluster, topic: str, **fields: object) -> None:
    """Change the state of partition 0 in ZooKeeper while no replica runs. Wait until the controller has seen that all
    replicas are gone; otherwise it would overwrite the state."""
    eventually(lambda: cluster.stored_view()[topic, 0].leader == NO_LEADER, seconds=60)
    path = f"/brokers/topics/{topic}/partitions/0/state"
    cluster.tree.set(path, json.dumps({**json.loads(cluster.tree.get(path)[0]), **fields}).encode())


@pytest.mark.parametrize("leader", [KAFKAPY, CONTROLLER], ids=["kafkapy leads", "kafka leads"])
def test_logs_that_diverged_over_several_epochs_become_equal(cluster: Cluster, leader: int) -> None:
    """KAFKA-6361 (KIP-279): a follower needs several requests to find the last epoch in which both logs are equal."""
    follower = CONTROLLER if leader == KAFKAPY else KAFKAPY
    topic = f"kafka-6361-{leader}"
    cluster.create_topic(topic, 1, on=[(leader, follower)])
    for number in (leader, follower):
        cluster[number].stop()
    # Both have offsets 0 to 9 of epoch 0. The leader's later epochs are even, the follower's are odd.
    shared = [batch(offset, b"shared", epoch=0) for offset in range(10)]
    led = [batch(offset, b"leader", epoch=2 if offset < 20 else 4) for offset in range(10, 30)]
    followed = [batch(offset, b"follower", epoch=1 if offset < 15 else 3) for offset in range(10, 40)]
    write_log(directories(cluster, topic, leader)[leader], [*shared, *led], [(0, 0), (2, 10), (4, 20)])
    write_log(directories(cluster, topic, follower)[follower], [*shared, *followed], [(0, 0), (1, 10), (3, 15)])
    for number in (leader, follower):
        (cluster[number].data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    _stored_state(cluster, topic, leader=leader, isr=[leader], leader_epoch=5)
    cluster.start([leader, follower])
    cluster.wait_until_quiet()
    assert produce(cluster, topic, "new") == []
    wait_until_equal(cluster, topic, leader, follower)
    directory = directories(cluster, topic, follower)[follower]
    assert b"".join(each.data for each in read_batches(directory)).startswith(b"".join([*shared, *led]))
    assert [epoch for epoch, _ in read_epochs(directory)][:3] == [0, 2, 4]


@pytest.mark.parametrize("leader", [KAFKAPY, CONTROLLER], ids=["kafkapy leads", "kafka leads"])
def test_batches_that_are_sent_again_to_the_next_leader_are_found(cluster: Cluster, leader: int) -> None:
    """A follower keeps the state of idempotent producers (KIP-98), so the next leader knows their batches."""
    follower = CONTROLLER if leader == KAFKAPY else KAFKAPY
    topic = f"sent-again-{leader}"
    cluster.create_topic(topic, 1, on=[(leader, follower)], min_insync_replicas="1")
    producer = producer_id(cluster, leader)
    sent = [
        batch(0, b"value", b"another", producer=producer, sequence=2 * number, attributes=number % 4)
        for number in range(7)
    ]
    assert [send(cluster, leader, topic, each) for each in sent] == [(Errors.NONE, 2 * n) for n in range(7)]
    wait_until_equal(cluster, topic, leader, follower)
    cluster[leader].kill()
    eventually(lambda: cluster.view(follower)[2][topic, 0].leader == follower, seconds=60)
    again = {number: send(cluster, follower, topic, sent[number]) for number in (6, 5, 4, 3, 2)}
    assert again == {number: (Errors.NONE, 2 * number) for number in again}
    following = batch(0, b"new", producer=producer, sequence=14)
    assert send(cluster, follower, topic, following) == (Errors.NONE, 14)
    gap = batch(0, b"new", producer=producer, sequence=20)
    assert send(cluster, follower, topic, gap)[0] == Errors.OUT_OF_ORDER_SEQUENCE_NUMBER


def producer_id(cluster: Cluster, number: int) -> int:
    """Return a new producer id from a broker. Retry while the broker gets its first block from the controller."""
    deadline = time.monotonic() + 60
    with Wire(cluster[number].address) as wire:
        while not isinstance(got := wire.init(None), Sender):
            assert time.monotonic() < deadline, got
            time.sleep(0.1)
    return got.id


def send(cluster: Cluster, number: int, topic: str, data: bytes) -> tuple[int, int]:
    """Send a batch to a broker with acks=all. Return (error code, base offset)."""
    with Connection(cluster[number].address) as connection:
        return connection.produce(topic, 0, data)
