"""What administration takes and gives: topics to make, settings, offsets, the cluster, log directories."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafkapy.client.cluster import Broker, TopicPartition

# Kafka's DescribeConfigsResponse.ConfigSource
CONFIG_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
}


@dataclass(frozen=True)
class NewTopic:
    """`partitions` and `replication_factor` -1: as the broker is set. `assignment`: partition -> broker ids."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] | None = None
    assignment: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True)
class ConfigEntry:
    """A setting as the broker describes it; `source` is one of CONFIG_SOURCES' values."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    documentation: str | None = None
    synonyms: tuple[tuple[str, str | None, str], ...] = ()

    @property
    def is_default(self) -> bool:
        return self.source == "DEFAULT_CONFIG"


@dataclass(frozen=True)
class FoundOffset:
    """An answer of ListOffsets: offset and timestamp are -1 where no record fits."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


@dataclass(frozen=True)
class ClusterDescription:
    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]


@dataclass(frozen=True)
class LogDir:
    """A log directory of one broker; `partitions` maps (topic, partition) to the size in bytes."""

    broker: int
    path: str
    error_code: int
    total_bytes: int
    usable_bytes: int
    partitions: dict[TopicPartition, int]
