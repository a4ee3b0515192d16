"""Administration: which brokers get the requests, and the errors for refusals."""

import pytest

from kafkapy.client.administration.admin import BROKER, DELETE, LATEST, SET, TOPIC, Admin
from kafkapy.client.administration.descriptions import NewTopic
from kafkapy.client.errors import ConnectionFailed
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol import apis


def test_an_error_has_the_brokers_code_and_message(fake_broker):
    shape = apis.CREATE_TOPICS.Response
    fake_broker.answers[apis.CREATE_TOPICS.key] = lambda _: shape(
        topics=[shape.Topics(name="a/b", error_code=Errors.INVALID_TOPIC_EXCEPTION, error_message="no slashes")]
    )
    with Admin(fake_broker.address) as admin, pytest.raises(KafkaError, match="topic 'a/b': no slashes") as error:
        admin.create_topic("a/b")
    assert error.value.code == Errors.INVALID_TOPIC_EXCEPTION


def test_an_error_without_a_message_gets_the_one_of_its_error_code(fake_broker):
    shape = apis.DELETE_TOPICS.Response
    fake_broker.answers[apis.DELETE_TOPICS.key] = lambda _: shape(
        responses=[shape.Responses(name="t", error_code=Errors.TOPIC_DELETION_DISABLED)]
    )
    with Admin(fake_broker.address) as admin, pytest.raises(KafkaError, match=r"topic 't': .+"):
        admin.delete_topics(["t"])
    assert fake_broker.seen[-1][1] == 5  # the last version that takes names


def test_a_topic_is_created_as_described_and_waited_for(fake_broker):
    shape = apis.CREATE_TOPICS.Response

    def make(request):
        fake_broker.topics[request.topics[0].name] = [1, 1]
        return shape(topics=[shape.Topics(name=topic.name) for topic in request.topics])

    fake_broker.answers[apis.CREATE_TOPICS.key] = make
    wanted = NewTopic("t", assignment={0: [1], 1: [1]}, configs={"retention.ms": "1"})
    with Admin(fake_broker.address) as admin:
        (created,) = admin.create_topics([wanted])
    assert list(created.partitions) == [0, 1]
    (topic,) = fake_broker.requests("CreateTopics")[0].topics
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
    assert [(one.partition_index, one.broker_ids) for one in topic.assignments] == [(0, [1]), (1, [1])]
    assert [(one.name, one.value) for one in topic.configs] == [("retention.ms", "1")]


@pytest.mark.parametrize("former", ["is alive", "is not alive"])
def test_a_topic_is_created_by_the_present_controller(fake_broker, second_broker, former):
    shape = apis.CREATE_TOPICS.Response

    def make(request):
        second_broker.topics["t"] = [2]
        return shape(topics=[shape.Topics(name="t")])

    fake_broker.answers[apis.CREATE_TOPICS.key] = lambda _: shape(
        topics=[shape.Topics(name="t", error_code=Errors.NOT_CONTROLLER)]
    )
    second_broker.answers[apis.CREATE_TOPICS.key] = make
    with Admin(second_broker.address) as admin:
        admin.cluster.refresh([])
        fake_broker.controller = second_broker.controller = 2
        if former == "is not alive":
            fake_broker.close()
        assert list(admin.create_topic("t").partitions) == [0]


def test_offsets_are_asked_of_the_next_leader_when_the_known_one_is_not_reached(fake_broker, second_broker):
    shape = apis.LIST_OFFSETS.Response.Topics
    for broker in (fake_broker, second_broker):
        broker.answers[apis.LIST_OFFSETS.key] = lambda _: apis.LIST_OFFSETS.Response(
            topics=[shape(name="t", partitions=[shape.Partitions(partition_index=0, offset=7)])]
        )
    fake_broker.topics["t"] = [2]
    with Admin(fake_broker.address) as admin:
        admin.offsets({("t", 0): LATEST})
        second_broker.close()
        fake_broker.topics["t"] = [1]
        with pytest.raises(ConnectionFailed):
            admin.offsets({("t", 0): LATEST})
        assert admin.offsets({("t", 0): LATEST})["t", 0].offset == 7
    assert len(fake_broker.requests("ListOffsets")) == 1


def test_offsets_are_asked_of_each_leader(fake_broker, second_broker):
    fake_broker.topics["t"] = [1, 2]
    shape = apis.LIST_OFFSETS.Response.Topics

    def answer_with(offset):
        return lambda request: apis.LIST_OFFSETS.Response(
            topics=[
                shape(
                    name=topic.name,
                    partitions=[
                        shape.Partitions(partition_index=one.partition_index, offset=offset) for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    fake_broker.answers[apis.LIST_OFFSETS.key] = answer_with(10)
    second_broker.answers[apis.LIST_OFFSETS.key] = answer_with(20)
    with Admin(fake_broker.address) as admin:
        found = admin.offsets({("t", 0): LATEST, ("t", 1): LATEST})
    assert {where: one.offset for where, one in found.items()} == {("t", 0): 10, ("t", 1): 20}


def test_settings_of_a_broker_are_asked_of_that_broker(fake_broker, second_broker):
    shape = apis.INCREMENTAL_ALTER_CONFIGS.Response
    second_broker.answers[apis.INCREMENTAL_ALTER_CONFIGS.key] = lambda request: shape(
        responses=[shape.Responses(resource_type=BROKER, resource_name="2")]
    )
    with Admin(fake_broker.address) as admin:
        admin.alter_configs(BROKER, "2", [("a", SET, "1"), ("b", DELETE, None)])
    (resource,) = second_broker.requests("IncrementalAlterConfigs")[0].resources
    assert [(one.name, one.config_operation, one.value) for one in resource.configs] == [("a", 0, "1"), ("b", 1, None)]


def test_a_broker_that_is_not_there_is_named_with_those_that_are(fake_broker):
    with Admin(fake_broker.address) as admin, pytest.raises(KafkaError, match="no broker '9'; the cluster has 1"):
        admin.describe_configs(BROKER, "9")


def test_settings_come_with_source_and_synonyms(fake_broker):
    shape = apis.DESCRIBE_CONFIGS.Response
    entry = shape.Results.Configs(
        name="retention.ms",
        value="5",
        config_source=1,
        synonyms=[shape.Results.Configs.Synonyms(name="log.retention.ms", value="9", source=4)],
    )
    fake_broker.answers[apis.DESCRIBE_CONFIGS.key] = lambda request: shape(
        results=[shape.Results(resource_type=TOPIC, resource_name="t", configs=[entry])]
    )
    with Admin(fake_broker.address) as admin:
        (found,) = admin.describe_configs(TOPIC, "t", ["retention.ms"])
    assert (found.name, found.value, found.source, found.is_default) == (
        "retention.ms",
        "5",
        "DYNAMIC_TOPIC_CONFIG",
        False,
    )
    assert found.synonyms == (("log.retention.ms", "9", "STATIC_BROKER_CONFIG"),)


def test_offsets_are_read_from_the_list_that_brokers_before_0_10_1_send(fake_broker):
    fake_broker.topics = {"t": [1]}
    fake_broker.versions[apis.LIST_OFFSETS.key] = (0, 0)
    shape = apis.LIST_OFFSETS.Response

    def answer(request):
        (topic,) = request.topics
        assert [one.max_num_offsets for one in topic.partitions] == [1]
        return shape(topics=[shape.Topics(name="t", partitions=[shape.Topics.Partitions(old_style_offsets=[7])])])

    fake_broker.answers[apis.LIST_OFFSETS.key] = answer
    with Admin(fake_broker.address) as admin:
        assert admin.offsets({("t", 0): LATEST})["t", 0].offset == 7
