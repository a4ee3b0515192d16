"""The inventory of log directories that brokers of many Kafka versions wrote, and directories that it refuses."""

import json
import shutil

import pytest

from kafkapy.metadata.ids import decode_id
from kafkapy.server.adoption.errors import AdoptionError
from kafkapy.server.adoption.inventory import bytes_to_read, take_inventory

from .conftest import GOLDEN


def test_kafka_3_9(golden_copy):
    path = golden_copy("kafka-3.9.1-v2")
    seen = []
    found = take_inventory([path], seen.append)
    assert (found.meta.broker_id, found.meta.cluster_id) == (1, "8NMnlg0uR4-nhWypwK598w")
    assert found.stopped_cleanly
    assert not found.is_kraft
    assert {f"{t}-{p}" for t, p in found.partitions} == {one.name for one in path.iterdir() if one.is_dir()}
    ids = {one["path"].rpartition("/")[2]: one["data"] for one in znodes("kafka-3.9.1-v2")}
    for (topic, _), one in found.partitions.items():
        assert one.topic_id == decode_id(json.loads(ids[topic])["topic_id"])
    # The broker was restarted twice while a second broker ran, which raised the leader epochs.
    assert {one.highest.leader_epoch for one in found.partitions.values()} == {4}
    # The last block of ids that this broker took, according to ZooKeeper, ends at 3999.
    assert 3000 <= found.highest_producer_id <= 3999
    assert seen == sorted(seen)
    assert seen[-1] == bytes_to_read([path]) == sum(one.size for one in found.partitions.values())


def znodes(name):
    lines = (GOLDEN / name / "znodes.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [one for one in found if one["path"].startswith("/brokers/topics/") and one["path"].count("/") == 3]


def test_nothing_is_changed(golden_copy):
    path = golden_copy("kafka-3.9.1-v2")
    before = {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}
    take_inventory([path])
    assert {one: one.read_bytes() for one in path.rglob("*") if one.is_file()} == before


def test_kafka_0_10(golden_copy):
    found = take_inventory([golden_copy("kafka-0.10.2.2")])
    assert (found.meta.broker_id, found.meta.cluster_id) == (5, None)
    assert {one.topic_id for one in found.partitions.values()} == {None}
    assert found.highest_producer_id == -1


def test_kafka_0_8_wrote_no_metadata_and_no_epochs(golden_copy):
    found = take_inventory([golden_copy("kafka-0.8.2.2")])
    assert found.meta is None
    assert len(found.partitions) == 17
    assert {one.highest.leader_epoch for one in found.partitions.values()} == {-1}


def test_kafka_0_7_is_for_the_import(golden_copy):
    with pytest.raises(AdoptionError, match=r"gzip-0 was written by Kafka 0\.7.*kafkapy log import"):
        take_inventory([golden_copy("kafka-0.7.2")])


def test_a_killed_broker(golden_copy):
    found = take_inventory([golden_copy("kafka-3.9.1-recovery", "before")])
    assert not found.stopped_cleanly


def test_kraft(small):
    path = small("v2-none-0")
    (path / "meta.properties").write_text("node.id=1\ndirectory.id=eOQk2t7fTX6z\nversion=1\ncluster.id=abc\n")
    (path / "__cluster_metadata-0").mkdir()
    (path / "__cluster_metadata-0" / "00000000000000000000.log").write_bytes(b"")
    found = take_inventory([path])
    assert found.is_kraft
    assert found.meta.identity == (1, "abc")
    assert list(found.partitions) == [("v2-none", 0)]


def test_directories_that_kafka_set_aside_or_marked_for_deletion(small):
    path = small("v2-none-0")
    for kind in ("future", "stray", "delete"):
        (path / f"v2-gzip-0.0123456789abcdef0123456789abcdef-{kind}").mkdir()
    (path / "lost+found").mkdir()
    found = take_inventory([path])
    assert list(found.partitions) == [("v2-none", 0)]
    assert [one.name[-6:] for one in found.set_aside] == ["-stray"]
    assert [one.name[-6:] for one in found.copies] == ["future"]
    assert [one.name[-6:] for one in found.doomed] == ["delete"]


def test_several_directories(small):
    one, two = small("v2-none-0", name="one"), small("v2-gzip-0", name="two")
    assert set(take_inventory([one, two]).partitions) == {("v2-none", 0), ("v2-gzip", 0)}
    (two / ".kafka_cleanshutdown").unlink()
    assert not take_inventory([one, two]).stopped_cleanly


def test_a_partition_in_two_directories(small):
    one, two = small("v2-none-0", name="one"), small("v2-none-0", name="two")
    with pytest.raises(AdoptionError, match=r"v2-none-0 is there twice, as .*one/v2-none-0 and as .*two/v2-none-0"):
        take_inventory([one, two])


def test_directories_of_two_brokers(small):
    one, two = small("v2-none-0", name="one"), small("v2-gzip-0", name="two")
    text = (two / "meta.properties").read_text()
    (two / "meta.properties").write_text(text.replace("broker.id=1", "broker.id=2"))
    with pytest.raises(AdoptionError, match=r"two is of broker 2 of cluster \S+, .*one of broker 1"):
        take_inventory([one, two])


def test_an_adopted_directory(small):
    path = small("v2-none-0")
    (path / "kafkapy-metadata.db").write_bytes(b"SQLite format 3")
    with pytest.raises(AdoptionError, match="adopted already"):
        take_inventory([path])


@pytest.mark.parametrize("name", ["logs", "t-0-x"])
def test_nothing_to_adopt(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(AdoptionError, match="no partition of Apache Kafka"):
        take_inventory([tmp_path])


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("meta.properties", "version=7\n", r"meta\.properties has version=7"),
        ("meta.properties", "version=0\nbroker.id=x\n", r"meta\.properties has broker\.id=x"),
        ("v2-none-0/partition.metadata", "version: 0\ntopic_id: x", r"partition\.metadata has the topic id 'x'"),
    ],
)
def test_files_that_are_not_right(small, file, text, message):
    path = small("v2-none-0")
    (path / file).write_text(text)
    with pytest.raises(AdoptionError, match=message):
        take_inventory([path])


def test_epochs_and_producer_ids_come_from_the_log_if_checkpoints_and_snapshots_are_damaged(small):
    path = small("v2-none-0")
    whole = take_inventory([path])
    directory = path / "v2-none-0"
    (directory / "leader-epoch-checkpoint").write_text("nonsense")
    for snapshot in directory.glob("*.snapshot"):
        snapshot.write_bytes(b"nonsense")
    damaged = take_inventory([path])
    assert damaged.partitions["v2-none", 0].highest == whole.partitions["v2-none", 0].highest
    shutil.rmtree(directory)
    directory.mkdir()
    assert take_inventory([path]).partitions["v2-none", 0].highest == (-1, -1)
