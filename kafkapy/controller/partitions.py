"""Changes of partition states: new states are written to the metadata tree first, then sent to the brokers.

Source: Kafka's PartitionStateMachine and ReplicaStateMachine. Their states (new, online, offline) are not kept: they
follow from the assignment, the partition state and the live brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kafkapy.controller import elections
from kafkapy.controller.cluster import Cluster
from kafkapy.controller.requests import Requests, TopicPartition
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.controller_fence import not_controller_error
from kafkapy.metadata.topics import PartitionState, Topic, TopicRegistry
from kafkapy.metadata.tree import BadVersion, wait, wait_for_all

log = logging.getLogger("kafkapy.controller.partitions")

_AT_ONCE = 100  # states that are written in one change of the metadata tree

# Returns the new state of a partition: (topic, partition index, present state, is_online) -> state, or None
Choose = Callable[[Topic, int, PartitionState, elections.IsOnline], "PartitionState | None"]


class Versioned(NamedTuple):
    """A partition state, and the version of its node, which is the partition epoch."""

    state: PartitionState
    version: int


class Partitions:
    """Reads and writes the states of partitions. For the controller's thread only; all methods that write block."""

    def __init__(
        self,
        topics: TopicRegistry,
        cluster: Cluster,
        requests: Requests,
        *,
        may_be_unclean: Callable[[str], bool],
        first_epoch: Callable[[str, int], int],
        on_conflict: Callable[[], object],
    ) -> None:
        """`may_be_unclean(topic)` returns unclean.leader.election.enable. `first_epoch(topic, partition)` returns the
        leader epoch of a partition that has no state: 0 unless a log of it is known to have later ones. `on_conflict()`
        is called when another program has changed a state meanwhile, so that the decision has to be made again.
        """
        self._topics = topics
        self._cluster = cluster
        self._requests = requests
        self._may_be_unclean = may_be_unclean
        self._first_epoch = first_epoch
        self._on_conflict = on_conflict
        self.unclean_elections = 0

    # --- reading

    def state(self, topic: str, index: int) -> Versioned | None:
        """Return the state of a partition, None if it has none, or an invalid one, which is logged."""
        try:
            found = self._topics.versioned_state(topic, index)
        except ValueError as error:
            log.error("a partition is not changed: %s", error)
            return None
        return None if found is None else Versioned(*found)

    def _with_states(self, partitions: Iterable[TopicPartition]) -> Iterator[tuple[Topic, int, Versioned]]:
        for name, index in partitions:
            topic = self._topics.get(name)
            known = None if topic is None or index not in topic.assignment else self.state(name, index)
            if topic is not None and known is not None:
                yield topic, index, known

    def _online(self, topic: str, index: int, *, or_shutting_down: bool = False) -> elections.IsOnline:
        return partial(self._cluster.is_online, topic, index, or_shutting_down=or_shutting_down)

    def _online_replicas(self, topic: Topic, index: int, *, or_shutting_down: bool = False) -> list[int]:
        return list(filter(self._online(topic.name, index, or_shutting_down=or_shutting_down), topic.assignment[index]))

    def led_by(self, broker_id: int, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those of the partitions that the broker leads."""
        return [
            (topic.name, index)
            for topic, index, known in self._with_states(partitions)
            if known.state.leader == broker_id
        ]

    # --- changes

    def bring_online(self, partitions: Iterable[tuple[Topic, Iterable[int]]], *, is_new: bool) -> None:
        """Give each of these partitions a leader and an ISR of online replicas, where it lacks them, and send the roles
        of all to their replicas.

        Used for new partitions, and for all partitions when the controller's term begins. `is_new`: the partitions have
        no logs yet.
        """
        changed: dict[TopicPartition, Versioned] = {}
        valid: list[tuple[Topic, int, bool]] = []
        for topic, indexes in partitions:
            first: dict[int, PartitionState] = {}
            for index in indexes:
                is_online = self._online(topic.name, index)
                try:
                    known = self._topics.versioned_state(topic.name, index)
                except ValueError as error:
                    log.error("%s-%d is not changed: %s", topic.name, index, error)
                    continue
                if known is None:
                    replicas = topic.assignment[index]
                    state = elections.first_state(replicas, is_online, self._first_epoch(topic.name, index))
                    if state is not None:
                        first[index] = self._with_controller_epoch(state)
                    else:
                        log.error("%s-%d has no leader: %s", topic.name, index, self._describe_offline(topic, index))
                    continue
                valid.append((topic, index, is_new))
                new = self._repaired(topic, index, known[0], is_online)
                if new is not None:
                    changed[topic.name, index] = Versioned(new, known[1])
            if first and self._add(topic, first):
                valid += [(topic, index, True) for index in first]
        self.write(changed)
        for topic, index, is_first in valid:
            now = self.state(topic.name, index)
            if now is not None:
                online = self._online_replicas(topic, index)
                self._requests.role(topic, index, now.state, now.version, online, is_new=is_first)

    def _add(self, topic: Topic, states: Mapping[int, PartitionState]) -> bool:
        """Write the first states of partitions. Return False if that fails, which is logged: the nodes of the topic may
        be gone.
        """
        try:
            wait(self._topics.add_states, topic, states)
        except KafkaError as error:
            if error.code == Errors.NOT_CONTROLLER:
                raise
            log.error("partitions %s of %s get no leaders: %s", sorted(states), topic.name, error.message)
            return False
        return True

    def _repaired(
        self, topic: Topic, index: int, state: PartitionState, is_online: elections.IsOnline
    ) -> PartitionState | None:
        """Return the state without members of the ISR that are offline, and with another leader if the leader is; None
        if nothing has to change.
        """
        if not is_online(state.leader):
            unclean = self._may_be_unclean(topic.name)
            elected = elections.elect_offline(topic.assignment[index], state, is_online, unclean=unclean)
            if elected is not None:
                self._note_unclean(topic, index, state, elected)
                return elected
            log.error("%s-%d has no leader: %s", topic.name, index, self._describe_offline(topic, index))
        return elections.without(state, [one for one in state.isr if not is_online(one)])

    def _describe_offline(self, topic: Topic, index: int) -> str:
        known = self.state(topic.name, index)
        isr = f", the ISR is {known.state.isr}" if known is not None else ""
        return f"its replicas are on brokers {topic.assignment[index]}{isr}, live are {self._cluster.live}"

    def _note_unclean(self, topic: Topic, index: int, before: PartitionState, after: PartitionState) -> None:
        if after.leader not in before.isr:
            self.unclean_elections += 1
            log.warning(
                "%s-%d: broker %d becomes leader in an unclean election: it was not in the ISR %s, and records may be "
                "lost",
                topic.name,
                index,
                after.leader,
                before.isr,
            )

    def elect(
        self,
        partitions: Iterable[TopicPartition],
        choose: Choose,
        *,
        or_shutting_down: bool = False,
    ) -> dict[TopicPartition, PartitionState | None]:
        """Have `choose` choose a new state for each partition that has one, write the states, and send the roles to all
        replicas. Return the new states; None for partitions where `choose` found no leader.
        """
        chosen: dict[TopicPartition, PartitionState | None] = {}
        changed: dict[TopicPartition, Versioned] = {}
        for topic, index, known in self._with_states(partitions):
            is_online = self._online(topic.name, index, or_shutting_down=or_shutting_down)
            chosen[topic.name, index] = state = choose(topic, index, known.state, is_online)
            if state is not None:
                self._note_unclean(topic, index, known.state, state)
                changed[topic.name, index] = Versioned(state, known.version)
        written = self.change(changed)
        return {key: state if key in written else None for key, state in chosen.items()}

    def change(self, states: Mapping[TopicPartition, Versioned]) -> set[TopicPartition]:
        """Write new states, each in place of the one with its version, and send the roles to all online replicas.
        Return the partitions whose states could be written.
        """
        written = self.write(states)
        for topic, index, known in self._with_states(written):
            online = self._online_replicas(topic, index, or_shutting_down=True)
            self._requests.role(topic, index, known.state, known.version, online, is_new=False)
        return written

    def elect_offline(self, partitions: Iterable[TopicPartition]) -> None:
        """Elect leaders for those of the partitions that have none, or whose leader is offline, where possible."""

        def choose(
            topic: Topic, index: int, state: PartitionState, is_online: elections.IsOnline
        ) -> PartitionState | None:
            unclean = self._may_be_unclean(topic.name)
            return elections.elect_offline(topic.assignment[index], state, is_online, unclean=unclean)

        lost = [
            (topic.name, index)
            for topic, index, known in self._with_states(partitions)
            if not self._cluster.is_online(topic.name, index, known.state.leader)
        ]
        for (name, index), state in self.elect(lost, choose).items():
            if state is None:
                log.error("%s-%d has no leader: no replica in its ISR is live", name, index)

    def take_offline(
        self, broker_id: int, partitions: Iterable[TopicPartition], *, leaving: Collection[int] = ()
    ) -> None:
        """Remove a broker that is gone, or shuts down, from the ISRs of these partitions, stop its fetching, and send
        the changes to the other replicas, except for those in `leaving`.
        """
        partitions = list(partitions)
        changed: dict[TopicPartition, Versioned] = {}
        for topic, index, known in self._with_states(partitions):
            self._requests.stop(topic.name, index, known.state.leader_epoch, [broker_id], delete=False)
            state = elections.without(known.state, [broker_id])
            if state is not None:
                changed[topic.name, index] = Versioned(state, known.version)
            else:  # the same leader and ISR, but a replica is offline now
                self._requests.inform(topic, index, known.state, known.version)
        for topic, index, known in self._with_states(self.write(changed)):
            others = [one for one in topic.assignment[index] if one != broker_id and one not in leaving]
            self._requests.role(topic, index, known.state, known.version, others, is_new=False)
            self._requests.stop(topic.name, index, known.state.leader_epoch, [broker_id], delete=False)

    def inform(self, partitions: Iterable[TopicPartition], brokers: Iterable[int] | None = None) -> None:
        """Send the leaders of these partitions to brokers, by default to all."""
        for topic, index, known in self._with_states(partitions):
            self._requests.inform(topic, index, known.state, known.version, brokers)

    def send_roles(self, partitions: Iterable[TopicPartition], brokers: Iterable[int], *, is_new: bool = False) -> None:
        """Send the present roles of these partitions to those of the brokers that have replicas."""
        wanted = set(brokers)
        for topic, index, known in self._with_states(partitions):
            replicas = [one for one in topic.assignment[index] if one in wanted]
            self._requests.role(topic, index, known.state, known.version, replicas, is_new=is_new)

    def write_isrs(self, states: Mapping[TopicPartition, Versioned]) -> dict[TopicPartition, Versioned | KafkaError]:
        """Write the ISRs that leaders have asked for. Return for each what was written, or an error."""
        written = self.write(states)
        outcomes: dict[TopicPartition, Versioned | KafkaError] = {}
        for topic, index in states:
            now = self.state(topic, index) if (topic, index) in written else None
            if now is None:
                message = f"the state of {topic}-{index} has changed meanwhile"
                outcomes[topic, index] = KafkaError(Errors.INVALID_UPDATE_VERSION, message)
            else:
                outcomes[topic, index] = now
        return outcomes

    # --- writing

    def _with_controller_epoch(self, state: PartitionState) -> PartitionState:
        return state._replace(controller_epoch=self._topics.controller_epoch)

    def write(self, states: Mapping[TopicPartition, Versioned]) -> set[TopicPartition]:
        """Write states, many in one change, each in place of the one with its version. Return the partitions whose
        states were written; errors of the others are logged.

        Raises KafkaError NOT_CONTROLLER if this broker is not the controller any more, or the tree cannot be reached.
        """
        written: set[TopicPartition] = set()
        items = list(states.items())
        for (name, index), one in items:
            if one.state.controller_epoch > self._topics.controller_epoch:
                # The tree accepts the changes of this controller only: the number in /controller_epoch was set back.
                log.error(
                    "the metadata at %s has controller epoch %d, and this controller's is %d: it is replaced",
                    paths.partition_state(name, index), one.state.controller_epoch, self._topics.controller_epoch,
                )  # fmt: skip
        parts = [dict(items[at : at + _AT_ONCE]) for at in range(0, len(items), _AT_ONCE)]
        one_by_one: list[dict[TopicPartition, Versioned]] = []
        for part, error in self._write_parts(parts):
            if error is None:
                written.update(part)
            elif len(part) > 1:
                one_by_one += ({key: one} for key, one in part.items())
            else:
                self._not_written(part, error)
        for part, error in self._write_parts(one_by_one):
            if error is None:
                written.update(part)
            else:
                self._not_written(part, error)
        return written

    def _write_parts(
        self, parts: Sequence[Mapping[TopicPartition, Versioned]]
    ) -> Iterator[tuple[Mapping[TopicPartition, Versioned], KafkaError | None]]:
        """Write each part in one change of the metadata tree, without waiting for those before it. Yield each with its
        error, if any.
        """

        def write(part: Mapping[TopicPartition, Versioned], done: Callable[[KafkaError | None], None]) -> None:
            states = {key: self._with_controller_epoch(one.state) for key, one in part.items()}
            versions = {key: one.version for key, one in part.items()}
            self._topics.set_states(states, done, versions=versions)

        for part, error in zip(parts, wait_for_all([partial(write, part) for part in parts]), strict=True):
            if error is not None and error.code == Errors.NOT_CONTROLLER and not _is_conflict(error):
                raise error
            yield part, error

    def _not_written(self, part: Mapping[TopicPartition, Versioned], error: KafkaError) -> None:
        ((name, index),) = part
        log.error("the state of %s-%d cannot be written: %s", name, index, error.message)
        if _is_conflict(error):
            self._on_conflict()


def _is_conflict(error: KafkaError) -> bool:
    """Return True if another program has written the node, so that its version is another."""
    cause = error.__cause__
    return isinstance(cause, BadVersion) and not_controller_error(cause) is None
