"""The metrics of quotas: how much of them users and client ids have used.

The labels are users and client ids, which clients choose. So of each kind of quota, only the MOST quotas that were used
last are shown.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kafkapy.metadata.quotas import CONSUMER, MUTATION, PRODUCER, REQUEST
from kafkapy.runtime.counters import Labels, Metric, Registry, metric_table

if TYPE_CHECKING:
    from kafkapy.server.quotas.buckets import Bucket
    from kafkapy.server.quotas.client_quotas import ClientQuotas

MOST = 1000

_TAGS = "user=USER,client-id=ID"

METRICS = metric_table(
    Metric("quota_byte_rate", "gauge", ("quota", "user", "client_id"),
           "Bytes a second of the clients that share a quota, Produce or Fetch. The labels user and client_id are "
           "empty where the quota does not depend on them.", f"kafka.server:type=QUOTA,{_TAGS}: byte-rate"),
    Metric("quota_request_percent", "gauge", ("user", "client_id"),
           "Time of the requests of the clients that share a quota, in percent of one thread's time.",
           f"kafka.server:type=Request,{_TAGS}: request-time"),
    Metric("quota_mutation_rate", "gauge", ("user", "client_id"),
           "Partitions a second that were created or deleted by the clients that share a quota.",
           f"kafka.server:type=ControllerMutation,{_TAGS}: mutation-rate"),
    Metric("quota_mutation_tokens", "gauge", ("user", "client_id"),
           "Partitions that the clients that share a quota may create or delete now without being throttled.",
           f"kafka.server:type=ControllerMutation,{_TAGS}: tokens"),
    Metric("quota_throttle_seconds", "gauge", ("quota", "user", "client_id"),
           "Mean throttle time of the last minute, of those that were throttled.",
           f"kafka.server:type=QUOTA,{_TAGS}: throttle-time"),
    Metric("quota_exempt_request_percent", "gauge", (),
           "Time of the requests that are exempt from quotas, in percent of one thread's time.",
           "kafka.server:type=Request: exempt-request-time"),
)  # fmt: skip

_TYPES = {PRODUCER: "Produce", CONSUMER: "Fetch", REQUEST: "Request", MUTATION: "ControllerMutation"}


def register(quotas: ClientQuotas, counters: Registry) -> None:
    """Register the metrics of the quotas."""
    exempt = METRICS["quota_exempt_request_percent"]
    counters.register(exempt, quotas.exempt_percent)
    counters.register_reader([one for one in METRICS.values() if one is not exempt], lambda: _read(quotas))


def _read(quotas: ClientQuotas) -> Iterator[tuple[Metric, Labels, float]]:
    now = quotas.now_ms()
    for key, kind in _TYPES.items():
        for bucket in heapq.nlargest(MOST, quotas.buckets(key), key=lambda one: one.last_ms):
            labels = tuple(unquote(name) for name in bucket.shares)
            for name, value in _values(key, bucket, now):
                metric = METRICS[name]
                yield metric, (kind, *labels) if metric.labels[0] == "quota" else labels, value


def _values(key: str, bucket: Bucket, now: int) -> Iterator[tuple[str, float]]:
    throttle_ms = bucket.mean_throttle_ms(now)
    if throttle_ms is not None:
        yield "quota_throttle_seconds", throttle_ms / 1000
    if key == MUTATION:
        yield "quota_mutation_rate", bucket.present_rate(now)
        yield "quota_mutation_tokens", bucket.used(now)
    else:
        yield "quota_request_percent" if key == REQUEST else "quota_byte_rate", bucket.present_rate(now)
