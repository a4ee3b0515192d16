"""Requests of the controller to brokers: those of one change are collected, then sent to each broker in Kafka's order.

For each broker LeaderAndIsr comes before UpdateMetadata before StopReplica. A follower accepts a leader only if it
knows the leader to be alive, so UpdateMetadata with a new broker is sent in a change of its own. Source:
kafka.controller.ControllerBrokerRequestBatch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from kafkapy.controller.cluster import Cluster, Registered
from kafkapy.controller.partition import Partition, TopicPartition
from kafkapy.errors import KafkaError
from kafkapy.metadata.cache import LEADER_DURING_DELETE, LiveBroker
from kafkapy.metadata.controller_fence import ControllerFence
from kafkapy.metadata.roles import PartitionRole, StopPartition
from kafkapy.metadata.topic_nodes import Move, Topic

Failures = Mapping[TopicPartition, KafkaError]
_NO_MOVE = Move([], [])


class RolesRequest(NamedTuple):
    """A LeaderAndIsr request. `leaders` are the brokers that lead these partitions."""

    controller_epoch: int
    broker_epoch: int
    roles: Sequence[PartitionRole]
    leaders: Sequence[LiveBroker]


class MetadataRequest(NamedTuple):
    """An UpdateMetadata request. `brokers` are all live brokers, `partitions` only those that have changed."""

    controller_epoch: int
    broker_epoch: int
    brokers: Sequence[LiveBroker]
    partitions: Sequence[PartitionRole]


class StopRequest(NamedTuple):
    """A StopReplica request."""

    controller_epoch: int
    broker_epoch: int
    stops: Sequence[StopPartition]


Request = RolesRequest | MetadataRequest | StopRequest
# Called once, on any thread, with the errors of partitions; not called if the broker is gone before it has responded.
Answered = Callable[[Failures], object]


class Channels(Protocol):
    """Sends requests to the brokers: those to one broker in order, one at a time, each repeated until there is a
    response or the broker is gone.
    """

    def send(self, broker: LiveBroker, requests: Sequence[tuple[Request, Answered]]) -> None:
        """Send requests to a broker, and call the function beside each when the broker has responded to it."""
        ...

    def forget(self, broker_ids: Collection[int]) -> None:
        """Drop the requests to brokers that are gone or have registered again."""
        ...

    def wait_for_others(self, timeout_s: float) -> bool:
        """Block until the other brokers have responded to all that was sent to them so far or are gone, at most for
        `timeout_s` seconds. Return False if not all have responded in time.
        """
        ...


class Requests:
    """Collects the requests of a change, and sends them. For the controller's thread only."""

    def __init__(
        self,
        channels: Channels,
        fence: ControllerFence,
        cluster: Cluster,
        on_response: Callable[[int, Request, Failures], object],
    ) -> None:
        """`on_response(broker id, request, errors)` is called on any thread when a broker has responded."""
        self._channels = channels
        self._fence = fence
        self._cluster = cluster
        self._on_response = on_response
        self._roles: dict[int, dict[TopicPartition, PartitionRole]] = {}
        self._informed: set[int] = set()  # brokers that get UpdateMetadata
        self._metadata: dict[TopicPartition, PartitionRole] = {}
        self._stops: dict[int, dict[TopicPartition, StopPartition]] = {}

    def role(self, partition: Partition, brokers: Iterable[int], *, is_new: bool = False) -> None:
        """Send the role of a partition to these brokers, and its leader to all brokers. `is_new`: the brokers have no
        log of the partition yet.
        """
        self.inform(partition)
        for broker_id in brokers:
            roles = self._roles.setdefault(broker_id, {})
            known = roles.get(partition.key)
            is_new_there = is_new or (known is not None and known.is_new)
            roles[partition.key] = self._metadata[partition.key]._replace(is_new=is_new_there)

    def inform(self, partition: Partition, brokers: Iterable[int] | None = None) -> None:
        """Send the leader of a partition to these brokers, by default to all."""
        self.announce(brokers)
        self._metadata[partition.key] = self._role(partition)

    def announce(self, brokers: Iterable[int] | None = None) -> None:
        """Send the live brokers to these brokers, by default to all."""
        self._informed.update(self._cluster.registered if brokers is None else brokers)

    def forget_topic(self, topic: Topic) -> None:
        """Have all brokers remove a deleted topic from their metadata."""
        self.announce()
        for index, replicas in topic.assignment.items():
            self._metadata[topic.name, index] = PartitionRole(
                topic.name, index, topic.id, LEADER_DURING_DELETE, 0, 0, (), tuple(replicas)
            )

    def stop(self, partition: TopicPartition, leader_epoch: int, brokers: Iterable[int], *, delete: bool) -> None:
        """Have these brokers stop fetching a partition, or delete it."""
        for broker_id in brokers:
            stops = self._stops.setdefault(broker_id, {})
            known = stops.get(partition)
            delete_it = delete or (known is not None and known.delete)
            stops[partition] = StopPartition(*partition, leader_epoch, delete_it)

    def forget(self, broker_ids: Collection[int]) -> None:
        """Drop the requests to brokers that are gone or have registered again."""
        self._channels.forget(broker_ids)

    def send(self) -> None:
        """Send what was collected to the brokers that are registered, and begin a new collection."""
        controller_epoch = self._fence.epoch
        registered = self._cluster.registered
        brokers = [one.broker for one in registered.values()]
        roles, informed, metadata, stops = self._roles, self._informed, list(self._metadata.values()), self._stops
        self._roles, self._informed, self._metadata, self._stops = {}, set(), {}, {}
        for broker_id in sorted({*roles, *informed, *stops} & set(registered)):
            one = registered[broker_id]
            requests: list[Request] = []
            if broker_id in roles:
                mine = list(roles[broker_id].values())
                requests.append(RolesRequest(controller_epoch, one.epoch, mine, _leaders(mine, registered)))
            if broker_id in informed:
                requests.append(MetadataRequest(controller_epoch, one.epoch, brokers, metadata))
            if broker_id in stops:
                requests.append(StopRequest(controller_epoch, one.epoch, list(stops[broker_id].values())))
            self._channels.send(one.broker, [(each, self._answer_of(broker_id, each)) for each in requests])

    def _answer_of(self, broker_id: int, request: Request) -> Answered:
        return lambda failures: self._on_response(broker_id, request, failures)

    def _role(self, partition: Partition) -> PartitionRole:
        topic, index, state, replicas = partition.topic, partition.number, partition.state, partition.replicas
        move = topic.moves.get(index, _NO_MOVE)
        return PartitionRole(
            topic.name,
            index,
            topic.id,
            state.leader,
            state.leader_epoch,
            partition.version,
            tuple(state.isr),
            tuple(replicas),
            controller_epoch=state.controller_epoch,
            adding=tuple(move.adding),
            removing=tuple(move.removing),
            recovery=state.recovery,
            offline=tuple(one for one in replicas if not self._cluster.is_online(topic.name, index, one)),
        )


def _leaders(roles: Iterable[PartitionRole], registered: Mapping[int, Registered]) -> list[LiveBroker]:
    ids = {role.leader for role in roles}
    return [one.broker for broker_id, one in registered.items() if broker_id in ids]
