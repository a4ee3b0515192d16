"""What the original consumer raises."""

from kafkapy.client.errors import ClientError


class ConsumerTimeout(ClientError):
    """No record came within `consumer.timeout.ms`; the stream may be read on."""


class ConsumerIdTaken(ClientError):
    """Another consumer of the group is registered under this id."""


class OwnershipLost(ClientError):
    """The session with ZooKeeper is over, and what was ours may be another's: nothing is committed."""


class RebalanceFailed(ClientError):
    """The partitions that this consumer is to have are still another's after all retries."""
