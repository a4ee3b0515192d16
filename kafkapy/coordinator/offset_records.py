"""Schemas and codecs of the records in `__consumer_offsets`: committed offsets and group metadata.

The version of a key is the type of the record: 0 and 1 are offset commits, 2 is group metadata. A record with a null
value is a tombstone. Source: Kafka's GroupMetadataManager and its OffsetCommit* and GroupMetadata* schemas.
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

# As in Kafka 3.9, the highest versions that are not flexible, so that older brokers can read the records.
_GROUP_KEY_VERSION, _GROUP_VALUE_VERSION = 2, 3


class OffsetKey(NamedTuple):
    """The decoded key of an offset commit record."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The decoded key of a group metadata record."""

    group: str


class UnknownKey(NamedTuple):
    """The key of a record type that only later versions of Kafka write. `version` is the version of the key. The
    coordinator ignores such records."""

    version: int


class CommittedOffset(NamedTuple):
    """A committed offset of one partition. Timestamps are in milliseconds.

    `expire_timestamp` is set only for commits of old clients that send a retention time.
    """

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp: int = NO_TIMESTAMP
    expire_timestamp: int = NO_TIMESTAMP


def decode_key(key: Buffer) -> OffsetKey | GroupKey | UnknownKey:
    """Return the decoded key of a record of `__consumer_offsets`. A key of a later Kafka version becomes an UnknownKey.
    Raises ProtocolError for malformed bytes."""
    version = version_of(key, "a key of __consumer_offsets")
    if OFFSET_COMMIT_KEY.has_version(version):
        offset_key = OFFSET_COMMIT_KEY.decode(key)[1]
        return OffsetKey(offset_key.group, offset_key.topic, offset_key.partition)
    if GROUP_METADATA_KEY.has_version(version):
        return GroupKey(GROUP_METADATA_KEY.decode(key)[1].group)
    return UnknownKey(version)


def encode_group_key(group: str) -> bytes:
    return GROUP_METADATA_KEY.encode(GROUP_METADATA_KEY.Message(group=group), _GROUP_KEY_VERSION)


def decode_group(value: Buffer) -> Any:
    """Return the decoded value of a group metadata record, a GROUP_METADATA_VALUE.Message. Raises ProtocolError,
    UnsupportedVersion."""
    return GROUP_METADATA_VALUE.decode(value)[1]


def encode_group(
    protocol_type: str,
    generation: int,
    protocol: str | None,
    leader: str | None,
    current_state_timestamp: int,
    members: Iterable[Any] = (),
) -> bytes:
    """Return the encoded value of a group metadata record. `members` are GROUP_METADATA_VALUE.Message.Members,
    `current_state_timestamp` is in milliseconds."""
    message = GROUP_METADATA_VALUE.Message(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        current_state_timestamp=current_state_timestamp,
        members=list(members),
    )
    return GROUP_METADATA_VALUE.encode(message, _GROUP_VALUE_VERSION)
