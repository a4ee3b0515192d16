"""Kafka's default partitioning, so that equal keys go to the same partition as with other clients."""

from kafkapy._ext.murmur2 import murmur2, partition_of_key
from kafkapy.record.sticky import StickyChoice, all_partitions

__all__ = ["StickyChoice", "all_partitions", "murmur2", "partition_of_key"]
