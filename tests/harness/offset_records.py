"""A second codec for the records of offset commits, from their schemas, to compare with ext/offset_commit."""

from kafkapy.coordinator.offset_records import (
    NO_TIMESTAMP,
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
    CommittedOffset,
    OffsetKey,
)
from kafkapy.protocol.versioned import Buffer

# As in Kafka 3.9, the highest inflexible versions, so that older brokers can read the records.
KEY_VERSION, VALUE_VERSION, EXPIRING_VALUE_VERSION = 1, 3, 1


def encode_offset_key(key: OffsetKey) -> bytes:
    group, topic, partition = key
    message = OFFSET_COMMIT_KEY.Message(group=group, topic=topic, partition=partition)
    return OFFSET_COMMIT_KEY.encode(message, KEY_VERSION)


def encode_offset(committed: CommittedOffset) -> bytes:
    """Encode the value of an offset commit record.

    Only version 1 has an expire timestamp, and it has no leader epoch: with an expire timestamp, the epoch is dropped.
    """
    expires = committed.expire_timestamp != NO_TIMESTAMP
    message = OFFSET_COMMIT_VALUE.Message(**committed._asdict())
    return OFFSET_COMMIT_VALUE.encode(message, EXPIRING_VALUE_VERSION if expires else VALUE_VERSION)


def decode_offset(value: Buffer) -> CommittedOffset:
    """Decode the value of an offset commit record. Raises ProtocolError, UnsupportedVersion."""
    _, found = OFFSET_COMMIT_VALUE.decode(value)
    return CommittedOffset(
        found.offset, found.leader_epoch, found.metadata, found.commit_timestamp, found.expire_timestamp
    )
