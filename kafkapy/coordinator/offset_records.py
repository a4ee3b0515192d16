"""Records of `__consumer_offsets`: where each group stands in each partition, and who is in which group.

The version of a key tells the kind of record: 0 and 1 are an offset commit, 2 is a group's metadata. A record
without a value deletes. Source: Kafka's GroupMetadataManager and its OffsetCommit* and GroupMetadata* schemas.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from kafkapy.protocol.versioned import Buffer, VersionedMessage, version_of

NO_EPOCH = -1
NO_TIMESTAMP = -1

OFFSET_COMMIT_KEY = VersionedMessage(
    """
record OffsetCommitKey  versions 0-1  flexible none
  group                    string
  topic                    string
  partition                int32
"""
)
OFFSET_COMMIT_VALUE = VersionedMessage(
    """
record OffsetCommitValue  versions 0-4  flexible 4+
  offset                   int64
  leader_epoch             int32   3+  default -1  ignorable
  metadata                 string
  commit_timestamp         int64
  expire_timestamp         int64   1   default -1  ignorable
"""
)
GROUP_METADATA_KEY = VersionedMessage(
    """
record GroupMetadataKey  versions 2-2  flexible none
  group                    string
"""
)
GROUP_METADATA_VALUE = VersionedMessage(
    """
record GroupMetadataValue  versions 0-4  flexible 4+
  protocol_type            string
  generation               int32
  protocol                 string      nullable
  leader                   string      nullable
  current_state_timestamp  int64   2+  default -1  ignorable
  members                  []
    member_id              string
    group_instance_id      string  3+  nullable  default null  ignorable
    client_id              string
    client_host            string
    rebalance_timeout      int32   1+  default -1  ignorable
    session_timeout        int32
    subscription           bytes
    assignment             bytes
"""
)

# Written as Kafka 3.9 does: the last versions that are not flexible, so that older brokers can read them.
_OFFSET_KEY_VERSION, _OFFSET_VALUE_VERSION, _EXPIRING_OFFSET_VALUE_VERSION = 1, 3, 1
_GROUP_KEY_VERSION, _GROUP_VALUE_VERSION = 2, 3


class OffsetKey(NamedTuple):
    """Of an offset commit."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """Of a group's metadata."""

    group: str


class UnknownKey(NamedTuple):
    """Of a kind of record that later versions of Kafka write: to be left alone."""

    version: int


class CommittedOffset(NamedTuple):
    """Times are milliseconds. `expire_timestamp` is given only by commits of old clients that name a retention."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp: int = NO_TIMESTAMP
    expire_timestamp: int = NO_TIMESTAMP


def decode_key(key: Buffer) -> OffsetKey | GroupKey | UnknownKey:
    """Raises ProtocolError."""
    version = version_of(key, "a key of __consumer_offsets")
    if OFFSET_COMMIT_KEY.has_version(version):
        offset_key = OFFSET_COMMIT_KEY.decode(key)[1]
        return OffsetKey(offset_key.group, offset_key.topic, offset_key.partition)
    if GROUP_METADATA_KEY.has_version(version):
        return GroupKey(GROUP_METADATA_KEY.decode(key)[1].group)
    return UnknownKey(version)


def encode_offset_key(key: OffsetKey) -> bytes:
    group, topic, partition = key
    message = OFFSET_COMMIT_KEY.Message(group=group, topic=topic, partition=partition)
    return OFFSET_COMMIT_KEY.encode(message, _OFFSET_KEY_VERSION)


def decode_offset(value: Buffer) -> CommittedOffset:
    """Raises ProtocolError, UnsupportedVersion."""
    _, found = OFFSET_COMMIT_VALUE.decode(value)
    return CommittedOffset(
        found.offset, found.leader_epoch, found.metadata, found.commit_timestamp, found.expire_timestamp
    )


def encode_offset(committed: CommittedOffset) -> bytes:
    """Only version 1 can carry an expire timestamp; with one, the leader epoch is lost."""
    expires = committed.expire_timestamp != NO_TIMESTAMP
    message = OFFSET_COMMIT_VALUE.Message(**committed._asdict())
    return OFFSET_COMMIT_VALUE.encode(message, _EXPIRING_OFFSET_VALUE_VERSION if expires else _OFFSET_VALUE_VERSION)


def encode_group_key(group: str) -> bytes:
    return GROUP_METADATA_KEY.encode(GROUP_METADATA_KEY.Message(group=group), _GROUP_KEY_VERSION)


def decode_group(value: Buffer) -> Any:
    """A GROUP_METADATA_VALUE.Message. Raises ProtocolError, UnsupportedVersion."""
    return GROUP_METADATA_VALUE.decode(value)[1]


def encode_group(
    protocol_type: str,
    generation: int,
    protocol: str | None,
    leader: str | None,
    current_state_timestamp: int,
    members: Iterable[Any] = (),
) -> bytes:
    """`members` are GROUP_METADATA_VALUE.Message.Members."""
    message = GROUP_METADATA_VALUE.Message(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        current_state_timestamp=current_state_timestamp,
        members=list(members),
    )
    return GROUP_METADATA_VALUE.encode(message, _GROUP_VALUE_VERSION)
