"""The adoption plan, made from the files found and the metadata given, and contradictions that it refuses."""

import json

import pytest

from kafkapy.metadata.ids import decode_id
from kafkapy.server.adoption.errors import AdoptionError
from kafkapy.server.adoption.inventory import Inventory, take_inventory
from kafkapy.server.adoption.knowledge import Knowledge
from kafkapy.server.adoption.plan import make_plan
from kafkapy.server.adoption.topic_plan import INTERNAL, KEEP_ALL
from kafkapy.server.adoption.zookeeper import read_cluster

from .conftest import GOLDEN


def plan_of(path, known=None, **options):
    return make_plan(take_inventory([path]), known or Knowledge(), **options)


def topics_of(plan):
    return {topic.name: topic for topic in plan.topics}


def test_without_settings_all_records_are_kept(golden_copy):
    plan = plan_of(golden_copy("kafka-3.9.1-v2"))
    for name, topic in topics_of(plan).items():
        assert topic.settings == INTERNAL.get(name, KEEP_ALL)
    assert len(plan.without_settings) == len(plan.topics) - len(INTERNAL)
    assert plan.warnings == []
    assert plan.last_producer_id == 999_999_999


@pytest.mark.parametrize("name", ["kafka-3.9.1-v2", "kafka-3.9.1-v0-v1", "kafka-0.10.2.2", "kafka-0.8.2.2"])
def test_with_zookeeper_topics_keep_their_ids_epochs_and_settings(golden_copy, golden_nodes, name):
    nodes = golden_nodes(name)
    plan = plan_of(golden_copy(name), read_cluster(nodes, "ZooKeeper"))
    assert plan.without_settings == []
    for topic in plan.topics:
        stored = json.loads(nodes.nodes[f"/brokers/topics/{topic.name}"])
        config = json.loads(nodes.nodes[f"/config/topics/{topic.name}"])["config"]
        assert topic.settings == config
        assert sorted(topic.epochs) == sorted(map(int, stored["partitions"]))
        assert (encoded(topic.id) if not topic.has_new_id else None) == stored.get("topic_id")
        for partition, epoch in topic.epochs.items():
            state = json.loads(nodes.nodes[f"/brokers/topics/{topic.name}/partitions/{partition}/state"])
            assert (state["leader"], state["leader_epoch"]) == (plan.broker_id, epoch)
    block = nodes.nodes.get("/latest_producer_id_block")
    assert plan.last_producer_id == (999_999_999 if block else -1)
    assert plan.controller_epoch == int(nodes.nodes["/controller_epoch"])
    # The brokers ran while ZooKeeper was read.
    *formats, running = plan.warnings
    assert running == f"broker {plan.broker_id} is registered in ZooKeeper: does Kafka run elsewhere, on a copy?"
    chosen = [topic.name for topic in plan.topics if "message.format.version" in topic.settings]
    assert [one.partition(":")[0] for one in formats] == (
        [f"{chosen[0]} and {len(chosen) - 1} more with message.format.version"] if chosen else []
    )


def encoded(topic_id):
    from kafkapy.metadata.ids import encode_id

    return encode_id(topic_id)


@pytest.mark.parametrize(
    ("in_logs", "in_zookeeper", "last"),
    [
        (-1, -1, -1),
        (0, -1, 999_999_999),
        (5, 1_000_000_999, 1_999_999_999),
        (1_000_000_007, 999, 1_999_999_999),
    ],
)
def test_producer_ids_begin_far_above_those_in_use(small, monkeypatch, in_logs, in_zookeeper, last):
    monkeypatch.setattr(Inventory, "highest_producer_id", in_logs)
    assert plan_of(small("v2-none-0"), Knowledge(last_producer_id=in_zookeeper)).last_producer_id == last


def test_settings_from_a_file_override_those_in_zookeeper(small, golden_nodes):
    known = read_cluster(golden_nodes("kafka-3.9.1-v2"), "ZooKeeper")
    known.add_settings({"v2-none": {"retention.ms": "5000"}}, "a file")
    plan = plan_of(small("v2-none-0", "v2-gzip-0"), known)
    topics = topics_of(plan)
    assert (topics["v2-none"].settings, topics["v2-none"].source) == ({"retention.ms": "5000"}, "a file")
    assert topics["v2-gzip"].source == "ZooKeeper"


def test_dynamic_settings_of_this_broker_and_the_default_ones_are_adopted(small, golden_nodes):
    nodes = golden_nodes("kafka-3.9.1-v2")
    for entity in ("1", "2", "<default>"):
        nodes.nodes[f"/config/brokers/{entity}"] = json.dumps({"version": 1, "config": {"log.retention.ms": entity}})
    plan = plan_of(small("v2-none-0"), read_cluster(nodes, "ZooKeeper"))
    assert plan.broker_settings == {"1": {"log.retention.ms": "1"}, "<default>": {"log.retention.ms": "<default>"}}


def test_epochs_are_the_higher_of_log_and_zookeeper(small, golden_nodes):
    nodes = golden_nodes("kafka-3.9.1-v2")
    state = "/brokers/topics/{}/partitions/0/state"
    nodes.nodes[state.format("v2-none")] = json.dumps({"leader_epoch": 9})
    nodes.nodes[state.format("v2-gzip")] = json.dumps({"leader_epoch": 1})
    topics = topics_of(plan_of(small("v2-none-0", "v2-gzip-0"), read_cluster(nodes, "ZooKeeper")))
    assert (topics["v2-none"].epochs, topics["v2-gzip"].epochs) == ({0: 9}, {0: 4})


def test_a_directory_of_kafka_0_8_needs_the_option_broker_id(golden_copy):
    path = golden_copy("kafka-0.8.2.2")
    with pytest.raises(AdoptionError, match="--broker-id"):
        plan_of(path)
    plan = plan_of(path, broker_id=7)
    assert plan.broker_id == 7
    assert all(topic.has_new_id for topic in plan.topics)
    assert len({topic.id for topic in plan.topics}) == len(plan.topics)


def test_another_broker_id_than_the_stored_one_is_refused(small):
    with pytest.raises(AdoptionError, match="of broker 1, not of broker 2"):
        plan_of(small("v2-none-0"), broker_id=2)


def test_partitions_that_are_not_here(small):
    path = small("v2-none-0")
    (path / "v2-none-0").rename(path / "v2-none-3")
    plan = plan_of(path)
    (topic,) = plan.topics
    assert (sorted(topic.epochs), topic.missing) == ([0, 1, 2, 3], [0, 1, 2])
    assert plan.warnings[0].startswith("v2-none has no directory here for partitions 0, 1, 2, which will be empty")


def test_a_directory_that_only_looks_like_a_partition(small):
    path = small("v2-none-0")
    (path / "backup-20261121").mkdir()
    with pytest.raises(AdoptionError, match="would be partition 20261121 of a topic backup"):
        plan_of(path)


def test_replicas_elsewhere_missing_directories_and_unfinished_deletions_are_warned_of(small, golden_nodes):
    nodes = golden_nodes("kafka-3.9.1-v2")
    stored = json.loads(nodes.nodes["/brokers/topics/v2-none"])
    nodes.nodes["/brokers/topics/v2-none"] = json.dumps({**stored, "partitions": {"0": [1, 2], "1": [2, 1]}})
    nodes.nodes["/admin/delete_topics/v2-none"] = None
    del nodes.nodes["/brokers/ids/1"]
    known = read_cluster(nodes, "ZooKeeper")
    known.add_settings({"strange": {}}, "a file")
    warnings = plan_of(small("v2-none-0"), known).warnings
    assert sum("is in ZooKeeper, but has no directory here" in one for one in warnings) == len(known.topics) - 1
    message = "\n".join(one for one in warnings if "is in ZooKeeper" not in one)
    assert "no directory here for partition 1, which will be empty" in message
    assert "v2-none was to be deleted" in message
    assert "replicas on other brokers (2)" in message
    assert "topics that are not here: strange" in message
    assert len(warnings) == len(known.topics) + 3


def test_partitions_of_two_topics_of_one_name(small):
    path = small("v2-none-0", "v2-gzip-0")
    (path / "v2-gzip-0").rename(path / "v2-none-1")
    with pytest.raises(AdoptionError, match="the partitions of v2-none are of different topics"):
        plan_of(path)


def test_another_topic_id_in_zookeeper(small, golden_nodes):
    nodes = golden_nodes("kafka-3.9.1-v2")
    nodes.nodes["/brokers/topics/v2-none"] = nodes.nodes["/brokers/topics/v2-gzip"]
    with pytest.raises(AdoptionError, match="in ZooKeeper v2-none has the id"):
        plan_of(small("v2-none-0"), read_cluster(nodes, "ZooKeeper"))


def test_the_id_is_taken_from_zookeeper_where_the_file_is_missing(small, golden_nodes):
    path = small("v2-none-0")
    (path / "v2-none-0" / "partition.metadata").unlink()
    nodes = golden_nodes("kafka-3.9.1-v2")
    (topic,) = plan_of(path, read_cluster(nodes, "ZooKeeper")).topics
    assert topic.id == decode_id(json.loads(nodes.nodes["/brokers/topics/v2-none"])["topic_id"])


def test_the_zookeeper_of_another_cluster(small, golden_nodes):
    nodes = golden_nodes("kafka-3.9.1-v2")
    nodes.nodes["/cluster/id"] = json.dumps({"version": "1", "id": "AAAAAAAAAAAAAAAAAAAAAA"})
    with pytest.raises(AdoptionError, match="this ZooKeeper is of AAAAAAAAAAAAAAAAAAAAAA"):
        plan_of(small("v2-none-0"), read_cluster(nodes, "ZooKeeper"))


def test_settings_that_kafka_does_not_have_are_left_out_and_wrong_ones_refused(small):
    path = small("v2-none-0")
    known = Knowledge()
    known.add_settings({"v2-none": {"retention.ms": "5", "confluent.tier.enable": "true"}}, "a file")
    plan = plan_of(path, known)
    assert plan.topics[0].settings == {"retention.ms": "5"}
    assert "v2-none: left out, because Apache Kafka 3.9 has no such settings: confluent.tier.enable" in plan.warnings
    known.add_settings({"v2-none": {"retention.ms": "long"}}, "a file")
    with pytest.raises(AdoptionError, match=r"settings of v2-none \(from a file\): .*long"):
        plan_of(path, known)


def test_a_zookeeper_without_topics_or_with_nonsense(golden_nodes):
    nodes = golden_nodes("kafka-3.9.1-v2")
    del nodes.nodes["/brokers/topics"]
    with pytest.raises(AdoptionError, match=r"zk:2181 has no /brokers/topics: is the chroot"):
        read_cluster(nodes, "zk:2181")
    for nonsense, message in (("{", "not JSON"), ('{"version": 1}', "not that of a topic")):
        nodes = golden_nodes("kafka-3.9.1-v2")
        nodes.nodes["/brokers/topics/v2-none"] = nonsense
        with pytest.raises(AdoptionError, match=message):
            read_cluster(nodes, "zk:2181")


def test_golden_directories_are_complete():
    assert {one.name for one in GOLDEN.iterdir() if one.is_dir()} == {
        "kafka-0.10.2.2", "kafka-0.7.2", "kafka-0.8.2.2", "kafka-3.9.1-recovery", "kafka-3.9.1-v0-v1", "kafka-3.9.1-v2",
    }  # fmt: skip
