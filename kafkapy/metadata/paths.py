"""The paths of the nodes in which Apache Kafka keeps its metadata in ZooKeeper (Kafka's ZkData), and the encoding of
JSON in nodes."""

from __future__ import annotations

import json
from typing import Any

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONSUMERS = "/consumers"
DELETE_TOPICS = "/admin/delete_topics"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
REASSIGNMENT = "/admin/reassign_partitions"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
FEATURE = "/feature"
CONFIG_CHANGES = "/config/changes"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CONFIG = "/config"
DEFAULT_ENTITY = "<default>"

# Nodes that always exist (ZkData.PersistentZkPaths and the kinds of configuration).
ROOTS = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    "/cluster",
)

# The top-level names of all these paths; a broker follows only them in a tree that it shares with other programs.
TOP_LEVEL = frozenset(
    path.split("/")[1] for path in (*ROOTS, CLUSTER_ID, CONTROLLER, CONTROLLER_EPOCH, FEATURE, DELETE_TOPICS)
)

# Brokers do not follow the nodes below these: consumer groups can have hundreds of thousands of them.
NOT_FOLLOWED = frozenset({CONSUMERS})


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition_state(name: str, partition: int) -> str:
    return f"{TOPICS}/{name}/partitions/{partition}/state"


def consumer_offsets(group: str) -> str:
    return f"{CONSUMERS}/{group}/offsets"


def consumer_offset(group: str, topic: str, partition: int) -> str:
    return f"{consumer_offsets(group)}/{topic}/{partition}"


def config(kind: str, entity: str) -> str:
    """Return the path of the node with a dynamic configuration. `kind` is topics, brokers, clients, users or ips;
    `entity` is the topic's name, the broker's id and so on."""
    return f"{CONFIG}/{kind}/{entity}"


class Unreadable(ValueError):
    """Raised if the data of a metadata node is invalid. The message names the node's path."""


def to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def from_json(data: bytes, path: str) -> dict[str, Any]:
    """Return the JSON object in a node's data, or {} for a node without data. Raises Unreadable, which names `path`, if
    the data is not a JSON object."""
    if not data:
        return {}
    try:
        value = json.loads(data)
    except ValueError as error:
        raise Unreadable(f"the metadata at {path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Unreadable(f"the metadata at {path} is not a JSON object")
    return value
