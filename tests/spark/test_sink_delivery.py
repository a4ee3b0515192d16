"""A task of the sink sends its rows, without Spark running."""

import pyarrow as pa

from kafkapy.spark.options.sink_options import sink_options
from kafkapy.spark.sink.delivery import write_at_least_once
from kafkapy.spark.sink.worker import forget, worker_of
from tests.client.conftest import FakeBroker
from tests.client.test_record_producer import Store


def test_rows_without_key_go_to_a_partition_with_a_leader() -> None:
    broker = FakeBroker()
    options = sink_options({"kafka.bootstrap.servers": broker.address, "topic": "t", "kafka.batch.size": "1000"})
    try:
        broker.topics = {"t": [1, 1, 1]}
        store = Store(broker)
        rows = pa.record_batch({"value": [b"%090d" % number for number in range(100)]})
        assert write_at_least_once(options, [rows]).rows == 100
        assert {partition for _, partition, _ in store.stored} == {0, 1, 2}
        broker.topics["t"] = [-1, 1, -1]
        worker_of(options).cluster.refresh(["t"])
        store.stored.clear()
        assert write_at_least_once(options, [rows]).rows == 100
        assert {partition for _, partition, _ in store.stored} == {1}
    finally:
        forget(options)
        broker.close()
