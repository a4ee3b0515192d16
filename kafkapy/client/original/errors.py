"""Errors that the original consumer raises."""

from kafkapy.client.errors import ClientError


class ConsumerTimeout(ClientError):
    """No record came within `consumer.timeout.ms`. The stream can still be read."""


class ConsumerIdTaken(ClientError):
    """Another consumer of the group is registered with this id."""


class OwnershipLost(ClientError):
    """The ZooKeeper session has expired. Other members may own the partitions, so nothing is committed."""


class RebalanceFailed(ClientError):
    """Partitions that are assigned to this consumer are still owned by other consumers after all retries."""
