"""How a member comes to own partitions: it registers, computes what is its own, lets go, and claims.

1. It reads the members of the group, the topics and their partitions, and asks to be told when any of it changes.
2. It computes who is to have what; all members come to the same.
3. What it has and is not to have any more it stops reading, commits, and releases.
4. What it is to have it claims with an ephemeral node. Where the former owner has not let go yet it gives back what it
   has just claimed, waits until that node is gone or for the back-off, and begins anew: members may have changed.
5. Only then it reads the committed offsets, which are those of the former owner, and begins to fetch.

Source: ZKRebalancerListener of Kafka 0.8.2. Unlike it, partitions that stay where they are go on being read, and the
offsets are read after the claim and not before it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

from kafkapy.client.original.assignment import STRATEGIES, Partition, Thread
from kafkapy.client.original.group_tree import GroupTree
from kafkapy.client.original.settings import ConsumerSettings
from kafkapy.client.original.subscriptions import Subscription

log = logging.getLogger(__name__)


class Holder(Protocol):
    """What reads the partitions that are owned."""

    def let_go(self, partitions: list[Partition], *, lost: bool) -> None:
        """Reads them no more, and says where it stands before they are another's; `lost`: perhaps they are already."""

    def take_over(self, partitions: Mapping[Partition, Thread]) -> None:
        """Reads them from now on. May raise, and then has none of them."""


class Rebalancer:
    """One member of a group. `attempt` is for one thread at a time; `news` is set when it is to be called again."""

    def __init__(
        self, tree: GroupTree, settings: ConsumerSettings, consumer: str, subscription: Subscription, holder: Holder
    ) -> None:
        self.news = threading.Event()
        self.owned: dict[Partition, Thread] = {}
        self.blocked = ""  # who has what we are to have, for a person
        self._tree = tree
        self._settings = settings
        self._consumer = consumer
        self._subscription = subscription
        self._holder = holder
        self._assign = STRATEGIES[settings.partition_assignment_strategy]
        self.session: int | None = None  # to which registration and claims are bound
        self._unreleased: set[Partition] = set()  # what is to be given back, if it is ours

    def attempt(self) -> bool:
        """Whether all that we are to have is ours. Raises what ZooKeeper, or those who give offsets, raise."""
        self.news.clear()
        self.blocked = ""
        self._register()
        mine = self._mine()
        lost = [one for one, thread in self.owned.items() if mine.get(one) != thread]
        if lost:
            self._holder.let_go(lost, lost=False)
            self._unreleased.update(lost)
            for partition in lost:
                del self.owned[partition]
        self._release()
        gained = {one: thread for one, thread in mine.items() if one not in self.owned}
        for partition, thread in gained.items():
            self._unreleased.add(partition)  # an answer that is lost leaves open whether it is ours
            if not self._tree.claim(partition, thread):
                self._blocked_by(partition)
                self._release()
                return False
        self._holder.take_over(gained)
        self.owned.update(gained)
        self._unreleased.clear()
        return True

    def _release(self) -> None:
        for partition in list(self._unreleased):
            self._tree.release(partition)
            self._unreleased.discard(partition)

    def _register(self) -> None:
        """Anew when the session is another: then nothing is ours any more, and perhaps others' already."""
        if self.session is not None and self._tree.session == self.session:
            return
        patience_s = 0.0
        if self.session is not None:
            log.warning("%s: the session with ZooKeeper is over; joins the group anew", self._consumer)
            patience_s = self._settings.zookeeper_session_timeout_ms / 1000
            self._holder.let_go(list(self.owned), lost=True)
            # The session may have become another in the middle of claiming: what was claimed since is to go back.
            self._unreleased.update(self.owned)
            self.owned.clear()
        data = self._subscription.written(self._tree.cluster.layout, round(time.time() * 1000))
        self.session = self._tree.register(self._consumer, data, patience_s=patience_s)

    def _mine(self) -> dict[Partition, Thread]:
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
        owner = self._tree.owner(partition, self._changed)
        if owner is None:
            self.news.set()  # it has just let go
            return
        path = self._tree.owner_path(partition)
        self.blocked = f"{path} in ZooKeeper is still {owner.decode('utf-8', 'replace')!r}"
        log.info("%s waits: %s", self._consumer, self.blocked)

    def _changed(self, _event: Any) -> None:
        self.news.set()
