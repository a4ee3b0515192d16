"""Brokers that register, die, shut down, or lose a log directory.

Source: KafkaController.onBrokerStartup, onBrokerFailure, onReplicasBecomeOffline, doControlledShutdown.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from kafkapy.controller import elections
from kafkapy.controller.cluster import Cluster, Registered, replicas_on
from kafkapy.controller.deletions import Deletions
from kafkapy.controller.moves import Moves
from kafkapy.controller.partition import TopicPartition
from kafkapy.controller.partitions import Partitions
from kafkapy.controller.requests import Failures, Requests, RolesRequest
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.topics import TopicRegistry

log = logging.getLogger("kafkapy.controller")


class BrokerChanges:
    """Carries out what follows from a change of a broker. For the controller's thread only."""

    def __init__(
        self,
        topics: TopicRegistry,
        cluster: Cluster,
        partitions: Partitions,
        requests: Requests,
        moves: Moves,
        deletions: Deletions,
    ) -> None:
        self._topics = topics
        self._cluster = cluster
        self._partitions = partitions
        self._requests = requests
        self._moves = moves
        self._deletions = deletions

    def registered(self, found: Mapping[int, Registered]) -> None:
        """Process the set of registered brokers: elect leaders in place of brokers that are gone, and send roles to new
        ones. A broker that has registered again counts as gone and as new.
        """
        known = self._cluster.registered
        gone = sorted(one for one in known if one not in found or found[one].epoch != known[one].epoch)
        if gone:
            self._cluster.remove(gone)
            log.info("brokers %s are gone, or have registered again; live brokers: %s", gone, self._cluster.live)
            self._requests.forget(gone)
            self._deletions.broker_gone(gone)
            self._replicas_offline(gone, list(replicas_on(self._topics, gone)))
        known, self._cluster.registered = self._cluster.registered, found
        new = sorted(one for one in found if one not in known)
        if new:
            log.info("brokers %s have registered; live brokers: %s", new, self._cluster.live)
            self._arrived(new)
        elif found != known:  # an address has changed
            self._requests.announce()

    def _replicas_offline(self, brokers: Iterable[int], partitions: Sequence[TopicPartition]) -> None:
        """Elect other leaders for these partitions, whose replicas on `brokers` are offline, and remove those brokers
        from the ISRs.
        """
        self._partitions.elect_offline(partitions)
        for broker_id in brokers:
            self._partitions.take_offline(broker_id, partitions)
        self._requests.announce()  # also if no partition has changed
        self._requests.send()

    def _arrived(self, brokers: Sequence[int]) -> None:
        """Send new brokers the metadata and their roles, and elect leaders for partitions that have none.

        All other brokers learn of the new ones first: a follower accepts only a leader that it knows to be alive.
        """
        self._requests.announce([one for one in self._cluster.registered if one not in brokers])
        self._requests.send()
        everything = self._partitions.all()
        self._requests.announce(brokers)
        for topic in self._topics.marked():
            self._requests.forget_topic(topic)
        self._partitions.inform(everything, brokers)
        self._requests.send()
        self._partitions.send_roles(replicas_on(self._topics, brokers), brokers)
        self._partitions.elect_offline(everything)
        self._partitions.bring_online([one for one in everything if not self._topics.has_state(*one)], is_new=True)
        self._moves.resume_all(brokers)
        self._deletions.resume()

    def answered(self, broker_id: int, request: RolesRequest, failures: Failures) -> None:
        """Note which replicas are in log directories that have failed. As in Kafka, a replica is online again when it
        takes a role. (Kafka does not elect it at once.)
        """
        taken = [(one.topic, one.partition) for one in request.roles if (one.topic, one.partition) not in failures]
        back = self._cluster.recovered((topic, index, broker_id) for topic, index in taken)
        if back:
            log.info("replicas of %d partitions on broker %d are online again", len(back), broker_id)
            self._partitions.elect_offline([(topic, index) for topic, index, _ in back])
        offline = [key for key, error in failures.items() if error.code == Errors.KAFKA_STORAGE_ERROR]
        new = self._cluster.failed((topic, index, broker_id) for topic, index in offline)
        if new:
            count = len(new)
            log.warning(
                "broker %d has lost the replicas of %d partitions: a log directory has failed", broker_id, count
            )
            self._replicas_offline([broker_id], [(topic, index) for topic, index, _ in new])

    def begin_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Note that a broker shuts down, and return the partitions whose leadership `move_leadership` has to move.

        Raises the KafkaErrors of Controller.controlled_shutdown.
        """
        known = self._cluster.registered.get(broker_id)
        if known is None:
            raise KafkaError(Errors.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
        if -1 < broker_epoch < known.epoch:
            raise KafkaError(Errors.STALE_BROKER_EPOCH, f"broker {broker_id} has registered again since {broker_epoch}")
        self._cluster.shutting_down.add(broker_id)
        return self._partitions.led_by(broker_id, self._movable(broker_id))

    def _movable(self, broker_id: int) -> list[TopicPartition]:
        return [
            (topic.name, index)
            for topic in self._topics.all()
            for index, replicas in topic.assignment.items()
            if broker_id in replicas and len(replicas) > 1
        ]

    def move_leadership(self, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Elect other leaders for those of the partitions that the broker, which shuts down, still leads."""
        self._check_shuts_down(broker_id)
        shutting_down = frozenset(self._cluster.shutting_down)
        self._partitions.elect(
            self._partitions.led_by(broker_id, partitions),
            lambda one, is_online: elections.elect_for_shutdown(one.replicas, one.state, is_online, shutting_down),
            or_shutting_down=True,
        )

    def _check_shuts_down(self, broker_id: int) -> None:
        if broker_id not in self._cluster.shutting_down:
            raise KafkaError(Errors.BROKER_NOT_AVAILABLE, f"broker {broker_id} is gone, or has registered again")

    def end_shutdown(self, broker_id: int, moved: Collection[TopicPartition]) -> list[TopicPartition]:
        """Remove the broker from the ISRs of the partitions that it follows, except for those `moved` to other leaders,
        whose ISRs it has left already. Return the partitions that it still leads.
        """
        self._check_shuts_down(broker_id)
        movable = self._movable(broker_id)
        left = self._partitions.led_by(broker_id, movable)
        followed = set(movable).difference(moved)
        self._partitions.take_offline(broker_id, [one for one in movable if one in followed])
        count = len(moved) - len(left)
        log.info("broker %d shuts down: partitions moved: %d, still led by it: %d", broker_id, count, len(left))
        return left
