"""Metadata: leaders, errors that are waited out and errors that are raised at once."""

import pytest

from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import BrokerTimedOut, ConnectionFailed
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol import apis
from tests.client.conftest import HANG_UP, SILENCE
from tests.harness.waiting import eventually


def test_a_partition_without_a_leader_is_waited_for(fake_broker):
    fake_broker.topics = {"t": [-1, 1]}
    answer_metadata = fake_broker.answers[apis.METADATA.key]

    def elected_at_the_third_look(request):
        if len(fake_broker.requests("Metadata")) == 3:
            fake_broker.topics = {"t": [1, 1]}
        return answer_metadata(request)

    fake_broker.answers[apis.METADATA.key] = elected_at_the_third_look
    with Cluster(fake_broker.address) as cluster:
        assert cluster.leader_of("t", 0) == 1
    assert len(fake_broker.requests("Metadata")) == 3


def test_an_unknown_topic_is_an_error_at_once(fake_broker):
    with Cluster(fake_broker.address) as cluster, pytest.raises(KafkaError, match="'nope'") as error:
        cluster.topic("nope")
    assert error.value.code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert len(fake_broker.requests("Metadata")) == 1


def test_a_topic_that_the_broker_may_make_is_waited_for(fake_broker):
    answer_metadata = fake_broker.answers[apis.METADATA.key]

    def created_meanwhile(request):
        response = answer_metadata(request)
        fake_broker.topics["t"] = [1]
        return response

    fake_broker.answers[apis.METADATA.key] = created_meanwhile
    with Cluster(fake_broker.address) as cluster:
        assert list(cluster.topic("t", create=True).partitions) == [0]
    assert [request.allow_auto_topic_creation for request in fake_broker.requests("Metadata")] == [True, True]


def test_the_error_for_an_unknown_partition_has_the_number_of_partitions(fake_broker):
    fake_broker.topics = {"t": [1, 1]}
    with Cluster(fake_broker.address) as cluster, pytest.raises(KafkaError, match="no partition 2: it has 2"):
        cluster.leader_of("t", 2)


def test_the_second_address_is_used_when_no_broker_listens_at_the_first(fake_broker, second_broker):
    fake_broker.close()
    with Cluster([fake_broker.address, second_broker.address]) as cluster:
        cluster.refresh([])
        assert cluster.cluster_id == "fake"


def test_no_address_that_answers_is_a_failed_connection(fake_broker):
    fake_broker.close()
    with Cluster(fake_broker.address) as cluster, pytest.raises(ConnectionFailed, match=fake_broker.address):
        cluster.refresh()


def test_another_broker_is_asked_when_one_closes_the_connection(fake_broker, second_broker):
    with Cluster(fake_broker.address) as cluster:
        cluster.refresh([])  # the response has the second broker
        fake_broker.answers[apis.METADATA.key] = lambda request: HANG_UP
        second_broker.topics["t"] = [2]
        assert cluster.leader_of("t", 0) == 2
        cluster.refresh([])  # this request uses the connection that is open


def test_a_connection_that_was_closed_while_idle_is_replaced(fake_broker):
    with Cluster(fake_broker.address) as cluster:
        cluster.refresh([])
        answer_metadata = fake_broker.answers[apis.METADATA.key]
        answers = iter([HANG_UP])
        fake_broker.answers[apis.METADATA.key] = lambda request: next(answers, None) or answer_metadata(request)
        cluster.refresh([])
    assert len(fake_broker.requests("Metadata")) == 3


@pytest.mark.parametrize(
    "chosen",
    [Cluster.any_connection, Cluster.controller, lambda cluster: cluster.borrow(1)],
    ids=["any", "the controller", "borrowed"],
)
def test_a_request_does_not_go_to_a_connection_that_the_broker_has_closed(fake_broker, chosen):
    with Cluster(fake_broker.address) as cluster:
        cluster.refresh([])
        idle = chosen(cluster)
        cluster.give_back(1, idle)  # for the next `borrow`
        fake_broker.drop_connections()
        eventually(lambda: not idle.usable)
        assert chosen(cluster).call(apis.METADATA, apis.METADATA.Request(topics=[])).cluster_id == "fake"
        assert idle.closed


def test_brokers_that_all_close_the_connection_are_each_asked_once(fake_broker, second_broker):
    for broker in (fake_broker, second_broker):
        broker.answers[apis.METADATA.key] = lambda request: HANG_UP
    servers = [fake_broker.address, second_broker.address]
    with Cluster(servers) as cluster, pytest.raises(ConnectionFailed, match=fake_broker.address):
        cluster.refresh([])
    assert [len(broker.requests("Metadata")) for broker in (fake_broker, second_broker)] == [1, 1]


def test_a_request_that_took_too_long_is_not_repeated_at_another_broker(fake_broker, second_broker):
    fake_broker.answers[apis.METADATA.key] = lambda request: SILENCE
    servers = [fake_broker.address, second_broker.address]
    with Cluster(servers, timeout_s=0.5) as cluster, pytest.raises(BrokerTimedOut):
        cluster.refresh([])
    assert not second_broker.requests("Metadata")


def test_waiting_ends_at_the_time_limit_with_the_brokers_reason(fake_broker):
    fake_broker.topics = {"t": [-1]}
    with Cluster(fake_broker.address, timeout_s=0.3) as cluster, pytest.raises(KafkaError, match="t-0") as error:
        cluster.leader_of("t", 0)
    assert error.value.code == Errors.LEADER_NOT_AVAILABLE


def test_a_partition_without_a_leader_leaves_the_others_usable(fake_broker):
    fake_broker.topics = {"t": [-1, 1]}
    with Cluster(fake_broker.address) as cluster:
        assert len(cluster.topic("t").partitions) == 2
        assert cluster.leader_of("t", 1) == 1
        assert cluster.leader_now("t", 0) == -1
    assert len(fake_broker.requests("Metadata")) == 1


def test_a_new_topic_is_waited_for_until_all_partitions_have_leaders(fake_broker):
    fake_broker.topics = {"t": [-1, 1]}
    with Cluster(fake_broker.address, timeout_s=0.3) as cluster, pytest.raises(KafkaError) as error:
        cluster.topic("t", wait_for_leaders=True)
    assert error.value.code == Errors.LEADER_NOT_AVAILABLE


def test_a_topic_that_the_response_leaves_out_is_an_error(fake_broker):
    fake_broker.answers[apis.METADATA.key] = lambda request: apis.METADATA.Response()
    with Cluster(fake_broker.address) as cluster, pytest.raises(KafkaError, match=r"topic 't': .* leaves it out"):
        cluster.topic("t")


def test_metadata_is_requested_from_brokers_before_0_11_though_that_may_create_topics(fake_broker):
    fake_broker.topics = {"t": [1]}
    fake_broker.versions[apis.METADATA.key] = (0, 1)
    with Cluster(fake_broker.address, old_brokers=True) as cluster:
        assert cluster.leader_of("t", 0) == 1
    with Cluster(fake_broker.address) as cluster, pytest.raises(KafkaError, match="cannot carry False"):
        cluster.leader_of("t", 0)
