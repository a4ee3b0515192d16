"""Makes the plan of an adoption: the metadata to write, combined from the log directories and from other sources."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from kafkapy.metadata.paths import DEFAULT_ENTITY
from kafkapy.server.adoption.errors import AdoptionError
from kafkapy.server.adoption.inventory import Inventory
from kafkapy.server.adoption.knowledge import Knowledge
from kafkapy.server.adoption.partition_dir import FoundPartition
from kafkapy.server.adoption.topic_plan import NOT_KNOWN, PlannedTopic, plan_topic

# A million blocks of producer ids. Kafka reserves blocks of 1000 ids in ZooKeeper, at least one at each start.
PRODUCER_ID_GAP = 1_000_000_000


@dataclass
class Plan:
    """The metadata that an adoption writes. This broker will allocate producer ids above `last_producer_id`.
    `controller_epoch` is the epoch of the cluster's last controller; 0 if unknown. `warnings` are messages for the
    operator."""

    broker_id: int
    cluster_id: str | None
    controller_epoch: int
    last_producer_id: int
    topics: list[PlannedTopic]
    broker_settings: dict[str, dict[str, str]]
    consumer_offsets: dict[tuple[str, str, int], bytes]
    warnings: list[str] = field(default_factory=list)

    @property
    def without_settings(self) -> list[str]:
        """The names of the topics whose settings are unknown, so that they keep all records."""
        return [topic.name for topic in self.topics if topic.source == NOT_KNOWN]


def make_plan(found: Inventory, known: Knowledge, broker_id: int | None = None) -> Plan:
    """Return the plan of an adoption, from the contents of the directories and the metadata from other sources.

    `broker_id` is needed for directories without meta.properties. Raise AdoptionError if the directories contradict the
    other sources.
    """
    warnings: list[str] = []
    by_topic: defaultdict[str, dict[int, FoundPartition]] = defaultdict(dict)
    for (topic, partition), one in sorted(found.partitions.items()):
        by_topic[topic][partition] = one
    chosen = _broker_id(found, known, broker_id)
    cluster_id = _cluster_id(found, known)
    topics = [plan_topic(name, partitions, known, chosen, warnings) for name, partitions in by_topic.items()]
    warnings += _format_warnings(topics) + _other_warnings(found, known, chosen)
    return Plan(
        chosen,
        cluster_id,
        known.controller_epoch or 0,
        _last_of_others(max(found.highest_producer_id, known.last_producer_id)),
        topics,
        _broker_settings(known, chosen),
        {where: offset for where, offset in known.consumer_offsets.items() if where[1] in by_topic},
        warnings,
    )


def _broker_id(found: Inventory, known: Knowledge, wanted: int | None) -> int:
    """Return the broker id in meta.properties. Without that file, which Kafka 0.8 does not write, return `wanted`, or
    the id of the only broker that has replicas according to ZooKeeper. Raise AdoptionError if no id is known, or if
    `wanted` contradicts meta.properties."""
    if found.meta is not None:
        if wanted not in (None, found.meta.broker_id):
            raise AdoptionError(f"these are directories of broker {found.meta.broker_id}, not of broker {wanted}")
        return found.meta.broker_id
    if wanted is not None:
        return wanted
    assignments = [topic.assignment for topic in (known.topics or {}).values()]
    holders = {broker for assignment in assignments for replicas in assignment.values() for broker in replicas}
    if len(holders) == 1:
        return holders.pop()
    raise AdoptionError(
        "no meta.properties says which broker these directories are of (Kafka 0.8 wrote none): name its broker.id "
        "with --broker-id"
    )


def _cluster_id(found: Inventory, known: Knowledge) -> str | None:
    stored = found.meta.cluster_id if found.meta is not None else None
    if stored is not None and known.cluster_id not in (None, stored):
        raise AdoptionError(
            f"the directories are of cluster {stored}, but this ZooKeeper is of {known.cluster_id}: name the right one"
        )
    return stored or known.cluster_id


def _last_of_others(producer_id: int) -> int:
    """Return the id after which this broker's producer ids begin. It is far above `producer_id`, the highest id in use.

    If Kafka is started on the directories again, Kafka continues with the producer ids after its own last one. If this
    broker had used the same ids, Kafka would take new records for duplicates and drop them.
    """
    return (producer_id // PRODUCER_ID_GAP + 1) * PRODUCER_ID_GAP - 1


def _broker_settings(known: Knowledge, broker_id: int) -> dict[str, dict[str, str]]:
    """Return the dynamic settings of this broker and the cluster-wide ones, by broker id or `<default>`. An entity
    without settings is left out."""
    wanted = {entity: known.broker_settings.get(entity) for entity in (str(broker_id), DEFAULT_ENTITY)}
    return {entity: settings for entity, settings in wanted.items() if settings}


def _format_warnings(topics: list[PlannedTopic]) -> list[str]:
    chosen = [topic.name for topic in topics if "message.format.version" in topic.settings]
    if not chosen:
        return []
    more = f" and {len(chosen) - 1} more" if len(chosen) > 1 else ""
    return [
        f"{chosen[0]}{more} with message.format.version: that counts only with an inter.broker.protocol.version below "
        "3.0, as Kafka's server.properties must have had; without it new records are stored in format 2"
    ]


def _other_warnings(found: Inventory, known: Knowledge, broker_id: int) -> list[str]:
    warnings = []
    here = {topic for topic, _ in found.partitions}
    for name, topic in (known.topics or {}).items():
        if name not in here and any(broker_id in replicas for replicas in topic.assignment.values()):
            warnings.append(f"{name} is in ZooKeeper, but has no directory here: is a log directory missing?")
    if strange := sorted(known.settings.keys() - here - set(known.topics or {})):
        warnings.append(f"settings are given for topics that are not here: {', '.join(strange)}")
    if broker_id in known.live_brokers:
        warnings.append(f"broker {broker_id} is registered in ZooKeeper: does Kafka run elsewhere, on a copy?")
    if found.is_kraft and not known.settings:
        warnings.append(
            "in KRaft mode topic settings are in Kafka's own metadata log, which is not read: --topic-configs takes "
            "what kafka-configs.sh --describe prints"
        )
    return warnings
