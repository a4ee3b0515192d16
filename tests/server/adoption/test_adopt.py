"""`adopt` as a whole: which files it writes, crashes in the middle, and the broker that starts on the directory."""

import shutil
import subprocess
import sys

import pytest

from kafkapy.client.administration.admin import TOPIC, Admin
from kafkapy.client.cluster import Cluster
from kafkapy.client.producing.record_producer import RecordProducer
from kafkapy.log.storage.files import Files
from kafkapy.metadata.ids import encode_id
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.protocol.apis import INIT_PRODUCER_ID
from kafkapy.server.adoption.adopt import adopt
from kafkapy.server.adoption.errors import AdoptionError
from kafkapy.server.adoption.knowledge import Knowledge
from kafkapy.server.adoption.tree import UNFINISHED
from kafkapy.server.adoption.zookeeper import read_cluster
from kafkapy.server.broker import StartError
from kafkapy.testing.broker import Broker
from tests.harness.group_wire import GroupWire


def contents(path):
    return {str(one.relative_to(path)): one.read_bytes() for one in path.rglob("*") if one.is_file()}


def test_only_the_metadata_is_added(golden_copy):
    path = golden_copy("kafka-3.9.1-v2")
    before = contents(path)
    adopt([path], Knowledge())
    after = contents(path)
    assert after.keys() - before.keys() == {FILE_NAME, ".lock"}
    assert {name: after[name] for name in before} == before


def test_a_dry_run_changes_nothing(golden_copy):
    path = golden_copy("kafka-3.9.1-v2")
    before = contents(path)
    found, plan = adopt([path], Knowledge(), dry_run=True)
    assert contents(path) == before
    assert len(found.partitions) == sum(len(topic.epochs) for topic in plan.topics) == 24


def test_topics_keep_their_ids_epochs_and_settings(golden_copy, golden_nodes):
    path = golden_copy("kafka-3.9.1-v2")
    nodes = golden_nodes("kafka-3.9.1-v2")
    _, plan = adopt([path], read_cluster(nodes, "ZooKeeper"))
    with Broker(path) as broker, Cluster(broker.bootstrap_servers) as cluster, Admin(cluster) as admin:
        assert admin.describe_cluster().cluster_id == "8NMnlg0uR4-nhWypwK598w"
        topics = {topic.name: topic for topic in admin.list_topics()}
        assert {name: encode_id(topic.topic_id) for name, topic in topics.items()} == {
            topic.name: encode_id(topic.id) for topic in plan.topics
        }
        for topic in topics.values():
            assert {(one.leader, one.leader_epoch) for one in topic.partitions.values()} == {(1, 4)}
        own = [one for one in admin.describe_configs(TOPIC, "v2-compacted-none") if one.source == "topic"]
        shown = {one.name: one.value for one in admin.describe_configs(TOPIC, "v2-compacted-none")}
        assert (shown["cleanup.policy"], shown["segment.ms"]) == ("compact", "3600000"), own
        answer = cluster.any_connection().call(
            INIT_PRODUCER_ID, INIT_PRODUCER_ID.Request(transactional_id=None, transaction_timeout_ms=60_000)
        )
        assert answer.producer_id == 1_000_000_000
    assert not [one for one in path.iterdir() if one.name.endswith("-stray")]


def test_new_records_follow_the_old_ones_and_are_there_after_a_restart(small):
    path = small("v2-none-0")
    adopt([path], Knowledge())
    with Broker(path) as broker, RecordProducer(broker.bootstrap_servers) as producer:
        sent = producer.send("v2-none", b"new")
        producer.flush()
        assert sent.base_offset == 190
    before = (path / "v2-none-0" / "leader-epoch-checkpoint").read_text()
    with Broker(path) as broker, Admin(broker.bootstrap_servers) as admin:
        assert admin.offsets({("v2-none", 0): -1})["v2-none", 0].offset == 191
    # The broker began no new leader epoch, so Kafka can still use the log if it is restarted.
    assert (path / "v2-none-0" / "leader-epoch-checkpoint").read_text() == before
    assert before.splitlines()[-1].startswith("4 ")


def test_a_broker_of_kafka_0_8_gets_ids(golden_copy):
    path = golden_copy("kafka-0.8.2.2")
    _, plan = adopt([path], Knowledge(), broker_id=4)
    with Broker(path) as broker, Admin(broker.bootstrap_servers) as admin:
        assert {topic.name: topic.topic_id for topic in admin.list_topics()} == {
            one.name: one.id for one in plan.topics
        }
        assert list(admin.cluster.brokers) == [4]
    with Broker(path) as broker, Admin(broker.bootstrap_servers) as admin:
        assert {topic.name: topic.topic_id for topic in admin.list_topics()} == {
            one.name: one.id for one in plan.topics
        }


def test_offsets_of_old_consumers_in_zookeeper_are_kept(golden_copy, golden_nodes):
    """OffsetFetch v0 returns the offsets from ZooKeeper, also for a group that has others in `__consumer_offsets`."""
    path = golden_copy("kafka-0.8.2.2")
    nodes = golden_nodes("kafka-0.8.2.2", "znodes-after-consumers-left.jsonl")
    nodes.nodes["/consumers/dual-group/offsets/gone"] = None
    nodes.nodes["/consumers/dual-group/offsets/gone/0"] = "3"
    _, plan = adopt([path], read_cluster(nodes, "ZooKeeper"))
    kept = {node: data for node, data in nodes.nodes.items() if "/offsets/" in node and data and "gone" not in node}
    assert {f"/consumers/{g}/offsets/{t}/{p}": o.decode() for (g, t, p), o in plan.consumer_offsets.items()} == kept
    with Broker(path) as broker:
        wire = GroupWire(broker.bootstrap_servers)
        for (group, topic, partition), offset in plan.consumer_offsets.items():
            found = wire.fetch(group, {topic: [partition]}, version=0)
            assert found == {(topic, partition): (int(offset), -1, "", 0)}
        assert wire.commit("dual-group", {("v0-consumed", 0): 6}, version=0) == {("v0-consumed", 0): 0}
        assert wire.fetch("dual-group", {"v0-consumed": [0]}, version=0)["v0-consumed", 0][0] == 6
        wire.find_coordinator("dual-group")
        assert wire.offsets("dual-group") == {("v0-consumed", 0): 5}
        wire.close()


def test_several_directories(small):
    one, two = small("v2-none-0", name="one"), small("v2-gzip-0", name="two")
    adopt([one, two], Knowledge())
    assert not (two / FILE_NAME).exists()
    with pytest.raises(StartError, match=rf"the metadata is in {one}, not in {two}: name that directory first"):
        Broker(log_dir=two, log_dirs=f"{two},{one}").start()
    with Broker(log_dir=one, log_dirs=f"{one},{two}") as broker, Admin(broker.bootstrap_servers) as admin:
        assert [topic.name for topic in admin.list_topics()] == ["v2-gzip", "v2-none"]


def test_kraft_directories_stay_those_of_kraft(small):
    path = small("v2-none-0")
    meta = "node.id=1\ndirectory.id=eOQk2t7fTX6z\nversion=1\ncluster.id=8NMnlg0uR4-nhWypwK598w\n"
    (path / "meta.properties").write_text(meta)
    shutil.copytree(path / "v2-none-0", path / "__cluster_metadata-0")
    with pytest.raises(StartError, match="kafkapy log adopt"):
        Broker(path).start()
    adopt([path], Knowledge())
    with Broker(path) as broker, Admin(broker.bootstrap_servers) as admin:
        assert [topic.name for topic in admin.list_topics()] == ["v2-none"]
        assert list(admin.cluster.brokers) == [1]
    assert (path / "meta.properties").read_text() == meta
    assert (path / "__cluster_metadata-0").is_dir()


def test_a_formatted_but_empty_kraft_directory_is_not_taken_for_a_new_one(tmp_path):
    (tmp_path / "meta.properties").write_text("node.id=1\nversion=1\ncluster.id=8NMnlg0uR4-nhWypwK598w\n")
    with pytest.raises(StartError, match="a KRaft broker's files"):
        Broker(tmp_path).start()


def test_a_directory_whose_metadata_were_lost_is_not_taken_for_a_new_one(small):
    home = small("v2-none-0")
    (home / FILE_NAME).touch()
    with pytest.raises(StartError, match=r"log.dirs holds partitions \(v2-none-0 is one\)"):
        Broker(home).start()
    adopt([home], Knowledge())
    with Broker(home) as broker, Admin(broker.bootstrap_servers) as admin:
        assert [topic.name for topic in admin.list_topics()] == ["v2-none"]


def test_the_logs_of_a_killed_kafka_are_recovered_at_the_first_start(golden_copy):
    path = golden_copy("kafka-3.9.1-recovery", "before")
    found, _ = adopt([path], Knowledge())
    assert not found.stopped_cleanly
    with Broker(path) as broker, Admin(broker.bootstrap_servers) as admin:
        ends = admin.offsets({(name, 0): -1 for name in ("untouched", "torn-tail", "bad-crc-middle")})
    assert {topic: one.offset for (topic, _), one in ends.items()} == {
        "untouched": 50,
        "torn-tail": 42,
        "bad-crc-middle": 16,
    }


def test_a_missing_partition_is_created_empty(small):
    path = small("v2-none-0")
    (path / "v2-none-0").rename(path / "v2-none-1")
    adopt([path], Knowledge())
    with Broker(path) as broker, Admin(broker.bootstrap_servers) as admin:
        ends = admin.offsets({("v2-none", 0): -1, ("v2-none", 1): -1})
    assert [ends["v2-none", index].offset for index in (0, 1)] == [0, 190]


# --- refusals and interruptions


def test_a_second_adoption_is_refused(small):
    path = small("v2-none-0")
    adopt([path], Knowledge())
    with pytest.raises(AdoptionError, match="adopted already"):
        adopt([path], Knowledge())


def test_a_directory_in_use_is_refused_and_may_be_looked_at(small):
    path = small("v2-none-0")
    adopt([path], Knowledge())
    with Broker(path):
        (path / FILE_NAME).rename(path / "aside")
        with pytest.raises(AdoptionError, match="in use by a running broker"):
            adopt([path], Knowledge())
        adopt([path], Knowledge(), dry_run=True)
        (path / "aside").rename(path / FILE_NAME)


def test_a_directory_that_is_not_there_or_named_twice(small, tmp_path):
    path = small("v2-none-0")
    with pytest.raises(AdoptionError, match="nowhere is not a directory"):
        adopt([path, tmp_path / "nowhere"], Knowledge())
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(AdoptionError, match="named twice"):
        adopt([path, tmp_path / "link"], Knowledge())


@pytest.mark.parametrize("failing", ["sync_path", "rename", "sync_dir"])
def test_a_failed_adoption_leaves_the_directory_unchanged(small, monkeypatch, failing):
    path = small("v2-none-0")
    before = contents(path)

    def fail(*_):
        raise OSError(28, "made to fail")

    monkeypatch.setattr(Files, failing, fail)
    with pytest.raises(OSError, match="made to fail"):
        adopt([path], Knowledge())
    left = contents(path)
    if failing != "sync_dir":  # after the rename the directory is adopted, though perhaps not synced
        assert left.keys() - before.keys() == {".lock"}
        monkeypatch.undo()
        adopt([path], Knowledge())
    assert (path / FILE_NAME).exists()


def test_metadata_that_did_not_get_into_their_file_are_not_put_in_place(small, monkeypatch):
    """On a full disk, SQLite closes the file without an error and leaves the data in the write-ahead log."""
    path = small("v2-none-0")
    close = LocalTree.close

    def close_on_a_full_disk(tree):
        left = {one: one.read_bytes() for one in path.glob(f"{UNFINISHED}*")}
        close(tree)
        for one, data in left.items():
            one.write_bytes(data)

    with monkeypatch.context() as patched:
        patched.setattr(LocalTree, "close", close_on_a_full_disk)
        with pytest.raises(AdoptionError, match="free some space"):
            adopt([path], Knowledge())
    assert not list(path.glob(f"{FILE_NAME}*"))
    adopt([path], Knowledge())
    with Broker(path) as broker, Admin(broker.bootstrap_servers) as admin:
        assert [topic.name for topic in admin.list_topics()] == ["v2-none"]


def test_a_crash_during_the_adoption_leaves_the_directory_not_adopted(small):
    path = small("v2-none-0")
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from kafkapy.log.storage.files import Files\n"
        "from kafkapy.server.adoption.adopt import adopt\n"
        "from kafkapy.server.adoption.knowledge import Knowledge\n"
        "Files.rename = lambda *_: os._exit(9)\n"
        "adopt([Path(sys.argv[1])], Knowledge())\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(path)], timeout=60, check=False).returncode == 9
    assert not (path / FILE_NAME).exists()
    with pytest.raises(StartError, match="kafkapy log adopt"):
        Broker(path).start()
    (path / f"{FILE_NAME}.adopting").write_bytes(b"half of something")
    adopt([path], Knowledge())
    assert sorted(one.name for one in path.iterdir() if FILE_NAME in one.name) == [FILE_NAME]
