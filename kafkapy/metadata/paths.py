"""The paths of the nodes in which Apache Kafka keeps its metadata in ZooKeeper (Kafka's ZkData), and the encoding of
JSON in nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

CLUSTER_ID = "/cluster/id"
SCRAM_CHALLENGE_KEY = "/cluster/scram_challenge_key"  # kafkapy's own; Kafka looks at no other node than the id
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
USERS = "/config/users"
DEFAULT_ENTITY = "<default>"
ACLS = "/kafka-acl"  # of literal resource patterns
PREFIXED_ACLS = "/kafka-acl-extended/prefixed"  # the comment in Kafka's ZkData has another spelling than its code
ACL_CHANGES = "/kafka-acl-changes"
EXTENDED_ACL_CHANGES = "/kafka-acl-extended-changes"

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
    USERS,
    "/config/brokers",
    "/config/ips",
    "/cluster",
)

# The top-level names of all these paths; a broker follows only them in a tree that it shares with other programs.
TOP_LEVEL = frozenset(
    path.split("/")[1]
    for path in (
        *ROOTS,
        CLUSTER_ID,
        CONTROLLER,
        CONTROLLER_EPOCH,
        FEATURE,
        DELETE_TOPICS,
        ACLS,
        PREFIXED_ACLS,
        ACL_CHANGES,
        EXTENDED_ACL_CHANGES,
    )
)

# Brokers do not follow the nodes below these: consumer groups can have hundreds of thousands of them.
NOT_FOLLOWED = frozenset({CONSUMERS})

# Only a broker whose authorizer uses these nodes follows them and the nodes below.
FOR_AUTHORIZER = (ACLS, "/kafka-acl-extended", ACL_CHANGES, EXTENDED_ACL_CHANGES)

# Only the controller follows the nodes below these.
FOR_CONTROLLER = (TOPICS, DELETE_TOPICS, ISR_CHANGES, LOG_DIR_EVENTS)


# The JSON of a topic with thousands of partitions is encoded and decoded in pieces: json's functions hold the GIL.
_AT_ONCE = 500  # elements that are encoded in one piece
_PIECE = 8 << 10  # characters that are decoded in one piece
_PARTITIONS = re.compile(r'"partitions"\s*:\s*\{')
_COMMA = re.compile(r"\s*,\s*")


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def deletion_mark(name: str) -> str:
    """Return the path of the node that marks a topic for deletion."""
    return f"{DELETE_TOPICS}/{name}"


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
    return _compact(value).encode()


def to_json_in_pieces(value: Mapping[str, Any], name: str) -> bytes:
    """Return the same as `to_json`. The large mapping `value[name]` is encoded in pieces, because json.dumps holds the
    GIL."""
    large = value[name]
    if len(large) <= _AT_ONCE:
        return to_json(value)
    keys = list(large)
    pieces = [
        _compact({key: large[key] for key in keys[at : at + _AT_ONCE]})[1:-1] for at in range(0, len(keys), _AT_ONCE)
    ]
    whole = [_compact({key: each})[1:-1] for key, each in value.items() if key != name]
    before = list(value).index(name)
    whole.insert(before, f"{_compact(name)}:{{{','.join(pieces)}}}")
    return f"{{{','.join(whole)}}}".encode()


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def from_json(data: bytes, path: str) -> dict[str, Any]:
    """Return the JSON object in a node's data, or {} for a node without data. Raises Unreadable, which names `path`, if
    the data is not a JSON object."""
    if not data:
        return {}
    try:
        value = _decoded(data.decode())
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the metadata at {path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Unreadable(f"the metadata at {path} is not a JSON object")
    return value


def _decoded(text: str) -> Any:
    found = _PARTITIONS.search(text) if len(text) > 2 * _PIECE else None
    if found is not None:
        try:
            return _in_pieces(text, found.end())
        except ValueError:
            pass  # the partitions are not lists: decoded, or refused, as a whole
    return json.loads(text)


def _in_pieces(text: str, start: int) -> dict[str, Any]:
    """Return the JSON object in `text`. Its mapping "partitions", whose values are flat lists, begins at `start`."""
    end = text.find("}", start)
    partitions: dict[str, Any] = {}
    at = start
    while at < end:
        cut = text.find("]", at + _PIECE, end) + 1 or end
        partitions.update(json.loads(f"{{{text[at:cut]}}}"))
        comma = _COMMA.match(text, cut, end)
        if comma is None and text[cut:end].strip():
            raise ValueError(f"no comma at character {cut}")
        at = end if comma is None else comma.end()
    value: dict[str, Any] = json.loads(text[:start] + text[max(end, start) :])
    if value.get("partitions") != {}:
        raise ValueError("the partitions are elsewhere")
    value["partitions"] = partitions
    return value
