"""The brokers of the cluster, as the controller sees them: which are registered, which are shutting down, and which
replicas are offline.

Source: kafka.controller.ControllerContext.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from kafkapy.controller.partition import TopicPartition
from kafkapy.metadata.cache import LiveBroker
from kafkapy.metadata.topics import TopicRegistry

Replica = tuple[str, int, int]  # topic, partition and broker id


class Registered(NamedTuple):
    """A registered broker, and the epoch of its registration (czxid)."""

    broker: LiveBroker
    epoch: int


class Cluster:
    """The registered brokers. Only the controller's thread changes it."""

    def __init__(self) -> None:
        self.registered: Mapping[int, Registered] = {}  # replaced, never changed
        self.shutting_down: set[int] = set()
        self._offline: set[Replica] = set()  # replicas in log directories that have failed

    @property
    def live(self) -> list[int]:
        """The ids of the brokers that can lead partitions: registered, and not shutting down."""
        return [one for one in sorted(self.registered) if one not in self.shutting_down]

    @property
    def is_alone(self) -> bool:
        """True if only one broker is registered."""
        return len(self.registered) == 1

    def is_online(self, topic: str, partition: int, broker_id: int, *, or_shutting_down: bool = False) -> bool:
        """Return True if a replica can lead: its broker is live and its log directory has not failed."""
        return (
            broker_id in self.registered
            and (or_shutting_down or broker_id not in self.shutting_down)
            and (topic, partition, broker_id) not in self._offline
        )

    def remove(self, gone: Collection[int]) -> None:
        """Forget brokers that are not registered any more."""
        self.registered = {one: known for one, known in self.registered.items() if one not in gone}
        self.shutting_down.difference_update(gone)
        self._offline = {one for one in self._offline if one[2] not in gone}

    def failed(self, replicas: Iterable[Replica]) -> list[Replica]:
        """Note replicas whose log directory has failed, and return those that were online before."""
        new = [one for one in replicas if one not in self._offline]
        self._offline.update(new)
        return new

    def recovered(self, replicas: Iterable[Replica]) -> list[Replica]:
        """Note replicas that have taken a role, and return those that were offline before."""
        back = [one for one in replicas if one in self._offline]
        self._offline.difference_update(back)
        return back

    def clear(self) -> None:
        """Forget everything, at the beginning of a term."""
        self.registered, self.shutting_down, self._offline = {}, set(), set()


def replicas_on(topics: TopicRegistry, brokers: Iterable[int]) -> Iterator[TopicPartition]:
    """Yield (topic, partition) of the partitions that have a replica on one of these brokers. Topics that are being
    deleted are left out.
    """
    wanted = set(brokers)
    for topic in topics.all():
        for index, replicas in topic.assignment.items():
            if not wanted.isdisjoint(replicas):
                yield topic.name, index
