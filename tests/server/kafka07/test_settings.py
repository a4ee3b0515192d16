"""The server.properties of Kafka 0.7: every setting keeps its name, default and effect, or a warning names it."""

import re
import shutil
import socket

import pytest

from kafkapy.log.log07.settings import HOUR_MS, Settings
from kafkapy.network.listeners import ListenError
from kafkapy.record.kafka07 import build_message
from kafkapy.runtime.config_def import ConfigError
from kafkapy.server.config.kafka07 import KEYS, Kafka07Config
from kafkapy.server.metadata_store import StartError
from tests.harness.golden_07 import GOLDEN_07
from tests.server.requests import start_broker

from .bench import Served, messages, produce

LEAST = {"brokerid": "0", "log.dir": "/tmp/kafka-logs", "enable.zookeeper": "false"}
# The names in kafka.server.KafkaConfig and kafka.utils.ZKConfig of 0.7.2.
NAMES = (
    "port hostname brokerid socket.send.buffer socket.receive.buffer max.socket.request.bytes "
    "max.message.size num.threads monitoring.period.secs num.partitions log.dir log.file.size "
    "topic.log.file.size log.roll.hours topic.log.roll.hours log.retention.hours "
    "topic.log.retention.hours log.retention.size topic.log.retention.size log.cleanup.interval.mins "
    "enable.zookeeper log.flush.interval topic.flush.intervals.ms log.default.flush.scheduler.interval.ms "
    "log.default.flush.interval.ms topic.partition.count.map max.topic.name.length zk.connect "
    "zk.sessiontimeout.ms zk.connectiontimeout.ms zk.synctime.ms "
)


def config(**settings):
    return Kafka07Config({**LEAST, **{name.replace("_", "."): value for name, value in settings.items()}})


def test_there_is_every_setting_of_0_7_2():
    assert set(KEYS) == set(NAMES.split())


def test_the_defaults_are_those_of_0_7_2():
    found = config()
    assert found.settings_of("any") == Settings(
        segment_bytes=1 << 30,
        roll_ms=168 * HOUR_MS,
        retention_ms=168 * HOUR_MS,
        retention_bytes=-1,
        flush_ms=3000,
        flush_messages=500,
        max_message=1_000_000,
    )
    assert found.count_of("any") == 1
    values = {name: found[name] for name in ("port", "max.socket.request.bytes", "zk.sessiontimeout.ms")}
    assert values == {"port": 6667, "max.socket.request.bytes": 104857600, "zk.sessiontimeout.ms": 6000}
    assert found["zk.connectiontimeout.ms"] == 6000
    assert found.warnings == []
    assert config(log_default_flush_scheduler_interval_ms="70").settings_of("t").flush_ms == 70


def test_topics_have_settings_of_their_own():
    found = config(
        topic_partition_count_map="a:8,b:16",
        num_partitions="3",
        topic_log_file_size="a:1000",
        topic_log_roll_hours="a: 2 ",
        topic_log_retention_hours="a:3",
        topic_log_retention_size="a:5000000000",
        topic_flush_intervals_ms="a:70",
        log_flush_interval="9",
        max_message_size="77",
    )
    assert [found.count_of(topic) for topic in "abc"] == [8, 16, 3]
    assert found.settings_of("a") == Settings(1000, 2 * HOUR_MS, 3 * HOUR_MS, 5_000_000_000, 70, 9, 77)
    assert found.settings_of("c") == Settings(flush_messages=9, max_message=77)


def test_what_has_no_effect_is_warned_of():
    found = config(num_threads="8", monitoring_period_secs="60", no_setting="x", topic_partition_count_map="a:8,b,c:x")
    assert found.warnings == [
        "unknown settings, ignored: no.setting",
        "settings without effect in this broker: monitoring.period.secs, num.threads",
        "topic.partition.count.map: 'b' is not TOPIC:NUMBER, and is ignored",
        "topic.partition.count.map: 'c:x' is not TOPIC:NUMBER, and is ignored",
    ]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"brokerid": ""}, "brokerid=: must be"),
        ({"log.dir": " "}, "must be set"),
        ({"enable.zookeeper": "true"}, "zk.connect=null: must be set, or enable.zookeeper must be false"),
        ({"port": "70000"}, "port=70000: must be at most 65535"),
        ({"num.partitions": "0"}, "num.partitions=0: must be at least 1"),
        ({"log.roll.hours": "x"}, "log.roll.hours=x: must be a whole number"),
        ({"topic.log.roll.hours": "a:0"}, "the value of a must be at least 1"),
        ({"hostname": "::1"}, "must not have a colon"),
    ],
)
def test_a_wrong_value_stops_the_start_with_file_and_setting(tmp_path, settings, words):
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in {**LEAST, **settings}.items()))
    with pytest.raises(ConfigError, match=f"kafkapy.kafka07.properties={file}: .*{re.escape(words)}"):
        start_broker(tmp_path / "d", kafkapy_kafka07_properties=file)


def test_a_file_that_cannot_be_read_stops_the_start(tmp_path):
    with pytest.raises(ConfigError, match="the file cannot be read: No such file"):
        start_broker(tmp_path / "d", kafkapy_kafka07_properties=tmp_path / "none")


def test_a_port_in_use_is_reported_with_the_file(tmp_path):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"port is in use; choose another one in 'port' in {tmp_path}/server-07"):
            Served(tmp_path, port=port)


# --- directories with logs of the other format


def test_log_dir_must_not_be_one_of_log_dirs(tmp_path):
    with pytest.raises(StartError, match=r"log.dir in .*\(kafkapy.kafka07.properties\) is .*also one of log.dirs"):
        Served(tmp_path, log_dir=tmp_path / "later")


@pytest.mark.parametrize("name", ["meta.properties", "kafkapy.metadata", f"t-0/{0:020}.log"])
def test_log_dir_must_not_be_a_directory_of_later_kafka(tmp_path, name):
    from kafkapy.metadata.local.tree import FILE_NAME

    path = tmp_path / "native" / (FILE_NAME if name == "kafkapy.metadata" else name)
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(StartError, match=r"log.dir in .*, a directory of Kafka 0.8 or later .*name it in log.dirs"):
        Served(tmp_path)
    assert [one for one in (tmp_path / "native").rglob("*") if one.is_file()] == [path]


def test_log_dirs_must_not_have_a_directory_of_0_7(tmp_path):
    shutil.copytree(GOLDEN_07 / "data", tmp_path / "later")
    before = sorted((tmp_path / "later").rglob("*"))
    with pytest.raises(StartError, match=r"log.dirs has .*/later, a directory of Kafka 0.7 .*kafkapy.kafka07.properti"):
        Served(tmp_path)
    assert sorted((tmp_path / "later").rglob("*")) == before


def test_two_brokers_cannot_use_one_directory(tmp_path):
    served = Served(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(StartError, match=r"log.dir in .*is held by another broker"):
        Served(other, log_dir=served.native)
    served.stop()


def test_what_is_in_the_directory_afterwards_is_what_0_7_2_can_use(tmp_path):
    served = Served(tmp_path)
    with served.connect() as client:
        client.send(produce(messages(b"x")))
        client.offsets()
    served.stop()
    found = {str(path.relative_to(served.native)) for path in served.native.rglob("*")}
    assert found == {".lock", ".kafka_cleanshutdown", "t-0", f"t-0/{0:020}.kafka"}
    assert served.stored() == build_message(b"x")
