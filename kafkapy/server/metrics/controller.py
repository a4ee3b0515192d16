"""The metrics of the controller. On a broker that is not the controller, all gauges are 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkapy.controller.controller import Counts
from kafkapy.runtime.counters import Labels, Metric, Registry, metric_table

if TYPE_CHECKING:
    from kafkapy.controller.controller import ClusterController

_CONTROLLER, _STATS = "kafka.controller:type=KafkaController", "kafka.controller:type=ControllerStats"
_EVENTS = "kafka.controller:type=ControllerEventManager"

METRICS = metric_table(
    Metric("controller_active", "gauge", (), "1 if this broker is the controller.",
           f"{_CONTROLLER},name=ActiveControllerCount"),
    Metric("controller_brokers", "gauge", (), "Registered brokers.", f"{_CONTROLLER},name=ActiveBrokerCount"),
    Metric("controller_partitions", "gauge", (), "Partitions of the cluster.",
           f"{_CONTROLLER},name=GlobalPartitionCount"),
    Metric("controller_offline_partitions", "gauge", (), "Partitions of the cluster without a live leader.",
           f"{_CONTROLLER},name=OfflinePartitionsCount"),
    Metric("controller_preferred_replica_imbalance", "gauge", (),
           "Partitions of the cluster that their preferred replica does not lead.",
           f"{_CONTROLLER},name=PreferredReplicaImbalanceCount"),
    Metric("controller_topics_to_delete", "gauge", (), "Topics that are being deleted.",
           f"{_CONTROLLER},name=TopicsToDeleteCount"),
    Metric("controller_unclean_leader_elections", "counter", (),
           "Elections of a leader that was not in the ISR: records may have been lost.",
           f"{_STATS},name=UncleanLeaderElectionsPerSec"),
    Metric("controller_queue_size", "gauge", (), "Events that wait for the controller's thread.",
           f"{_EVENTS},name=EventQueueSize"),
    Metric("controller_queue_seconds", "histogram", (), "Time for which events waited for the controller's thread.",
           f"{_EVENTS},name=EventQueueTimeMs"),
)  # fmt: skip


def register(controller: ClusterController, counters: Registry) -> None:
    """Register the metrics of the controller. The counts are read together, because they need every partition."""
    counters.register(METRICS["controller_unclean_leader_elections"], lambda: controller.unclean_elections)
    counters.register(METRICS["controller_queue_size"], lambda: controller.queue_size)
    counters.register(METRICS["controller_queue_seconds"], controller.queue_time)

    def read() -> Iterator[tuple[Metric, Labels, float]]:
        for name, value in controller.counts()._asdict().items():
            yield METRICS[f"controller_{name}"], (), value

    counters.register_reader([METRICS[f"controller_{name}"] for name in Counts._fields], read)
