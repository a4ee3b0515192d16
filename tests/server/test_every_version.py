"""Every version in the ApiVersions response is answered, in that version, with the same content."""

import pytest

from kafkapy.controller.interface import Controller
from kafkapy.errors import Errors
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.protocol.apis import (
    ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    API_VERSIONS,
    APIS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    ELECT_LEADERS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from kafkapy.record.batch import build
from kafkapy.record.legacy import build_set, iter_entries, messages_of
from kafkapy.server.api_table import TABLE
from kafkapy.server.dispatcher import handlers  # noqa: F401 - registers them

SERVED = [(APIS[key], version) for key, (low, high) in TABLE.versions().items() for version in range(low, high + 1)]
VERSIONS = {api.key: [version for one, version in SERVED if one is api] for api, _ in SERVED}


def versions(api):
    return pytest.mark.parametrize("version", VERSIONS[api.key])


def records(count=3):
    return build([(1_600_000_000_000 + i, b"k%d" % i, b"v%d" % i, []) for i in range(count)])


@pytest.fixture
def topic(broker, wire, request):
    """Create a topic with two partitions and three records in the first. Return (name, id)."""
    name = f"t.{request.node.name}".replace("[", "-").replace("]", "").replace(" ", "")[:200]
    make = CREATE_TOPICS.Request
    created = wire.call(
        CREATE_TOPICS, 7, make(topics=[make.Topics(name=name, num_partitions=2, replication_factor=1)], timeout_ms=9000)
    ).topics[0]
    assert created.error_code == Errors.NONE
    assert produce(wire, name, 11).error_code == Errors.NONE
    return name, created.topic_id


def produce(wire, name, version, acks=1, data=None):
    make = PRODUCE.Request
    part = make.TopicData.PartitionData(index=0, records=data if data is not None else records())
    request = make(acks=acks, timeout_ms=1000, topic_data=[make.TopicData(name=name, partition_data=[part])])
    return wire.call(PRODUCE, version, request).responses[0].partition_responses[0]


def test_the_supported_versions_are_those_of_kafka_3_9():
    for key, (low, high) in TABLE.versions().items():
        assert (low, high) == (APIS[key].min_version, APIS[key].max_version), APIS[key].name


@versions(API_VERSIONS)
def test_api_versions(wire, version):
    request = API_VERSIONS.Request(client_software_name="test", client_software_version="1.0")
    response = wire.call(API_VERSIONS, version, request)
    assert response.error_code == Errors.NONE
    assert {one.api_key: (one.min_version, one.max_version) for one in response.api_keys} == TABLE.versions()


@versions(METADATA)
def test_metadata(wire, topic, version):
    name, topic_id = topic
    make = METADATA.Request
    response = wire.call(METADATA, version, make(topics=[make.Topics(name=name)]))
    (one,) = response.topics
    assert (one.name, one.error_code, len(one.partitions)) == (name, Errors.NONE, 2)
    assert [(part.partition_index, part.leader_id) for part in one.partitions] == [(0, 0), (1, 0)]
    if version >= 10:
        assert one.topic_id == topic_id
    assert response.brokers[0].node_id == 0


@pytest.mark.parametrize("version", VERSIONS[METADATA.key][1:])
def test_an_internal_topic_that_does_not_exist_yet_is_internal_in_metadata(wire, version):
    make = METADATA.Request
    response = wire.call(METADATA, version, make(topics=[make.Topics(name="__consumer_offsets")]))
    (one,) = response.topics
    assert (one.error_code, one.is_internal) == (Errors.UNKNOWN_TOPIC_OR_PARTITION, True)


@pytest.mark.parametrize("version", [10, 11])
def test_topic_ids_are_refused_before_version_12_of_metadata(wire, topic, version):
    name, topic_id = topic
    make = METADATA.Request
    asked = [make.Topics(name=name, topic_id=topic_id), make.Topics(name=None, topic_id=topic_id)]
    response = wire.call(METADATA, version, make(topics=[*asked, make.Topics(name=name)]))
    assert [(one.name, one.error_code) for one in response.topics] == [
        (name, Errors.INVALID_REQUEST),
        ("", Errors.INVALID_REQUEST),
        (name, Errors.NONE),
    ]


@versions(PRODUCE)
def test_produce(wire, topic, version):
    data = None
    if version < 3:
        data = build_set([(1_600_000_000_000 + i, b"k%d" % i, b"v%d" % i) for i in range(3)], 1 if version == 2 else 0)
    answer = produce(wire, topic[0], version, data=data)
    assert (answer.error_code, answer.base_offset) == (Errors.NONE, 3)


@versions(FETCH)
def test_fetch(wire, topic, version):
    name, topic_id = topic
    make = FETCH.Request
    part = make.Topics.Partitions(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    chosen = make.Topics(topic_id=topic_id) if version >= 13 else make.Topics(topic=name)
    chosen.partitions = [part]
    request = make(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[chosen])
    if version < 15:
        request.replica_id = -1
    response = wire.call(FETCH, version, request)
    (answer,) = response.responses[0].partitions
    assert (answer.error_code, answer.high_watermark) == (Errors.NONE, 3)
    if version >= 4:
        assert bytes(answer.records)[61:] == records()[61:]
    else:
        magic = 1 if version >= 2 else 0
        found = [one for header in iter_entries(answer.records) for one in messages_of(answer.records, header)]
        assert {header.magic for header in iter_entries(answer.records)} == {magic}
        assert [(one.offset, one.key, one.value) for one in found] == [(i, b"k%d" % i, b"v%d" % i) for i in range(3)]
        assert [one.timestamp for one in found] == [1_600_000_000_000 + i if magic else -1 for i in range(3)]


@versions(LIST_OFFSETS)
@pytest.mark.parametrize(("timestamp", "offset"), [(-2, 0), (-1, 3), (1_600_000_000_001, 1), (1_700_000_000_000, -1)])
def test_list_offsets(wire, topic, version, timestamp, offset):
    make = LIST_OFFSETS.Request
    part = make.Topics.Partitions(partition_index=0, timestamp=timestamp)
    request = make(replica_id=-1, topics=[make.Topics(name=topic[0], partitions=[part])])
    answer = wire.call(LIST_OFFSETS, version, request).topics[0].partitions[0]
    assert answer.error_code == Errors.NONE
    if version == 0:  # has only the base offset of the one segment, and the log end offset
        assert answer.old_style_offsets == {-2: [0], -1: [3]}.get(timestamp, [])
    else:
        assert answer.offset == offset


@versions(LIST_OFFSETS)
def test_list_offsets_of_the_largest_timestamp(wire, topic, version):
    make = LIST_OFFSETS.Request
    part = make.Topics.Partitions(partition_index=0, timestamp=-3)
    request = make(replica_id=-1, topics=[make.Topics(name=topic[0], partitions=[part])])
    answer = wire.call(LIST_OFFSETS, version, request).topics[0].partitions[0]
    if version < 7:
        assert answer.error_code == Errors.UNSUPPORTED_VERSION
    else:
        assert (answer.error_code, answer.offset, answer.timestamp) == (Errors.NONE, 2, 1_600_000_000_002)


@versions(OFFSET_FOR_LEADER_EPOCH)
def test_offset_for_leader_epoch(wire, topic, version):
    make = OFFSET_FOR_LEADER_EPOCH.Request
    part = make.Topics.Partitions(partition=0, leader_epoch=0)
    request = make(topics=[make.Topics(topic=topic[0], partitions=[part])])
    answer = wire.call(OFFSET_FOR_LEADER_EPOCH, version, request).topics[0].partitions[0]
    assert (answer.error_code, answer.end_offset) == (Errors.NONE, 3)
    if version >= 1:
        assert answer.leader_epoch == 0


@versions(CREATE_TOPICS)
def test_create_topics(wire, version):
    make = CREATE_TOPICS.Request
    name = f"made-v{version}"
    config = make.Topics.Configs(name="segment.bytes", value="1048576")
    request = make(
        topics=[make.Topics(name=name, num_partitions=3, replication_factor=1, configs=[config])], timeout_ms=9000
    )
    (answer,) = wire.call(CREATE_TOPICS, version, request).topics
    assert (answer.name, answer.error_code) == (name, Errors.NONE)
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (3, 1)
        assert {one.name: one.value for one in answer.configs}["segment.bytes"] == "1048576"
    (again,) = wire.call(CREATE_TOPICS, version, request).topics
    assert again.error_code == Errors.TOPIC_ALREADY_EXISTS


@versions(CREATE_TOPICS)
def test_a_topic_that_is_named_twice_is_refused_twice_and_not_created(wire, version):
    make = CREATE_TOPICS.Request
    twice, once = f"twice-v{version}", f"once-v{version}"
    topics = [make.Topics(name=name, num_partitions=1, replication_factor=1) for name in (twice, once, twice)]
    answers = wire.call(CREATE_TOPICS, version, make(topics=topics, timeout_ms=9000)).topics
    assert [(answer.name, answer.error_code) for answer in answers] == [
        (twice, Errors.INVALID_REQUEST),
        (once, Errors.NONE),
        (twice, Errors.INVALID_REQUEST),
    ]
    request = METADATA.Request(topics=[METADATA.Request.Topics(name=twice)], allow_auto_topic_creation=False)
    (asked,) = wire.call(METADATA, 12, request).topics
    assert asked.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION


@versions(DELETE_TOPICS)
def test_delete_topics(wire, topic, version):
    make = DELETE_TOPICS.Request
    if version >= 6:
        request = make(topics=[make.Topics(name=topic[0], topic_id=ZERO_ID)], timeout_ms=9000)
    else:
        request = make(topic_names=[topic[0]], timeout_ms=9000)
    (answer,) = wire.call(DELETE_TOPICS, version, request).responses
    assert (answer.name, answer.error_code) == (topic[0], Errors.NONE)
    (again,) = wire.call(DELETE_TOPICS, version, request).responses
    assert again.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION


def test_delete_topics_by_id(wire, topic):
    make = DELETE_TOPICS.Request
    request = make(topics=[make.Topics(name=None, topic_id=topic[1])], timeout_ms=9000)
    (answer,) = wire.call(DELETE_TOPICS, 6, request).responses
    assert (answer.name, answer.error_code) == (topic[0], Errors.NONE)
    (again,) = wire.call(DELETE_TOPICS, 6, request).responses
    assert again.error_code == Errors.UNKNOWN_TOPIC_ID


@versions(CREATE_PARTITIONS)
def test_create_partitions(wire, topic, version):
    make = CREATE_PARTITIONS.Request
    request = make(topics=[make.Topics(name=topic[0], count=4, assignments=None)], timeout_ms=9000)
    (answer,) = wire.call(CREATE_PARTITIONS, version, request).results
    assert answer.error_code == Errors.NONE
    ask = METADATA.Request
    (one,) = wire.call(METADATA, 12, ask(topics=[ask.Topics(name=topic[0])])).topics
    assert len(one.partitions) == 4


@versions(DELETE_RECORDS)
def test_delete_records(wire, topic, version):
    make = DELETE_RECORDS.Request
    part = make.Topics.Partitions(partition_index=0, offset=2)
    request = make(topics=[make.Topics(name=topic[0], partitions=[part])], timeout_ms=9000)
    answer = wire.call(DELETE_RECORDS, version, request).topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == (Errors.NONE, 2)


@versions(DESCRIBE_CONFIGS)
@pytest.mark.parametrize("kind", ["topic", "broker"])
def test_describe_configs(wire, topic, version, kind):
    make = DESCRIBE_CONFIGS.Request
    resource = make.Resources(
        resource_type=2 if kind == "topic" else 4, resource_name=topic[0] if kind == "topic" else "0"
    )
    resource.configuration_keys = None
    request = make(resources=[resource])
    if version >= 1:
        request.include_synonyms = True
    if version >= 3:
        request.include_documentation = True
    (answer,) = wire.call(DESCRIBE_CONFIGS, version, request).results
    assert answer.error_code == Errors.NONE
    entries = {one.name: one for one in answer.configs}
    name = "retention.ms" if kind == "topic" else "num.network.threads"
    assert entries[name].value == ("604800000" if kind == "topic" else "1")
    if version == 0:
        assert entries[name].is_default
    else:
        assert entries[name].config_source == 5
    if version >= 3:
        assert entries[name].documentation


@versions(ALTER_CONFIGS)
def test_alter_configs_replaces_all(wire, topic, version):
    make = ALTER_CONFIGS.Request
    config = make.Resources.Configs(name="retention.ms", value="1234567")
    request = make(resources=[make.Resources(resource_type=2, resource_name=topic[0], configs=[config])])
    (answer,) = wire.call(ALTER_CONFIGS, version, request).responses
    assert answer.error_code == Errors.NONE
    assert described(wire, topic[0], "retention.ms") == "1234567"


@versions(INCREMENTAL_ALTER_CONFIGS)
def test_incremental_alter_configs(wire, topic, version):
    make = INCREMENTAL_ALTER_CONFIGS.Request
    config = make.Resources.Configs(name="cleanup.policy", config_operation=2, value="compact")
    request = make(resources=[make.Resources(resource_type=2, resource_name=topic[0], configs=[config])])
    (answer,) = wire.call(INCREMENTAL_ALTER_CONFIGS, version, request).responses
    assert answer.error_code == Errors.NONE
    assert described(wire, topic[0], "cleanup.policy") == "delete,compact"


def described(wire, topic, name):
    make = DESCRIBE_CONFIGS.Request
    resource = make.Resources(resource_type=2, resource_name=topic, configuration_keys=[name])
    (answer,) = wire.call(DESCRIBE_CONFIGS, 4, make(resources=[resource])).results
    return answer.configs[0].value


@versions(DESCRIBE_CLUSTER)
def test_describe_cluster(wire, broker, version):
    request = DESCRIBE_CLUSTER.Request(include_cluster_authorized_operations=True)
    response = wire.call(DESCRIBE_CLUSTER, version, request)
    assert (response.error_code, response.controller_id) == (Errors.NONE, 0)
    assert response.cluster_id == broker.services.cluster_id
    assert len(response.cluster_id) == 22
    assert [(one.broker_id, one.host) for one in response.brokers] == [(0, "127.0.0.1")]


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, Errors.MISMATCHED_ENDPOINT_TYPE), (3, Errors.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_describe_cluster_refuses_other_endpoint_types_with_the_errors_of_kafka(wire, endpoint_type, code):
    response = wire.call(DESCRIBE_CLUSTER, 1, DESCRIBE_CLUSTER.Request(endpoint_type=endpoint_type))
    assert (response.error_code, response.brokers) == (code, [])


@versions(DESCRIBE_LOG_DIRS)
def test_describe_log_dirs(wire, topic, version):
    make = DESCRIBE_LOG_DIRS.Request
    request = make(topics=[make.Topics(topic=topic[0], partitions=[0])])
    (result,) = wire.call(DESCRIBE_LOG_DIRS, version, request).results
    (one,) = result.topics
    assert (one.name, one.partitions[0].partition_size) == (topic[0], len(records()))
    if version >= 4:
        assert result.total_bytes > result.usable_bytes > 0


@versions(DESCRIBE_PRODUCERS)
def test_describe_producers(wire, topic, version):
    data = build([(1, b"k", b"v", [])], producer_id=77, producer_epoch=3, base_sequence=0)
    assert produce(wire, topic[0], 9, data=data).error_code == Errors.NONE
    make = DESCRIBE_PRODUCERS.Request
    request = make(topics=[make.Topics(name=topic[0], partition_indexes=[0])])
    answer = wire.call(DESCRIBE_PRODUCERS, version, request).topics[0].partitions[0]
    (producer,) = answer.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 3, 0)


@versions(INIT_PRODUCER_ID)
def test_init_producer_id(wire, version):
    make = INIT_PRODUCER_ID.Request
    given = [wire.call(INIT_PRODUCER_ID, version, make(transactional_id=None, transaction_timeout_ms=1)) for _ in "ab"]
    assert [one.error_code for one in given] == [0, 0]
    assert given[0].producer_id + 1 == given[1].producer_id
    assert given[0].producer_epoch == 0
    refused = wire.call(INIT_PRODUCER_ID, version, make(transactional_id="", transaction_timeout_ms=1))
    assert refused.error_code == Errors.INVALID_REQUEST


@versions(ELECT_LEADERS)
def test_elect_leaders(wire, topic, version):
    make = ELECT_LEADERS.Request
    request = make(topic_partitions=[make.TopicPartitions(topic=topic[0], partitions=[0, 9])], timeout_ms=9000)
    (result,) = wire.call(ELECT_LEADERS, version, request).replica_election_results
    assert [one.error_code for one in result.partition_result] == [
        Errors.ELECTION_NOT_NEEDED,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@versions(ELECT_LEADERS)
def test_elections_of_a_broker_that_is_not_the_controller_fail_for_each_partition(
    broker, wire, topic, version, monkeypatch
):
    monkeypatch.setattr(broker.services, "controller", Controller())
    make = ELECT_LEADERS.Request
    for partitions, indexes in (([make.TopicPartitions(topic=topic[0], partitions=[0, 9])], [0, 9]), (None, [0, 1])):
        response = wire.call(ELECT_LEADERS, version, make(topic_partitions=partitions, timeout_ms=9000))
        assert response.error_code == Errors.NONE
        (result,) = [one for one in response.replica_election_results if one.topic == topic[0]]
        assert {one.partition_id: one.error_code for one in result.partition_result} == dict.fromkeys(
            indexes, Errors.NOT_CONTROLLER
        )


@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_type_of_election_is_refused(wire, topic, version):
    make = ELECT_LEADERS.Request
    asked = make.TopicPartitions(topic=topic[0], partitions=[0])
    response = wire.call(ELECT_LEADERS, version, make(election_type=2, topic_partitions=[asked], timeout_ms=9000))
    (result,) = response.replica_election_results
    assert response.error_code == result.partition_result[0].error_code == Errors.INVALID_REQUEST


@versions(ALTER_PARTITION_REASSIGNMENTS)
def test_alter_partition_reassignments(wire, topic, version):
    make = ALTER_PARTITION_REASSIGNMENTS.Request
    asked = [make.Topics.Partitions(partition_index=0, replicas=one) for one in ([0], None, [7])]
    request = make(topics=[make.Topics(name=topic[0], partitions=asked)])
    answer = wire.call(ALTER_PARTITION_REASSIGNMENTS, version, request)
    assert answer.error_code == 0
    assert [one.error_code for one in answer.responses[0].partitions] == [
        Errors.NONE,
        Errors.NO_REASSIGNMENT_IN_PROGRESS,
        Errors.INVALID_REPLICA_ASSIGNMENT,
    ]


@versions(LIST_PARTITION_REASSIGNMENTS)
def test_list_partition_reassignments(wire, topic, version):
    make = LIST_PARTITION_REASSIGNMENTS.Request
    named = [make.Topics(name=name, partition_indexes=[0, 9]) for name in (topic[0], "no")]
    for topics in (None, [], named):
        assert wire.call(LIST_PARTITION_REASSIGNMENTS, version, make(topics=topics)).topics == []
