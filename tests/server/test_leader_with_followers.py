"""Responses of a leader with followers, and of a follower: offsets, deletions, preferred replicas, other leaders."""

import itertools
from urllib.request import urlopen

import pytest

from kafkapy.errors import Errors
from kafkapy.metadata.cache import LiveBroker
from kafkapy.metadata.roles import PartitionRole
from kafkapy.protocol.apis import (
    DELETE_RECORDS,
    DESCRIBE_PRODUCERS,
    FETCH,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from kafkapy.replica.partition import Partition
from kafkapy.replica.read_replica import RACK_AWARE
from tests.harness.followers import follower_at
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.requests import batch, fetch_request, lead_with, make_topic, metrics_address, request, start_broker

ME, OTHER, THIRD = 0, 1, 2
NUMBERS = itertools.count()
CONSUMER, DEBUGGER = -1, -2


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    server = start_broker(
        tmp_path_factory.mktemp("broker"),
        broker_id=ME,
        broker_rack="here",
        replica_selector_class=RACK_AWARE,
        kafkapy_metrics_listen="127.0.0.1:0",
    )
    cache = server.services.cache
    others = [LiveBroker(OTHER, {"PLAINTEXT": ("other", 9097)}, "there"), LiveBroker(THIRD, {}, "there")]
    cache.set_brokers(ME, [*cache.live_brokers(), *others])
    yield server
    server.stop()


@pytest.fixture
def topic(wire):
    return make_topic(wire, f"led-{next(NUMBERS)}")


@pytest.fixture
def partition(broker, topic):
    return lead_with(broker, topic, [ME, OTHER, THIRD], [ME, OTHER])


def produce(wire, topic, *values, version=11):
    response = wire.call(PRODUCE, version, request(topic, batch(*values)))
    assert response.responses[0].partition_responses[0].error_code == Errors.NONE


def follow_other(broker, partition):
    """Make the broker a follower of OTHER, in the next leader epoch."""
    epoch = partition.leader_epoch + 1
    role = PartitionRole(
        partition.topic, 0, partition.log.topic_id, OTHER, epoch, epoch, [ME, OTHER], [ME, OTHER, THIRD]
    )
    services = broker.services
    assert services.roles.apply(services.topics.controller_epoch, [role]) == {}
    services.roles.update_metadata(services.topics.controller_epoch, [role])
    return services.replicas.followed(partition.topic, 0)


# --- ListOffsets and OffsetForLeaderEpoch


def offset_of(wire, topic, timestamp=-1, replica=CONSUMER, version=9, epoch=-1):
    part = LIST_OFFSETS.Request.Topics.Partitions(
        partition_index=0, timestamp=timestamp, current_leader_epoch=epoch, max_num_offsets=1
    )
    asked = LIST_OFFSETS.Request(
        replica_id=replica, topics=[LIST_OFFSETS.Request.Topics(name=topic, partitions=[part])]
    )
    return wire.call(LIST_OFFSETS, version, asked).topics[0].partitions[0]


def test_a_new_leader_does_not_know_the_end_before_it_knows_what_is_committed(broker, wire, topic, partition):
    produce(wire, topic, b"one", b"two")
    partition = lead_with(broker, topic, [ME, OTHER], [ME, OTHER])
    for version, code in ((9, "OFFSET_NOT_AVAILABLE"), (5, "OFFSET_NOT_AVAILABLE"), (4, "LEADER_NOT_AVAILABLE")):
        assert offset_of(wire, topic, version=version).error_code == getattr(Errors, code)
        late = offset_of(wire, topic, timestamp=1 << 50, version=version)
        assert late.error_code == getattr(Errors, code)
    assert offset_of(wire, topic, timestamp=-2).offset == 0
    assert [offset_of(wire, topic, replica=one).offset for one in (OTHER, DEBUGGER)] == [2, 2]
    follower_at(partition, OTHER, 2)
    assert offset_of(wire, topic).offset == 2
    assert (offset_of(wire, topic, timestamp=1 << 50).error_code, offset_of(wire, topic, version=4).offset) == (0, 2)


def test_only_tools_ask_a_follower_for_offsets_and_the_leader_epoch_is_checked_first(broker, wire, topic, partition):
    produce(wire, topic, b"one")
    followed = follow_other(broker, partition)
    assert offset_of(wire, topic, replica=DEBUGGER).offset == 1
    for replica in (CONSUMER, THIRD):
        assert offset_of(wire, topic, replica=replica).error_code == Errors.NOT_LEADER_OR_FOLLOWER
        fenced = offset_of(wire, topic, replica=replica, epoch=followed.leader_epoch - 1)
        assert fenced.error_code == Errors.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("version", range(5))
def test_offsets_for_leader_epochs_are_for_followers_and_clients(broker, wire, topic, partition, version):
    produce(wire, topic, b"one", b"two")
    partition = lead_with(broker, topic, [ME, OTHER], [ME, OTHER])
    make = OFFSET_FOR_LEADER_EPOCH.Request

    def end_of(leader_epoch, current=-1):
        part = make.Topics.Partitions(partition=0, leader_epoch=leader_epoch, current_leader_epoch=current)
        asked = make(replica_id=OTHER, topics=[make.Topics(topic=topic, partitions=[part])])
        return wire.call(OFFSET_FOR_LEADER_EPOCH, version, asked).topics[0].partitions[0]

    end = end_of(partition.leader_epoch - 1)
    assert (end.error_code, end.end_offset) == (Errors.NONE, 2)  # beyond the high watermark
    followed = follow_other(broker, partition)
    assert end_of(1).error_code == Errors.NOT_LEADER_OR_FOLLOWER
    if version >= 2:
        assert end_of(1, followed.leader_epoch + 1).error_code == Errors.UNKNOWN_LEADER_EPOCH


# --- DescribeProducers


def test_a_follower_describes_the_producers_of_its_replica(broker, wire, topic, partition):
    data = batch(b"one", producer_id=77, producer_epoch=3, base_sequence=0)
    produced = wire.call(PRODUCE, 11, request(topic, data)).responses[0].partition_responses[0]
    assert produced.error_code == Errors.NONE
    follow_other(broker, partition)
    make = DESCRIBE_PRODUCERS.Request
    asked = make(topics=[make.Topics(name=topic, partition_indexes=[0])])
    (answer,) = wire.call(DESCRIBE_PRODUCERS, 0, asked).topics[0].partitions
    assert answer.error_code == Errors.NONE
    producers = [(one.producer_id, one.producer_epoch, one.last_sequence) for one in answer.active_producers]
    assert producers == [(77, 3, 0)]


# --- DeleteRecords


def delete(wire, topic, offset, timeout_ms=60_000):
    part = DELETE_RECORDS.Request.Topics.Partitions(partition_index=0, offset=offset)
    topics = [DELETE_RECORDS.Request.Topics(name=topic, partitions=[part])]
    wire.send(DELETE_RECORDS, 2, DELETE_RECORDS.Request(topics=topics, timeout_ms=timeout_ms))


def deleted(wire):
    answer = wire.receive(DELETE_RECORDS, 2)[1].topics[0].partitions[0]
    return answer.error_code, answer.low_watermark


def test_a_deletion_of_records_waits_for_all_live_replicas(broker, wire, topic, partition):
    produce(wire, topic, b"one", b"two")
    follower_at(partition, OTHER, 2)
    delete(wire, topic, 1)
    waiting = broker.services.replicas.deletion_purgatory
    eventually(lambda: waiting.delayed == 1)
    assert partition.log.log_start_offset == 1
    follower_at(partition, OTHER, 2, start_offset=1)
    assert waiting.delayed == 1  # the third broker is alive, though not in sync
    partition = lead_with(broker, topic, [ME, OTHER, THIRD], [ME, OTHER])
    assert waiting.delayed == 1
    follower_at(partition, THIRD, 2, start_offset=2)
    assert deleted(wire) == (Errors.NONE, 1)


def test_a_deletion_of_records_times_out_and_ends_with_the_leadership(broker, wire, topic, partition):
    produce(wire, topic, b"one", b"two")
    follower_at(partition, OTHER, 2)
    delete(wire, topic, -1, timeout_ms=1)
    assert deleted(wire) == (Errors.REQUEST_TIMED_OUT, -1)  # the third broker has not fetched yet
    follower_at(partition, OTHER, 2, start_offset=2)
    follower_at(partition, THIRD, 1, start_offset=1)
    delete(wire, topic, -1, timeout_ms=1)
    assert deleted(wire) == (Errors.REQUEST_TIMED_OUT, 1)
    assert partition.log.log_start_offset == 2
    delete(wire, topic, -1)
    eventually(lambda: broker.services.replicas.deletion_purgatory.delayed == 1)
    follow_other(broker, partition)
    assert deleted(wire) == (Errors.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_deletion_of_records_of_a_single_replica_does_not_wait(broker, wire, topic):
    produce(wire, topic, b"one", b"two")
    delete(wire, topic, 1)
    assert deleted(wire) == (Errors.NONE, 1)


# --- fetching from a follower


def fetched(wire, topic, offset=0, version=12, **settings):
    response = wire.call(FETCH, version, fetch_request(topic, offset, **settings))
    return response.responses[0].partitions[0]


def test_a_follower_serves_consumers_up_to_its_high_watermark(broker, wire, topic, partition):
    produce(wire, topic, b"one")
    size = partition.log.size
    follower_at(partition, OTHER, 1)
    produce(wire, topic, b"two")
    followed = follow_other(broker, partition)
    assert (followed.log.high_watermark, followed.log.log_end_offset) == (1, 2)
    read = fetched(wire, topic)
    assert (read.error_code, read.high_watermark, len(read.records)) == (Errors.NONE, 1, size)
    assert [fetched(wire, topic, offset).error_code for offset in (1, 2, 3)] == [0, 0, Errors.OFFSET_OUT_OF_RANGE]
    assert fetched(wire, topic, version=10).error_code == Errors.NOT_LEADER_OR_FOLLOWER
    assert fetched(wire, topic, replica=THIRD).error_code == Errors.NOT_LEADER_OR_FOLLOWER
    assert fetched(wire, topic, epoch=partition.leader_epoch).error_code == Errors.FENCED_LEADER_EPOCH


def test_a_leader_names_a_replica_in_the_rack_of_the_consumer(broker, wire, topic, partition):
    for value in (b"one", b"two"):
        produce(wire, topic, value)
    follower_at(partition, OTHER, 1)
    read = fetched(wire, topic, 1, rack="there", wait=60_000)  # answered at once, without records
    assert (read.error_code, read.preferred_read_replica, len(read.records)) == (Errors.NONE, OTHER, 0)
    assert read.high_watermark == 1
    for rack in ("here", "nowhere", ""):
        read = fetched(wire, topic, rack=rack)
        assert (read.preferred_read_replica, len(read.records) > 0) == (-1, True)
    assert fetched(wire, topic, 2, rack="there").preferred_read_replica == -1  # the follower does not have offset 2 yet
    follower_at(partition, OTHER, 2, start_offset=1)
    assert fetched(wire, topic, 0, rack="there").preferred_read_replica == -1  # and has deleted offset 0
    assert fetched(wire, topic, 1, rack="there", replica=OTHER).preferred_read_replica == -1


def test_of_several_replicas_in_the_rack_the_one_with_the_most_records_is_named(broker, wire, topic, partition):
    cache = broker.services.cache
    cache.set_brokers(
        ME,
        [
            *[one for one in cache.live_brokers() if one.id == ME],
            *(LiveBroker(one, {"PLAINTEXT": ("other", 9097)}, "there") for one in (OTHER, THIRD)),
        ],
    )
    partition = lead_with(broker, topic, [ME, OTHER, THIRD], [ME, OTHER, THIRD])
    produce(wire, topic, b"one", b"two")
    follower_at(partition, OTHER, 1)
    assert fetched(wire, topic, 1, rack="there").preferred_read_replica == OTHER
    follower_at(partition, THIRD, 2)
    assert fetched(wire, topic, 1, rack="there").preferred_read_replica == THIRD
    lead_with(broker, topic, [ME, OTHER, THIRD], [ME, OTHER])
    assert fetched(wire, topic, 1, rack="there").preferred_read_replica == OTHER


def test_a_session_names_the_replica_although_nothing_else_has_changed(broker, wire, topic, partition):
    response = wire.call(FETCH, 12, fetch_request(topic, 0, session=(0, 0), rack="there"))
    assert response.responses[0].partitions[0].preferred_read_replica == -1
    follower_at(partition, OTHER, 0)
    for epoch in (1, 2):
        asked = fetch_request(topic, 0, session=(response.session_id, epoch), rack="there")
        (read,) = wire.call(FETCH, 12, asked).responses[0].partitions
        assert read.preferred_read_replica == OTHER


# --- the leader is elsewhere


def test_clients_of_the_wrong_broker_are_told_the_leader(broker, wire, topic, partition):
    epoch = follow_other(broker, partition).leader_epoch
    for version in (9, 10, 11):
        response = wire.call(PRODUCE, version, request(topic, batch(b"one")))
        part = response.responses[0].partition_responses[0]
        assert part.error_code == Errors.NOT_LEADER_OR_FOLLOWER
        told = (part.current_leader.leader_id, part.current_leader.leader_epoch)
        nodes = [(one.node_id, one.host, one.port, one.rack) for one in response.node_endpoints]
        assert (told, nodes) == (((OTHER, epoch), [(OTHER, "other", 9097, "there")]) if version > 9 else ((-1, -1), []))
    for version in (15, 16, 17):
        asked = fetch_request(topic, epoch=epoch - 1)
        asked.topics[0].topic_id = partition.log.topic_id
        response = wire.call(FETCH, version, asked)
        part = response.responses[0].partitions[0]
        assert part.error_code == Errors.FENCED_LEADER_EPOCH
        told = (part.current_leader.leader_id, part.current_leader.leader_epoch)
        nodes = [(one.node_id, one.host, one.port, one.rack) for one in response.node_endpoints]
        assert (told, nodes) == (
            ((OTHER, epoch), [(OTHER, "other", 9097, "there")]) if version > 15 else ((-1, -1), [])
        )


@pytest.mark.parametrize(("acks", "code"), [(-1, Errors.NOT_LEADER_OR_FOLLOWER), (1, Errors.NONE)])
def test_the_high_watermark_of_the_next_leader_acknowledges_nothing(
    broker, wire, topic, partition, monkeypatch, acks, code
):
    """Another leader is elected between an append and its response: the appended record is truncated and replaced."""
    append = Partition.append

    def append_and_lose(self, sets, done):
        verdicts = append(self, sets, done)
        assert verdicts is not None
        if self is partition:
            epoch = follow_other(broker, partition).leader_epoch
            partition.log.truncate_to(0, epoch)
            partition.log.append_as_follower(memoryview(batch(b"other", b"replicated")), epoch)
            partition.log.follow_high_watermark(2, epoch)
        return verdicts

    monkeypatch.setattr(Partition, "append", append_and_lose)
    answer = wire.call(PRODUCE, 11, request(topic, batch(b"mine"), acks=acks)).responses[0].partition_responses[0]
    assert (answer.error_code, partition.log.high_watermark) == (code, 2)


def test_a_leader_that_fences_a_client_names_itself(broker, wire, topic, partition):
    asked = fetch_request(topic, epoch=0)
    asked.topics[0].topic_id = partition.log.topic_id
    response = wire.call(FETCH, 16, asked)
    leader = response.responses[0].partitions[0].current_leader
    assert (leader.leader_id, leader.leader_epoch) == (ME, partition.leader_epoch)
    assert [one.node_id for one in response.node_endpoints] == [ME]


# --- metrics


def metric(broker, name):
    page = urlopen(f"http://{metrics_address(broker)}/metrics").read().decode()
    (line,) = [line for line in page.splitlines() if line.startswith(f"kafkapy_{name} ")]
    return float(line.split()[-1])


def test_the_metrics_count_partitions_by_their_isr(broker, wire, topic):
    names = ("under_replicated_partitions", "under_min_isr_partitions", "at_min_isr_partitions")
    before = [metric(broker, name) for name in names]
    broker.services.topic_settings.alter(topic, lambda _: {"min.insync.replicas": "2"}, validate_only=False)
    for isr, change in (([ME], (1, 1, -1)), ([ME, OTHER], (1, 0, 0)), ([ME, OTHER, THIRD], (0, 0, -1))):
        lead_with(broker, topic, [ME, OTHER, THIRD], isr)
        assert [metric(broker, name) - one for name, one in zip(names, before, strict=True)] == list(change)
    with Wire(broker.bootstrap_servers) as follower:
        produce(wire, topic, b"one")
        sent = metric(broker, "replication_bytes_out_total")
        size = len(fetched(follower, topic, replica=OTHER).records)
        assert metric(broker, "replication_bytes_out_total") - sent == size > 0
