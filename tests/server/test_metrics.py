"""The metrics page, as Prometheus reads it."""

import re
import socket
import threading
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafkapy.protocol.apis import ADD_PARTITIONS_TO_TXN, DELETE_RECORDS, DELETE_TOPICS, FETCH, LIST_OFFSETS
from kafkapy.runtime.config_def import ConfigError
from kafkapy.server.call import Soon
from kafkapy.server.handlers import records
from tests.harness.group_wire import GroupWire
from tests.harness.wire import Wire
from tests.server.requests import batch, fetch_request, make_topic, metrics_address, produce, start_broker


def test_the_metrics_page_shows_requests_bytes_errors_logs_and_the_purgatory(tmp_path):
    server = start_broker(tmp_path, kafkapy_metrics_listen="127.0.0.1:0")
    wire = Wire(server.bootstrap_servers)
    try:
        make_topic(wire, "seen")
        for _ in range(3):
            produce(wire, "seen", batch(b"value"))
        produce(wire, "unknown", batch(b"value"))
        wire.call(FETCH, 12, fetch_request("seen"))
        wire.call(FETCH, 12, fetch_request("seen", 99))
        wire.call(FETCH, 12, fetch_request("seen", 3, wait=20))
        with urllib.request.urlopen(f"http://{metrics_address(server)}/metrics") as page:
            text = page.read().decode()
    finally:
        wire.close()
        server.stop()
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples[sample.name, tuple(sorted(sample.labels.items()))] = sample.value

    size = len(batch(b"value"))
    assert samples["kafkapy_requests_total", (("api", "Produce"),)] == 4
    assert samples["kafkapy_topic_bytes_in_total", (("topic", "seen"),)] == 3 * size
    assert samples["kafkapy_topic_bytes_out_total", (("topic", "seen"),)] == 3 * size
    assert samples["kafkapy_errors_total", (("api", "Produce"), ("error", "UNKNOWN_TOPIC_OR_PARTITION"))] == 1
    assert samples["kafkapy_errors_total", (("api", "Fetch"), ("error", "OFFSET_OUT_OF_RANGE"))] == 1
    assert samples["kafkapy_log_size_bytes", (("partition", "0"), ("topic", "seen"))] == 3 * size
    assert samples["kafkapy_log_end_offset", (("partition", "0"), ("topic", "seen"))] == 3
    assert samples["kafkapy_fetch_purgatory_size", ()] == 0
    assert samples["kafkapy_disk_pool_depth", ()] >= 0
    assert samples["kafkapy_append_pool_depth", ()] >= 0
    for stage in ("queue", "local", "send"):
        assert samples["kafkapy_request_seconds_count", (("api", "Produce"), ("stage", stage))] == 4
    assert samples["kafkapy_request_seconds_bucket", (("api", "Produce"), ("le", "+Inf"), ("stage", "local"))] == 4
    for stage, count in (("local", 3), ("delayed", 1), ("send", 3)):
        assert samples["kafkapy_request_seconds_count", (("api", "Fetch"), ("stage", stage))] == count
    assert samples["kafkapy_network_connections", (("listener", "PLAINTEXT"),)] == 1


def test_an_address_for_metrics_that_is_taken_is_named_with_its_setting(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        reason = f"kafkapy.metrics.listen={listen}: cannot listen there: Address already in use"
        with pytest.raises(ConfigError, match=f"^{re.escape(reason)}$"):
            start_broker(tmp_path, kafkapy_metrics_listen=listen)


def test_errors_of_every_api_are_counted_wherever_they_are_in_the_answer(tmp_path):
    server = start_broker(tmp_path, kafkapy_metrics_listen="127.0.0.1:0")
    wire = Wire(server.bootstrap_servers)
    try:
        make = DELETE_TOPICS.Request
        wire.call(DELETE_TOPICS, 5, make(topic_names=["none", "neither"], timeout_ms=1000))
        make = LIST_OFFSETS.Request
        part = make.Topics.Partitions(partition_index=3, timestamp=-1)
        wire.call(LIST_OFFSETS, 9, make(replica_id=-1, topics=[make.Topics(name="none", partitions=[part])]))
        errors = server.services.meters.errors
        assert errors == {
            ("DeleteTopics", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
            ("ListOffsets", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
        }
    finally:
        wire.close()
        server.stop()


def test_errors_in_answers_that_come_later_are_counted(tmp_path, monkeypatch):
    server = start_broker(tmp_path, kafkapy_metrics_listen="127.0.0.1:0")
    left, leave, delete = threading.Event(), Soon.leave, records._delete

    def noted(self):
        answer = leave(self)
        left.set()
        return answer

    def late(*args):
        assert left.wait(20)
        delete(*args)

    monkeypatch.setattr(Soon, "leave", noted)
    monkeypatch.setattr(records, "_delete", late)
    try:
        with Wire(server.bootstrap_servers) as wire:
            make = DELETE_RECORDS.Request
            part = make.Topics.Partitions(partition_index=0, offset=1)
            wire.call(DELETE_RECORDS, 2, make(topics=[make.Topics(name="none", partitions=[part])], timeout_ms=1000))
            added = ADD_PARTITIONS_TO_TXN.Request(v3_and_below_transactional_id="x")
            added.v3_and_below_topics = [added.V3AndBelowTopics(name="none", partitions=[0, 1])]
            wire.call(ADD_PARTITIONS_TO_TXN, 3, added)
        assert server.services.meters.errors == {
            ("DeleteRecords", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
            ("AddPartitionsToTxn", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
        }
    finally:
        server.stop()


def test_groups_and_transactions_are_counted_as_kafka_counts_them(tmp_path):
    server = start_broker(tmp_path, kafkapy_metrics_listen="127.0.0.1:0", group_initial_rebalance_delay_ms=0)
    try:
        assert set(of_coordinators(server).values()) == {0}
        assert server.services.coordinators.existing("group shards") is None

        wire = GroupWire(server.listeners[0].partition("://")[2])
        wire.make_topic("t")
        for group in ("simple", "live"):
            wire.find_coordinator(group)
        wire.commit("simple", {("t", 0): 1, ("t", 1): 2})
        wire.commit("simple", {("t", 0): 5})
        assert wire.delete_offsets("simple", {"t": [1, 2]})[0] == 0
        wire.join("live", ["t"])
        producer = wire.begin("id")
        wire.add_offsets("id", producer, "simple")
        wire.commit_in_transaction("id", producer, "simple", {("t", 3): 9})
        seen = of_coordinators(server)
        wire.close()
    finally:
        server.stop()
    loads = {name: seen.pop(name) for name in list(seen) if "partition_load_seconds" in name}
    assert len(loads) == 4
    assert all(seconds >= 0 for seconds in loads.values())
    assert {name: value for name, value in seen.items() if value} == {
        "group_metadata_manager_num_groups": 2,
        "group_metadata_manager_num_groups_empty": 1,
        "group_metadata_manager_num_groups_stable": 1,
        "group_metadata_manager_num_offsets": 1,
        "group_coordinator_offset_commits_total": 4,
        "group_coordinator_offset_deletions_total": 1,
        "group_coordinator_completed_rebalances_total": 1,
        "transaction_coordinator_num_transactional_ids": 1,
        "transaction_coordinator_num_ongoing": 1,
    }
    assert {name for name, value in seen.items() if not value} == {
        "group_metadata_manager_num_groups_preparing_rebalance",
        "group_metadata_manager_num_groups_completing_rebalance",
        "group_metadata_manager_num_groups_dead",
        "group_coordinator_offset_expirations_total",
        "transaction_coordinator_num_prepared",
    }


def of_coordinators(server):
    with urllib.request.urlopen(f"http://{metrics_address(server)}/metrics") as page:
        text = page.read().decode()
    return {
        sample.name.removeprefix("kafkapy_"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "_coordinator_" in sample.name or "_metadata_manager_" in sample.name
    }
