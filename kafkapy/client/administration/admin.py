"""An admin client for topics, configurations, offsets, records and log directories."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafkapy.client.administration.descriptions import (
    CONFIG_SOURCES,
    ClusterDescription,
    ConfigEntry,
    FoundOffset,
    LogDir,
    NewTopic,
)
from kafkapy.client.cluster import Broker, ClusterClient, Topic, TopicPartition
from kafkapy.client.connection import Connection
from kafkapy.client.responses import check, grouped
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol import apis

TOPIC, BROKER = 2, 4  # resource types of the config APIs (Kafka's ConfigResource.Type)
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3  # operations of IncrementalAlterConfigs (KIP-339)
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3  # special values of the timestamp in ListOffsets
EARLIEST_LOCAL = -4  # the first offset on the leader's own disk (KIP-405); needs ListOffsets version 8


class Admin(ClusterClient):
    """A blocking admin client.

    Every method raises KafkaError for the first error in the broker's response, and ClientError if no response comes.
    """

    # Topics

    def list_topics(self) -> list[Topic]:
        """Return the metadata of all topics, sorted by topic name."""
        self.cluster.refresh()
        return sorted(self.cluster.topics.values(), key=lambda topic: topic.name)

    def describe_topic(self, name: str) -> Topic:
        """Return a topic's metadata, freshly requested from a broker. Raise KafkaError if the topic does not exist."""
        return self.cluster.topic(name, refresh=True)

    def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> list[Topic]:
        """Create topics. Return their metadata once all their partitions have leaders.

        With `validate_only`, the broker only checks whether it could create the topics, and an empty list is returned.
        """
        wanted = list(topics)
        shape = apis.CREATE_TOPICS.Request
        request = shape(
            topics=[
                shape.Topics(
                    name=topic.name,
                    num_partitions=-1 if topic.assignment else topic.partitions,
                    replication_factor=-1 if topic.assignment else topic.replication_factor,
                    assignments=[
                        shape.Topics.Assignments(partition_index=index, broker_ids=list(brokers))
                        for index, brokers in (topic.assignment or {}).items()
                    ],
                    configs=[
                        shape.Topics.Configs(name=key, value=value) for key, value in (topic.configs or {}).items()
                    ],
                )
                for topic in wanted
            ],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        for result in self.cluster.ask_controller(apis.CREATE_TOPICS, request, "topics"):
            check(result.error_code, f"topic {result.name!r}", result.error_message)
        if validate_only:
            return []
        # The broker that is asked may not know a new topic yet, so UNKNOWN_TOPIC_OR_PARTITION is retried.
        return [self.cluster.topic(topic.name, refresh=True, wait_for_leaders=True) for topic in wanted]

    def create_topic(self, name: str, partitions: int = -1, **more: Any) -> Topic:
        """Create one topic. Return the topic's metadata once all its partitions have leaders.

        `more` are further keyword arguments of NewTopic.
        """
        return self.create_topics([NewTopic(name, partitions, **more)])[0]

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete the topics with these names."""
        # Version 5 is the last version of DeleteTopics with a plain list of topic names.
        request = apis.DELETE_TOPICS.Request(topic_names=list(names), timeout_ms=self._timeout_ms)
        for result in self.cluster.ask_controller(apis.DELETE_TOPICS, request, "responses", at_most=5):
            check(result.error_code, f"topic {result.name!r}", result.error_message)
            self.cluster.topics.pop(result.name, None)

    def create_partitions(self, topic: str, count: int, *, validate_only: bool = False) -> None:
        """Increase a topic's number of partitions to `count`.

        With `validate_only`, the broker only checks whether it could do so.
        """
        shape = apis.CREATE_PARTITIONS.Request
        request = shape(
            topics=[shape.Topics(name=topic, count=count, assignments=None)],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        for result in self.cluster.ask_controller(apis.CREATE_PARTITIONS, request, "results"):
            check(result.error_code, f"topic {result.name!r}", result.error_message)
        self.cluster.topics.pop(topic, None)

    # Configs

    def describe_configs(
        self, kind: int, name: str, keys: Sequence[str] | None = None, *, documentation: bool = False
    ) -> list[ConfigEntry]:
        """Return the configuration entries of a topic (kind TOPIC) or a broker (kind BROKER), sorted by key.

        Each entry has its synonyms.

        Args:
            name: The topic's name, or the broker's id as text.
            keys: The keys of the entries to return. None: all.
            documentation: Whether the entries have their documentation.
        """
        shape = apis.DESCRIBE_CONFIGS.Request
        resource = shape.Resources(
            resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
        )
        request = shape(resources=[resource], include_synonyms=True, include_documentation=documentation)
        (result,) = self._for_resource(kind, name).call(apis.DESCRIBE_CONFIGS, request).results
        check(result.error_code, _resource(kind, name), result.error_message)
        return [
            ConfigEntry(
                entry.name,
                entry.value,
                CONFIG_SOURCES.get(entry.config_source, "UNKNOWN"),
                entry.read_only,
                entry.is_sensitive,
                entry.documentation,
                tuple((s.name, s.value, CONFIG_SOURCES.get(s.source, "UNKNOWN")) for s in entry.synonyms),
            )
            for entry in sorted(result.configs, key=lambda entry: entry.name)
        ]

    def alter_configs(
        self, kind: int, name: str, changes: Iterable[tuple[str, int, str | None]], *, validate_only: bool = False
    ) -> None:
        """Change single configuration entries of a topic (kind TOPIC) or a broker (kind BROKER).

        Args:
            name: The topic's name, or the broker's id as text.
            changes: (key, SET | DELETE | APPEND | SUBTRACT, value) for each change.
            validate_only: Only check the changes, without making them.
        """
        shape = apis.INCREMENTAL_ALTER_CONFIGS.Request
        configs = [
            shape.Resources.Configs(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ]
        request = shape(
            resources=[shape.Resources(resource_type=kind, resource_name=name, configs=configs)],
            validate_only=validate_only,
        )
        (result,) = self._for_resource(kind, name).call(apis.INCREMENTAL_ALTER_CONFIGS, request).responses
        check(result.error_code, _resource(kind, name), result.error_message)

    # Records and offsets

    def offsets(self, wanted: Mapping[TopicPartition, int], *, isolation: int = 0) -> dict[TopicPartition, FoundOffset]:
        """Return for each partition the offset for a timestamp (ms), or for EARLIEST, LATEST or MAX_TIMESTAMP.

        For a timestamp, this is the offset of the first record at or after that time, together with the record's own
        timestamp, or -1 if there is no such record. With `isolation` 1 (read_committed), LATEST is the last stable
        offset. Retriable errors are retried up to the cluster's time limit.
        """
        return self.cluster.retry(
            lambda: self.offsets_now(wanted, isolation=isolation), never=(Errors.UNKNOWN_TOPIC_OR_PARTITION,)
        )

    def offsets_now(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = 0
    ) -> dict[TopicPartition, FoundOffset]:
        """Return the same result as `offsets`, but do not repeat the request if a partition has a retriable error.

        Raise KafkaError for any error of a partition.
        """
        shape = apis.LIST_OFFSETS.Request
        found: dict[TopicPartition, FoundOffset] = {}
        for leader, asked in self._by_leader(wanted).items():
            topics = [
                shape.Topics(
                    name=topic,
                    partitions=[
                        shape.Topics.Partitions(partition_index=index, timestamp=wanted[topic, index])
                        for index in indexes
                    ],
                )
                for topic, indexes in grouped(asked).items()
            ]
            request = shape(replica_id=-1, isolation_level=isolation, topics=topics)
            response = self.cluster.connection(leader).call(apis.LIST_OFFSETS, request)
            for topic in response.topics:
                for answer in topic.partitions:
                    if answer.error_code:
                        self.cluster.topics.pop(topic.name, None)
                        check(answer.error_code, f"{topic.name}-{answer.partition_index}")
                    # Brokers before Kafka 0.10.1 respond with a list, the newest offset first.
                    offset = answer.old_style_offsets[0] if answer.old_style_offsets else answer.offset
                    found[topic.name, answer.partition_index] = FoundOffset(
                        offset, answer.timestamp, answer.leader_epoch
                    )
        return found

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete all records before the given offset of each partition (-1: before the high watermark).

        Return the new log start offset of each partition.
        """
        shape = apis.DELETE_RECORDS.Request
        result: dict[TopicPartition, int] = {}
        for leader, asked in self._by_leader(before).items():
            topics = [
                shape.Topics(
                    name=topic,
                    partitions=[
                        shape.Topics.Partitions(partition_index=index, offset=before[topic, index]) for index in indexes
                    ],
                )
                for topic, indexes in grouped(asked).items()
            ]
            request = shape(topics=topics, timeout_ms=self._timeout_ms)
            for topic in self.cluster.connection(leader).call(apis.DELETE_RECORDS, request).topics:
                for answer in topic.partitions:
                    where = topic.name, answer.partition_index
                    check(answer.error_code, f"{topic.name}-{answer.partition_index}, offset {before[where]}")
                    result[where] = answer.low_watermark
        return result

    # The cluster

    def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, its controller's broker id, and its brokers."""
        response = self.cluster.any_connection().call(apis.DESCRIBE_CLUSTER, apis.DESCRIBE_CLUSTER.Request())
        check(response.error_code, "the cluster", response.error_message)
        brokers = tuple(Broker(b.broker_id, b.host, b.port, b.rack) for b in response.brokers)
        return ClusterDescription(response.cluster_id, response.controller_id, brokers)

    def describe_log_dirs(self) -> list[LogDir]:
        """Return the log directories of every broker, each with the sizes of the partitions in it."""
        self.cluster.refresh([])
        found = []
        for node in sorted(self.cluster.brokers):
            request = apis.DESCRIBE_LOG_DIRS.Request(topics=None)
            response = self.cluster.connection(node).call(apis.DESCRIBE_LOG_DIRS, request)
            check(response.error_code, f"the log directories of broker {node}")
            for one in response.results:
                sizes = {(t.name, p.partition_index): p.partition_size for t in one.topics for p in t.partitions}
                found.append(LogDir(node, one.log_dir, one.error_code, one.total_bytes, one.usable_bytes, sizes))
        return found

    # The broker for each request

    def _for_resource(self, kind: int, name: str) -> Connection:
        """Return a connection for requests about a configuration: to the broker `name`, or for a topic to any broker.

        Raise KafkaError INVALID_REQUEST if the cluster has no broker with that id.
        """
        if kind == BROKER and name:
            self.cluster.refresh([])
            if not name.isascii() or not name.isdigit() or int(name) not in self.cluster.brokers:
                known = ", ".join(str(node) for node in sorted(self.cluster.brokers))
                raise KafkaError(Errors.INVALID_REQUEST, f"there is no broker {name!r}; the cluster has {known}")
            return self.cluster.connection(int(name))
        return self.cluster.any_connection()

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        leaders: dict[int, list[TopicPartition]] = {}
        for topic, index in partitions:
            leaders.setdefault(self.cluster.leader_of(topic, index), []).append((topic, index))
        return leaders


def _resource(kind: int, name: str) -> str:
    return f"topic {name!r}" if kind == TOPIC else f"broker {name!r}"
