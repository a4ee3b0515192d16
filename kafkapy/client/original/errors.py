"""Errors that the original consumer raises."""

from kafkapy.client.errors import ClientError


class ConsumerTimeout(ClientError):
    """No record came within `consumer.timeout.ms`. The stream can still be read."""


class ConsumerIdTaken(ClientError):
    """Another consumer is already registered in ZooKeeper with the same group and consumer id."""


class OwnershipLost(ClientError):
    """The ZooKeeper session has expired. Other consumers may own the partitions now, so no offset is committed."""


class RebalanceFailed(ClientError):
    """Partitions assigned to this consumer are still owned by other consumers after the last rebalance attempt."""
