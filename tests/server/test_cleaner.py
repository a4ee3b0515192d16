"""The log cleaner in a broker: when it starts, its settings, its metrics and log lines."""

import subprocess
import sys

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import CREATE_TOPICS
from kafkapy.record.batch import build
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.requests import make_topic, produce, start_broker

FAST = {"log_cleaner_backoff_ms": "20", "broker_id": 0}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}


def gauges(server):
    return {
        (metric.name, *labels): value
        for metric, values in server.services.counters.read().items()
        if metric.name.startswith("log_cleaner_")
        for labels, value in values
    }


def make_compacted(wire):
    make = CREATE_TOPICS.Request
    configs = [make.Topics.Configs(name=name, value=value) for name, value in COMPACTED.items()]
    topic = make.Topics(name="compacted", num_partitions=1, replication_factor=1, configs=configs)
    answer = wire.call(CREATE_TOPICS, 5, make(topics=[topic], timeout_ms=30_000))
    assert answer.topics[0].error_code == Errors.NONE, answer.topics[0].error_message
    make_topic(wire, "compacted")  # waits until the metadata have the topic


def write(wire, topic, count):
    for number in range(count):
        rows = [(1_700_000_000_000 + number, b"key %d" % (number % 3), b"value" * 20, [])]
        produce(wire, topic, build(rows))


def alter(server, **settings):
    values = {name.replace("_", "."): value for name, value in settings.items()}
    server.services.dynamic_config.alter(lambda _: values, per_broker=False, validate_only=False)


def test_a_compacted_topic_is_cleaned_and_the_metrics_show_it(tmp_path):
    server = start_broker(tmp_path, **FAST)
    wire = Wire(server.bootstrap_servers)
    try:
        compaction = server.services.log_manager.compaction
        assert set(gauges(server).values()) == {0}
        make_topic(wire, "plain")
        assert compaction.cleaner is None
        make_compacted(wire)
        write(wire, "compacted", 60)
        log = server.services.log_manager.get("compacted", 0)
        eventually(lambda: log.env.cleaner_offsets.get(("compacted", 0)) == log.segments.active.base_offset > 0)
        eventually(lambda: gauges(server)[("log_cleaner_max_dirty_percent",)] == 0)
        found = gauges(server)
        assert 0 < found[("log_cleaner_cleaner_recopy_percent",)] < 50
        assert found[("log_cleaner_dead_thread_count",)] == 0
        assert found[("log_cleaner_max_buffer_utilization_percent",)] == 0  # there are only three keys
        assert found[("log_cleaner_time_since_last_run_ms",)] < 30_000
        directory = str(tmp_path)
        assert found[("log_cleaner_uncleanable_partitions_count", directory)] == 0
        assert found[("log_cleaner_uncleanable_bytes", directory)] == 0
        compaction.cleaner.mark_uncleanable(log, "it is broken")
        write(wire, "compacted", 30)
        found = gauges(server)
        assert found[("log_cleaner_uncleanable_partitions_count", directory)] == 1
        assert found[("log_cleaner_uncleanable_bytes", directory)] > 0
    finally:
        wire.close()
        server.stop()
    assert compaction.cleaner.threads == []


def test_settings_of_the_cleaner_change_while_it_runs(tmp_path):
    server = start_broker(tmp_path, **FAST)
    wire = Wire(server.bootstrap_servers)
    try:
        compaction = server.services.log_manager.compaction
        alter(server, log_cleaner_io_buffer_size="100000")
        assert compaction.settings.io_buffer == 100_000
        make_compacted(wire)
        eventually(lambda: compaction.cleaner is not None and compaction.cleaner.threads)
        alter(server, log_cleaner_threads="2", log_cleaner_io_max_bytes_per_second="1000000")
        assert len(compaction.cleaner.threads) == 2
        assert compaction.cleaner.throttle.take(1_000_000) == pytest.approx(1.0, abs=0.5)
        for threads in ("0", "5"):
            with pytest.raises(KafkaError, match=r"log\.cleaner\.threads"):
                alter(server, log_cleaner_threads=threads)
        write(wire, "compacted", 60)
        log = server.services.log_manager.get("compacted", 0)
        eventually(lambda: log.env.cleaner_offsets.get(("compacted", 0)))
    finally:
        wire.close()
        server.stop()


def test_a_start_loads_nothing_of_the_cleaner():
    code = (
        "import sys\n"
        "import kafkapy.server.broker\n"
        "print(*sorted(name for name in sys.modules if name.startswith('kafkapy.log.cleaner.')), "
        "*sorted({'kafkapy._ext.compactor', 'kafkapy._ext.keymap'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    light = ["kafkapy.log.cleaner.compaction", "kafkapy.log.cleaner.offsets", "kafkapy.log.cleaner.settings"]
    assert done.stdout.split() == light
