"""The metrics page, as Prometheus reads it."""

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from kafkapy.protocol.apis import DELETE_TOPICS, FETCH, LIST_OFFSETS
from tests.server.conftest import Wire, start_broker
from tests.server.test_fetch import request
from tests.server.test_produce import batch, make_topic, produce


def test_the_page_tells_of_requests_bytes_errors_logs_and_the_purgatory(tmp_path):
    server = start_broker(tmp_path, kafkapy_metrics_listen="127.0.0.1:0")
    wire = Wire(server)
    try:
        make_topic(wire, "seen")
        for _ in range(3):
            produce(wire, "seen", batch(b"value"))
        produce(wire, "unknown", batch(b"value"))
        wire.call(FETCH, 12, request("seen"))
        wire.call(FETCH, 12, request("seen", 99))
        wire.call(FETCH, 12, request("seen", 3, wait=20))
        with urllib.request.urlopen(f"http://{server.metrics_address}/metrics") as page:
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


def test_errors_of_every_api_are_counted_wherever_they_are_in_the_answer(tmp_path):
    server = start_broker(tmp_path, kafkapy_metrics_listen="127.0.0.1:0")
    wire = Wire(server)
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
