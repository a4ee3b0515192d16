"""The metrics of topics of Kafka 0.7. A broker without such topics does not serve them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from kafkapy.runtime.counters import Labels, Metric, Registry, metric_table

if TYPE_CHECKING:
    from kafkapy.log.log07.directory import LogDir07
    from kafkapy.server.kafka07.handler import Handler07

_TOPIC = "kafka:type=kafka.BrokerTopicStat.TOPIC"

METRICS = metric_table(
    Metric("kafka07_requests", "counter", ("request",), "Requests of clients of Kafka 0.7.",
           "kafka:type=kafka.SocketServerStats: NumProduceRequests and NumFetchRequests of 0.7"),
    Metric("kafka07_failed_requests", "counter", ("request",),
           "Of these, those that closed their connection, dropped a set or had an error code other than 1.",
           "kafka:type=kafka.BrokerAllTopicStat: FailedProduceRequest and FailedFetchRequest of 0.7"),
    Metric("kafka07_messages_in", "counter", ("topic",), "Messages that were appended to native topics.",
           f"{_TOPIC}: MessagesIn of 0.7"),
    Metric("kafka07_bytes_in", "counter", ("topic",), "Bytes that were appended to native topics.",
           f"{_TOPIC}: BytesIn of 0.7"),
    Metric("kafka07_bytes_out", "counter", ("topic",), "Bytes of native topics in responses.",
           f"{_TOPIC}: BytesOut of 0.7"),
    Metric("kafka07_log_size_bytes", "gauge", ("topic", "partition"), "Flushed bytes of a native log.",
           "kafka:type=kafka.logs.TOPIC-PARTITION: Size of 0.7"),
    Metric("kafka07_log_directory_failed", "gauge", (), "1 once the directory of native logs has failed, else 0."),
)  # fmt: skip


def register(counters: Registry, handler: Handler07, directory: LogDir07) -> None:
    """Register the sources of all these metrics."""
    for name, counts in (("kafka07_requests", handler.requests), ("kafka07_failed_requests", handler.failed)):
        for request in counts:
            counters.register(METRICS[name], partial(counts.__getitem__, request), request)
    of_logs = [metric for name, metric in METRICS.items() if metric.labels[:1] == ("topic",)]
    counters.register_reader(of_logs, partial(_of_logs, directory))
    counters.register(METRICS["kafka07_log_directory_failed"], lambda: int(directory.env.failure is not None))


def _of_logs(directory: LogDir07) -> Iterator[tuple[Metric, Labels, int]]:
    sums: dict[str, list[int]] = {}
    for log in directory.logs():
        yield METRICS["kafka07_log_size_bytes"], (log.topic, str(log.partition)), log.size
        counts = sums.setdefault(log.topic, [0, 0, 0])
        for at, count in enumerate((log.messages_in, log.bytes_in, log.bytes_out)):
            counts[at] += count
    for topic, values in sums.items():
        for name, value in zip(("messages_in", "bytes_in", "bytes_out"), values, strict=True):
            yield METRICS[f"kafka07_{name}"], (topic,), value
