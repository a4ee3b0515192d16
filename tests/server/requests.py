"""Helpers that start a broker in this process, and build and send the requests that many tests need."""

from kafkapy._ext.batch import next_batch
from kafkapy.errors import Errors
from kafkapy.metadata.roles import PartitionRole
from kafkapy.protocol.apis import FETCH, LIST_OFFSETS, METADATA, PRODUCE
from kafkapy.record.batch import build, records_of
from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.broker_config import BrokerConfig

VERSION = 11  # of produce requests
FETCH_VERSION = 12


def metrics_address(server):
    """Return HOST:PORT of the broker's metrics page."""
    return server._metrics.address


def start_broker(log_dir, *, files=None, wait=True, **settings):
    """Start a broker on a free port, and load all logs. Names of settings have underscores for dots."""
    config = BrokerConfig(
        {
            "log.dirs": str(log_dir),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    server = BrokerServer(config, files=files)
    server.start()
    if wait:
        server.wait_until_loaded()
    return server


def lead_with(server, topic, replicas, isr, index=0):
    """Make the broker lead the partition with these replicas and this ISR, in the next leader epoch. Return the
    Partition."""
    services = server.services
    before = services.replicas.get(topic, index)
    role = PartitionRole(
        topic,
        index,
        before.log.topic_id,
        services.broker_id,
        before.leader_epoch + 1,
        before.partition_epoch + 1,
        isr,
        replicas,
    )
    assert services.roles.apply(services.topics.controller_epoch, [role]) == {}
    return services.replicas.get(topic, index)


def batch(*values, **settings):
    return build([(1_600_000_000_000, None, value, []) for value in values], **settings)


def request(topic, data, acks=1, index=0, transactional_id=None):
    make = PRODUCE.Request
    part = make.TopicData.PartitionData(index=index, records=data)
    return make(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=5000,
        topic_data=[make.TopicData(name=topic, partition_data=[part])],
    )


def produce(wire, topic, data, version=VERSION, **settings):
    response = wire.call(PRODUCE, version, request(topic, data, **settings))
    return response.responses[0].partition_responses[0]


def make_topic(wire, name):
    make = METADATA.Request
    response = wire.call(METADATA, 12, make(topics=[make.Topics(name=name)], allow_auto_topic_creation=True))
    assert response.topics[0].error_code == Errors.NONE
    return name


def end_offset(wire, topic):
    make = LIST_OFFSETS.Request
    part = make.Topics.Partitions(partition_index=0, timestamp=-1)
    asked = make(replica_id=-1, topics=[make.Topics(name=topic, partitions=[part])])
    return wire.call(LIST_OFFSETS, 9, asked).topics[0].partitions[0].offset


def fetch_values(wire, topic):
    """Return the values of all records of partition 0, in order."""
    values, offset, end = [], 0, end_offset(wire, topic)
    make = FETCH.Request
    while offset < end:
        part = make.Topics.Partitions(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        asked = make(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[make.Topics(topic=topic, partitions=[part])],
        )
        answer = wire.call(FETCH, 12, asked).responses[0].partitions[0]
        assert answer.error_code == Errors.NONE
        data, position = bytes(answer.records), 0
        while (header := next_batch(data, position)) is not None:
            values += [one.value for one in records_of(data, header) if one.offset >= offset]
            offset, position = header.last_offset + 1, header.next_position
    return values


def fetch_request(
    topic,
    offset=0,
    *,
    wait=0,
    min_bytes=1,
    max_bytes=1 << 20,
    part_max=1 << 20,
    session=(0, -1),
    index=0,
    epoch=-1,
    fetched_epoch=-1,
    replica=-1,
    start=-1,
    rack="",
):
    make = FETCH.Request
    part = make.Topics.Partitions(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=part_max,
        current_leader_epoch=epoch,
        last_fetched_epoch=fetched_epoch,
        log_start_offset=start,
    )
    return make(
        replica_id=replica,
        rack_id=rack,
        max_wait_ms=wait,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[make.Topics(topic=topic, partitions=[part])],
    )


def fetch_of_partitions(topic, indexes, session=(0, -1), wait=0):
    make = FETCH.Request
    parts = [make.Topics.Partitions(partition=one, fetch_offset=0, partition_max_bytes=1000) for one in indexes]
    topics = [make.Topics(topic=topic, partitions=parts)] if parts else []
    return make(
        max_wait_ms=wait, min_bytes=1, max_bytes=9000, session_id=session[0], session_epoch=session[1], topics=topics
    )


def fetch(wire, *args, **settings):
    response = wire.call(FETCH, FETCH_VERSION, fetch_request(*args, **settings))
    return response.responses[0].partitions[0]
