"""Admin requests of every client: cluster, topics, partitions, settings, records, log directories."""

import time

import pytest

from tests.harness.brokers import Broker
from tests.harness.clients.base import Client, ClientError, Partition, Record
from tests.harness.clients.registry import Clients

TOPIC_ALREADY_EXISTS, INVALID_TOPIC, INVALID_PARTITIONS, INVALID_CONFIG = 36, 17, 37, 40
UNKNOWN_TOPIC_OR_PARTITION, OFFSET_OUT_OF_RANGE, ELECTION_NOT_NEEDED = 3, 1, 84


@pytest.fixture(scope="module")
def two_producers(admin: Client) -> str:
    """Create a topic with records of two idempotent producers in partition 0, and none in partition 1."""
    topic = "two-producers"
    admin.create_topic(topic, 2)
    for _ in range(2):
        admin.produce(topic, [Record(b"%d" % n, partition=0) for n in range(5)], idempotent=True)
    return topic


@pytest.mark.needs("cluster")
def test_describes_the_cluster(client: Client, broker: Broker) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    description = client.cluster()
    (node,) = description["nodes"]
    assert node[1:] == (host, int(port))
    assert description["controller"] == node[0]


@pytest.mark.other_runtime
def test_every_client_gets_the_same_cluster_id(clients: Clients) -> None:
    names = ("confluent-kafka", "kafka-python", "java-3.9.1", "java-4.4.0", "franz-go", "kafkajs")
    ids = {name: clients[name].cluster()["cluster_id"] for name in names}
    assert len(set(ids.values())) == 1, ids
    assert len(ids["java-3.9.1"]) == 22


@pytest.mark.needs("create_topic", "delete_topic")
def test_creates_describes_and_deletes_a_topic(client: Client, admin: Client, topic_name: str) -> None:
    client.create_topic(topic_name, 3, {"retention.ms": "3600000"})
    (node,) = (number for number, _, _ in admin.cluster()["nodes"])
    assert client.partitions_of(topic_name) == {p: Partition(node, (node,), (node,)) for p in range(3)}
    assert topic_name in client.topic_names()
    assert client.topic_configs(topic_name)["retention.ms"] == "3600000"
    with pytest.raises(ClientError) as refused:
        client.create_topic(topic_name, 1)
    assert refused.value.code == TOPIC_ALREADY_EXISTS
    client.delete_topic(topic_name)
    assert topic_name not in admin.topic_names()
    with pytest.raises(ClientError) as refused:
        client.delete_topic(topic_name)
    assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.needs("create_topic")
def test_a_topic_created_again_is_empty(client: Client, admin: Client, topic_name: str) -> None:
    for round_ in range(2):
        _create_after_deletion(client, topic_name)
        admin.produce(topic_name, [Record(b"round %d" % round_, partition=0)])
        assert admin.watermarks(topic_name, [0]) == {0: (0, 1)}
        client.delete_topic(topic_name)


@pytest.mark.needs("create_topic")
def test_validate_only_creates_nothing(client: Client, admin: Client, topic_name: str) -> None:
    client.create_topic(topic_name, 3, validate_only=True)
    assert topic_name not in admin.topic_names()


@pytest.mark.needs("create_topic")
@pytest.mark.parametrize("bad", ["with/slash", ".", "..", "x" * 250, "white space"])
def test_refuses_an_illegal_topic_name(client: Client, bad: str, admin: Client) -> None:
    with pytest.raises(ClientError) as refused:
        client.create_topic(bad, 1)
    assert refused.value.code == INVALID_TOPIC
    assert bad not in admin.topic_names()


@pytest.mark.needs("create_topic")
def test_refuses_wrong_settings_of_a_new_topic(client: Client, topic_name: str) -> None:
    for configs in ({"retention.ms": "soon"}, {"no.such.setting": "1"}, {"segment.bytes": "1"}):
        with pytest.raises(ClientError) as refused:
            client.create_topic(topic_name, 1, configs)
        assert refused.value.code == INVALID_CONFIG, configs


@pytest.mark.needs("add_partitions")
def test_adds_partitions(client: Client, admin: Client, topic_name: str) -> None:
    admin.create_topic(topic_name, 2)
    client.add_partitions(topic_name, 5)
    assert sorted(admin.partitions_of(topic_name)) == [0, 1, 2, 3, 4]
    admin.produce(topic_name, [Record(b"in the last", partition=4)])
    assert admin.watermarks(topic_name, [4]) == {4: (0, 1)}
    with pytest.raises(ClientError) as refused:
        client.add_partitions(topic_name, 3)
    assert refused.value.code == INVALID_PARTITIONS


@pytest.mark.needs("topic_configs", "set_topic_configs")
def test_changes_settings_of_a_topic(client: Client, admin: Client, topic_name: str) -> None:
    admin.create_topic(topic_name, 1)
    before = client.topic_configs(topic_name)
    assert (before["retention.ms"], before["segment.bytes"], before["cleanup.policy"]) == (
        "604800000",
        "1073741824",
        "delete",
    )
    client.set_topic_configs(topic_name, {"retention.ms": "12345678", "compression.type": "zstd"})
    after = client.topic_configs(topic_name)
    assert (after["retention.ms"], after["compression.type"]) == ("12345678", "zstd")
    assert admin.topic_configs(topic_name) == after
    if "reset_topic_config" in client.abilities:
        client.reset_topic_config(topic_name, "retention.ms")
        assert client.topic_configs(topic_name) == {**before, "compression.type": "zstd"}
    with pytest.raises(ClientError) as refused:
        client.set_topic_configs(topic_name, {"retention.ms": "soon"})
    assert refused.value.code == INVALID_CONFIG


@pytest.mark.needs("broker_configs")
def test_reads_settings_of_the_broker(client: Client, broker: Broker) -> None:
    (node,) = (number for number, _, _ in client.cluster()["nodes"])
    configs = client.broker_configs(node)
    assert configs["log.dirs"] == str(broker.data)
    assert configs["message.max.bytes"] == "1048588"
    assert configs["num.partitions"] == "1"


@pytest.mark.needs("delete_records")
def test_deletes_records(client: Client, admin: Client, topic_name: str) -> None:
    admin.create_topic(topic_name, 2)
    for partition in range(2):
        admin.produce(topic_name, [Record(b"%d" % number, partition=partition) for number in range(20)])
    assert client.delete_records(topic_name, {0: 7}) == {0: 7}
    assert client.delete_records(topic_name, {1: -1}) == {1: 20}
    assert admin.watermarks(topic_name, [0, 1]) == {0: (7, 20), 1: (20, 20)}
    assert [each.offset for each in admin.fetch(topic_name, {0: 7}, {0: 20})[0]] == list(range(7, 20))
    with pytest.raises(ClientError) as refused:
        client.delete_records(topic_name, {0: 21})
    assert refused.value.code == OFFSET_OUT_OF_RANGE


@pytest.mark.needs("log_dirs")
def test_describes_log_directories(client: Client, admin: Client, topic_name: str) -> None:
    admin.create_topic(topic_name, 2)
    admin.produce(topic_name, [Record(b"x" * 10_000, partition=1)])
    sizes = client.log_dirs(topic_name)
    assert sizes[0] == 0
    assert 10_000 < sizes[1] < 11_000


@pytest.mark.needs("producers")
def test_describes_producers(client: Client, two_producers: str) -> None:
    assert client.producers(two_producers, 1) == []
    states = client.producers(two_producers, 0)
    assert len({state["producer_id"] for state in states}) == 2
    assert [(state["epoch"], state["last_sequence"]) for state in states] == [(0, 4), (0, 4)]


@pytest.mark.needs("elect_leaders")
def test_an_election_is_not_needed(client: Client, admin: Client, topic_name: str) -> None:
    admin.create_topic(topic_name, 2)
    assert client.elect_leaders(topic_name, [0, 1]) == {0: ELECTION_NOT_NEEDED, 1: ELECTION_NOT_NEEDED}


@pytest.mark.needs("produce")
def test_writing_to_an_unknown_topic_creates_it(client: Client, admin: Client, topic_name: str) -> None:
    client.produce(topic_name, [client.express(Record(b"first"))])
    assert admin.watermarks(topic_name, [0]) == {0: (0, 1)}


def _create_after_deletion(client: Client, topic: str) -> None:
    """Create a topic again after its deletion. Retry, since Kafka deletes topics in the background."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return client.create_topic(topic, 1)
        except ClientError as refused:
            if refused.code != TOPIC_ALREADY_EXISTS or time.monotonic() > deadline:
                raise
        time.sleep(0.05)
