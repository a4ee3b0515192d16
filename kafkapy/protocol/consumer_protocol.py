"""Schemas of the bytes that consumers exchange through JoinGroup and SyncGroup: subscriptions and assignments.

Source: Kafka's ConsumerProtocol, KIP-429 (owned partitions), KIP-792 (generation), KIP-881 (rack). Bytes of a later
version are decoded as the latest version known here, because new versions only add fields at the end.
"""

from kafkapy.protocol.versioned import VersionedMessage

PROTOCOL_TYPE = "consumer"

SUBSCRIPTION = VersionedMessage(
    """
record ConsumerProtocolSubscription  versions 0-3  flexible none
  topics              []string
  user_data           bytes          nullable  default null
  owned_partitions    []       1+    ignorable
    topic             string
    partitions        []int32
  generation_id       int32    2+    default -1  ignorable
  rack_id             string   3+    nullable  default null  ignorable
""",
    lenient=True,
)

ASSIGNMENT = VersionedMessage(
    """
record ConsumerProtocolAssignment  versions 0-3  flexible none
  assigned_partitions []
    topic             string
    partitions        []int32
  user_data           bytes          nullable  default null
""",
    lenient=True,
)
