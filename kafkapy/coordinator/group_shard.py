"""The state of one partition of `__consumer_offsets`: its groups, and how far each has come.

Here is only who gets which record: offset commits and the markers of transactions go to the offsets, group metadata
to the groups, and what a later version of Kafka wrote is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkapy.coordinator.coordinator_log import NO_SEQUENCE
from kafkapy.coordinator.shard import Producer, Record

if TYPE_CHECKING:
    from kafkapy._ext.batch import BatchHeader
    from kafkapy.coordinator.shard import Shard
    from kafkapy.errors import KafkaError

log = logging.getLogger("kafkapy.coordinator.groups")

GROUP_METADATA = b"\0\2"  # the version that a key begins with; those below are offset commits


def base_sequence_of(records: Sequence[Record]) -> int:
    """0 for a batch of offset commits, as Kafka's storeOffsets writes it; it has no meaning."""
    key, value = records[0]
    return 0 if key[:2] < GROUP_METADATA and value is not None else NO_SEQUENCE


class GroupShard:
    """The machine of a shard of groups."""

    shard: Shard[GroupShard]

    def __init__(self, index: int) -> None:
        self.index = index
        self.groups: dict[str, object] = {}

    def replay(self, header: BatchHeader, batch: memoryview) -> None:
        """See Machine."""

    def apply(self, records: Sequence[Record], producer: Producer | None) -> None:
        """See Machine."""

    def loaded(self) -> None:
        """See Machine."""

    def unloaded(self, reason: KafkaError) -> None:
        """See Machine."""
