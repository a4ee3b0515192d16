"""Schemas of the records that Kafka's group coordinator writes to `__consumer_offsets` for groups of the new consumer
protocol (KIP-848).

This broker supports classic groups only. kafkapy's tools use these schemas to decode the log directories of Kafka
brokers in KRaft mode.
"""

from kafkapy.protocol.versioned import VersionedMessage

_GROUP = """
record {name}Key  versions {type}-{type}  flexible none
  group_id                        string
"""
_MEMBER = f"""{_GROUP.rstrip()}
  member_id                       string
"""


def _key(schema: str, name: str, record_type: int) -> VersionedMessage:
    return VersionedMessage(schema.format(name=name, type=record_type))


# Record type (the version of the key) to the schemas of its key and its value.
BY_TYPE: dict[int, tuple[VersionedMessage, VersionedMessage]] = {
    3: (
        _key(_GROUP, "ConsumerGroupMetadata", 3),
        VersionedMessage(
            """
record ConsumerGroupMetadataValue  versions 0-0  flexible 0+
  epoch                           int32
"""
        ),
    ),
    4: (
        _key(_GROUP, "ConsumerGroupPartitionMetadata", 4),
        VersionedMessage(
            """
record ConsumerGroupPartitionMetadataValue  versions 0-0  flexible 0+
  topics                          []
    topic_id                      uuid
    topic_name                    string
    num_partitions                int32
    partition_metadata            []
      partition                   int32
      racks                       []string
"""
        ),
    ),
    5: (
        _key(_MEMBER, "ConsumerGroupMemberMetadata", 5),
        VersionedMessage(
            """
record ConsumerGroupMemberMetadataValue  versions 0-0  flexible 0+
  instance_id                     string  nullable
  rack_id                         string  nullable
  client_id                       string
  client_host                     string
  subscribed_topic_names          []string
  subscribed_topic_regex          string  nullable
  rebalance_timeout_ms            int32   default -1
  server_assignor                 string  nullable
  classic_member_metadata         struct  nullable  tag 0
    session_timeout_ms            int32
    supported_protocols           []
      name                        string
      metadata                    bytes
"""
        ),
    ),
    6: (
        _key(_GROUP, "ConsumerGroupTargetAssignmentMetadata", 6),
        VersionedMessage(
            """
record ConsumerGroupTargetAssignmentMetadataValue  versions 0-0  flexible 0+
  assignment_epoch                int32
"""
        ),
    ),
    7: (
        _key(_MEMBER, "ConsumerGroupTargetAssignmentMember", 7),
        VersionedMessage(
            """
record ConsumerGroupTargetAssignmentMemberValue  versions 0-0  flexible 0+
  topic_partitions                []
    topic_id                      uuid
    partitions                    []int32
"""
        ),
    ),
    8: (
        _key(_MEMBER, "ConsumerGroupCurrentMemberAssignment", 8),
        VersionedMessage(
            """
record ConsumerGroupCurrentMemberAssignmentValue  versions 0-0  flexible 0+
  member_epoch                    int32
  previous_member_epoch           int32
  state                           int8
  assigned_partitions             []
    topic_id                      uuid
    partitions                    []int32
  partitions_pending_revocation   []
    topic_id                      uuid
    partitions                    []int32
"""
        ),
    ),
}
