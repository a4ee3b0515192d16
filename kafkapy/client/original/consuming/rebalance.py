"""The rebalance of one group member: register, compute the assignment, release partitions, claim partitions.

1. Read the members of the group, the topics and their partitions, with watches on all of them.
2. Compute the assignment. All members compute the same assignment.
3. Stop reading the partitions that this member has to give up, commit their offsets, and release them.
4. Claim the new partitions with ephemeral nodes. If the previous owner has not released one of them yet, release the
partitions just claimed, wait until the owner's node is gone or the back-off is over, and start again at 1, as the
members may have changed.
5. Read the committed offsets only then, so that they include the previous owner's last commit, and start to fetch.

Source: ZKRebalancerListener of Kafka 0.8.2. Unlike there, partitions that stay with a member are read without a pause,
and offsets are read after the claim and not before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

from kafkapy.client.original.assignment import STRATEGIES, Partition, Thread
from kafkapy.client.original.consuming.settings import ConsumerSettings
from kafkapy.client.original.znodes.group_tree import GroupTree
from kafkapy.client.original.znodes.subscriptions import Subscription

log = logging.getLogger(__name__)


class PartitionReader(Protocol):
    """Reads the partitions that a group member owns."""

    def stop_reading(self, partitions: list[Partition], *, lost: bool) -> None:
        """Stop reading partitions, and commit their positions unless they are lost.

        `lost` is True if other members may already own the partitions.
        """

    def start_reading(self, partitions: Mapping[Partition, Thread]) -> None:
        """Start reading the given partitions, each for the given consumer thread.

        If this raises, none of them is read.
        """


class Rebalancer:
    """Rebalances one group member.

    `attempt` may be called by one thread at a time, and has to be called after the event `wake_up` is set.
    """

    def __init__(
        self,
        tree: GroupTree,
        settings: ConsumerSettings,
        consumer: str,
        subscription: Subscription,
        reader: PartitionReader,
    ) -> None:
        self.wake_up = threading.Event()
        self.owned: dict[Partition, Thread] = {}
        self.blocked = ""  # the current owner of a partition assigned to this member, for log messages
        self._logged = ""  # the value of `blocked` that was logged last
        self._tree = tree
        self._settings = settings
        self._consumer = consumer
        self._subscription = subscription
        self._reader = reader
        self._assign = STRATEGIES[settings.partition_assignment_strategy]
        self.session: int | None = None  # the session of the registration and of the claims
        self._unreleased: set[Partition] = set()  # partitions to release, if this member owns them

    def attempt(self) -> bool:
        """Rebalance once. Return False if another member still owns a partition that is assigned to this member.

        Raises the errors of ZooKeeper and of the offset store.
        """
        self.wake_up.clear()
        self.blocked = ""
        self._register()
        mine = self._mine()
        lost = [one for one, thread in self.owned.items() if mine.get(one) != thread]
        if lost:
            self._reader.stop_reading(lost, lost=False)
            self._unreleased.update(lost)
            for partition in lost:
                del self.owned[partition]
        self._release()
        gained = {one: thread for one, thread in mine.items() if one not in self.owned}
        for partition, thread in gained.items():
            self._unreleased.add(partition)  # if the response is lost, it is not known whether the claim succeeded
            if not self._tree.claim(partition, thread):
                self._blocked_by(partition)
                self._release()
                return False
        self._reader.start_reading(gained)
        self.owned.update(gained)
        self._unreleased.clear()
        self._logged = ""
        return True

    def _release(self) -> None:
        """Release the partitions that this member gave up, or claimed in an attempt that failed."""
        for partition in list(self._unreleased):
            self._tree.release(partition)
            self._unreleased.discard(partition)

    def _register(self) -> None:
        """Register this member if it is not registered in the current ZooKeeper session.

        After a session expiry, the old session's claims are gone, and other members may own those partitions by now.
        """
        if self.session is not None and self._tree.session == self.session:
            return
        timeout_s = 0.0
        if self.session is not None:
            log.warning("%s: the ZooKeeper session expired; rejoining the group", self._consumer)
            timeout_s = self._settings.zookeeper_session_timeout_ms / 1000
            self._reader.stop_reading(list(self.owned), lost=True)
            # The session may have expired while claiming. Claims made since then are the new session's and have to be
            # released.
            self._unreleased.update(self.owned)
            self.owned.clear()
        data = self._subscription.written(self._tree.cluster.layout, round(time.time() * 1000))
        self.session = self._tree.register(self._consumer, data, timeout_s=timeout_s)

    def _mine(self) -> dict[Partition, Thread]:
        """Return the partitions assigned to this member, with their threads.

        The assignment is computed from the current znodes, with watches that set `wake_up` after a change.
        """
        members = self._tree.members(self._changed)
        by_filter = any(one.filter is not None for one in members.values())
        topics = self._tree.cluster.topics(self._changed) if by_filter else []
        exclude = self._settings.exclude_internal_topics
        streams = {one: sub.streams_of(topics, exclude_internal=exclude) for one, sub in members.items()}
        wanted = {topic for its_streams in streams.values() for topic in its_streams}
        partitions = {topic: self._tree.cluster.partitions(topic, self._changed) for topic in wanted}
        found = self._assign(streams, partitions)
        return {partition: thread for partition, thread in found.items() if thread.consumer == self._consumer}

    def _blocked_by(self, partition: Partition) -> None:
        """Record and log the current owner of a partition that this member could not claim."""
        owner = self._tree.owner(partition, self._changed)
        if owner is None:
            self.wake_up.set()  # the owner has released the partition meanwhile
            return
        path = self._tree.owner_path(partition)
        self.blocked = f"{path} in ZooKeeper is still {owner.decode('utf-8', 'replace')!r}"
        if self.blocked != self._logged:
            self._logged = self.blocked
            log.info("%s waits: %s", self._consumer, self.blocked)

    def _changed(self, _event: Any) -> None:
        self.wake_up.set()
