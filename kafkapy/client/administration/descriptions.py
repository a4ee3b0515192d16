"""The types that the admin clients take and return: topics to create, configuration entries, offsets and so on."""

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
    """A topic to create. -1 as `partitions` or `replication_factor` means the broker's default.

    `assignment` maps each partition index to the broker ids of its replicas. If `assignment` is given, `partitions` and
    `replication_factor` have to stay at -1.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] | None = None
    assignment: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True)
class ConfigEntry:
    """A configuration entry of a topic or a broker. `source` is one of the values of CONFIG_SOURCES.

    `synonyms` has (name, value, source) of each setting that may provide the value, in order of precedence.
    """

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
    """The result of ListOffsets for one partition. `offset` and `timestamp` are -1 if no record matches the request."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


@dataclass(frozen=True)
class ClusterDescription:
    """A cluster's id, its controller's broker id, and its brokers."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]


@dataclass(frozen=True)
class LogDir:
    """A log directory of the broker with id `broker`. `partitions` maps (topic, partition) to its size in bytes."""

    broker: int
    path: str
    error_code: int
    total_bytes: int
    usable_bytes: int
    partitions: dict[TopicPartition, int]
