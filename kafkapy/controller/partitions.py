"""Changes of partition states: new states are written to the metadata tree first, then sent to the brokers.

Source: Kafka's PartitionStateMachine and ReplicaStateMachine. Their states (new, online, offline) are not kept: they
follow from the assignment, the partition state and the live brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from kafkapy.controller import elections
from kafkapy.controller.cluster import Cluster
from kafkapy.controller.partition import Partition, TopicPartition
from kafkapy.controller.requests import Requests
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.controller_fence import not_controller_error
from kafkapy.metadata.topic_rules import Assignment
from kafkapy.metadata.topics import PartitionState, Topic, TopicRegistry
from kafkapy.metadata.tree import BadVersion, wait, wait_for_all

log = logging.getLogger("kafkapy.controller.partitions")

_AT_ONCE = 100  # states that are written in one change of the metadata tree

# Returns the new state of a partition, or None: (partition, is_online) -> state
Choose = Callable[[Partition, elections.IsOnline], "PartitionState | None"]


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

    def get(self, name: str, index: int) -> Partition | None:
        """Return a partition, or None if it does not exist or has no valid state. An invalid state is logged."""
        topic = self._topics.get(name)
        if topic is None or index not in topic.assignment:
            return None
        try:
            found = self._topics.versioned_state(name, index)
        except ValueError as error:
            log.error("a partition is not changed: %s", error)
            return None
        return None if found is None else Partition(topic, index, *found)

    def all(self) -> list[TopicPartition]:
        """Return all partitions of topics that are not being deleted."""
        return [(topic.name, index) for topic in self._topics.all() for index in topic.assignment]

    def _known(self, partitions: Iterable[TopicPartition]) -> Iterator[Partition]:
        return (one for key in partitions if (one := self.get(*key)) is not None)

    def _is_online(self, one: Partition, *, or_shutting_down: bool = False) -> elections.IsOnline:
        return partial(self._cluster.is_online, *one.key, or_shutting_down=or_shutting_down)

    def led_by(self, broker_id: int, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those of the partitions that the broker leads."""
        return [one.key for one in self._known(partitions) if one.state.leader == broker_id]

    # --- changes

    def first_states(self, name: str, assignment: Assignment) -> dict[int, PartitionState]:
        """Return the states of partitions that have none. Those without an online replica are left out."""
        states = {}
        for index, replicas in assignment.items():
            is_online = partial(self._cluster.is_online, name, index)
            state = elections.first_state(replicas, is_online, self._first_epoch(name, index))
            if state is not None:
                states[index] = self._with_controller_epoch(state)
        return states

    def bring_online(self, partitions: Iterable[TopicPartition], *, is_new: bool) -> None:
        """Give each of these partitions a leader and an ISR of online replicas, where it lacks them, and send the roles
        of all to their replicas.

        Used for new partitions, and for all partitions when the controller's term begins. `is_new`: the partitions have
        no logs yet.
        """
        partitions = list(partitions)
        added = self._add_states(partitions)
        present = list(self._known(partitions))
        repaired = ((one, self._repaired(one)) for one in present)
        self.write([one.in_state(state) for one, state in repaired if state is not None])
        for one in self._known(one.key for one in present):
            online = filter(self._is_online(one), one.replicas)
            self._requests.role(one, online, is_new=is_new or one.key in added)

    def _add_states(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Write the first states of partitions that have none. Return those for which that was possible."""
        missing: dict[str, dict[int, list[int]]] = {}
        for name, index in partitions:
            topic = self._topics.get(name)
            if topic is not None and index in topic.assignment and not self._topics.has_state(name, index):
                missing.setdefault(name, {})[index] = topic.assignment[index]
        added: set[TopicPartition] = set()
        for name, assignment in missing.items():
            states = self.first_states(name, assignment)
            for index in assignment.keys() - states.keys():
                self._log_offline(f"{name}-{index}", assignment[index])
            topic = self._topics.get(name)
            if states and topic is not None and self._write_first(topic, states):
                added.update((name, index) for index in states)
        return added

    def _write_first(self, topic: Topic, states: Mapping[int, PartitionState]) -> bool:
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

    def _repaired(self, one: Partition) -> PartitionState | None:
        """Return the state without the offline members of the ISR, and with another leader if the leader is offline.
        Return None if nothing has to change.
        """
        is_online = self._is_online(one)
        if not is_online(one.state.leader):
            elected = self._elected(one, is_online)
            if elected is not None:
                self._note_unclean(one, elected)
                return elected
            self._log_offline(one, one.replicas, one.state.isr)
        return elections.without(one.state, [member for member in one.state.isr if not is_online(member)])

    def _elected(self, one: Partition, is_online: elections.IsOnline) -> PartitionState | None:
        unclean = self._may_be_unclean(one.topic.name)
        return elections.elect_offline(one.replicas, one.state, is_online, unclean=unclean)

    def _log_offline(self, partition: object, replicas: Sequence[int], isr: Sequence[int] = ()) -> None:
        live = self._cluster.live
        log.error(
            "%s has no leader: its replicas are on brokers %s, ISR %s; live brokers: %s", partition, replicas, isr, live
        )

    def _note_unclean(self, one: Partition, after: PartitionState) -> None:
        if after.leader not in one.state.isr:
            self.unclean_elections += 1
            log.warning(
                "%s: unclean election of broker %d, which was not in the ISR %s: records may be lost",
                one, after.leader, one.state.isr,
            )  # fmt: skip

    def elect(
        self, partitions: Iterable[TopicPartition], choose: Choose, *, or_shutting_down: bool = False
    ) -> dict[TopicPartition, bool]:
        """Have `choose` choose a new state for each partition that has one, write the states, and send the roles to all
        replicas. Return True for each partition that has a new leader, False where `choose` found none.
        """
        results: dict[TopicPartition, bool] = {}
        changed: list[Partition] = []
        for one in self._known(partitions):
            results[one.key] = False
            state = choose(one, self._is_online(one, or_shutting_down=or_shutting_down))
            if state is not None:
                self._note_unclean(one, state)
                changed.append(one.in_state(state))
        return results | dict.fromkeys((one.key for one in self.change(changed)), True)

    def change(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Write the new states of partitions, and send the roles to all online replicas. Return those written."""
        written = self.write(partitions)
        for one in written:
            self._requests.role(one, filter(self._is_online(one, or_shutting_down=True), one.replicas))
        return written

    def elect_offline(self, partitions: Iterable[TopicPartition]) -> None:
        """Elect leaders for those of the partitions that have none, or whose leader is offline, where possible."""
        lost = [one for one in self._known(partitions) if not self._is_online(one)(one.state.leader)]
        elected = self.elect([one.key for one in lost], self._elected)
        for one in lost:
            if not elected.get(one.key):
                self._log_offline(one, one.replicas, one.state.isr)

    def take_offline(
        self, broker_id: int, partitions: Iterable[TopicPartition], *, leaving: Collection[int] = ()
    ) -> None:
        """Remove a broker that is gone, or shuts down, from the ISRs of these partitions, stop its fetching, and send
        the changes to the other replicas, except for those in `leaving`.
        """
        changed: list[Partition] = []
        for one in self._known(partitions):
            self._requests.stop(one.key, one.state.leader_epoch, [broker_id], delete=False)
            state = elections.without(one.state, [broker_id])
            if state is not None:
                changed.append(one.in_state(state))
            else:  # the same leader and ISR, but a replica is offline now
                self._requests.inform(one)
        for one in self.write(changed):
            self._requests.role(one, [other for other in one.replicas if other != broker_id and other not in leaving])
            self._requests.stop(one.key, one.state.leader_epoch, [broker_id], delete=False)

    def inform(self, partitions: Iterable[TopicPartition], brokers: Iterable[int] | None = None) -> None:
        """Send the leaders of these partitions to brokers, by default to all."""
        for one in self._known(partitions):
            self._requests.inform(one, brokers)

    def send_roles(self, partitions: Iterable[TopicPartition], brokers: Iterable[int], *, is_new: bool = False) -> None:
        """Send the present roles of these partitions to those of the brokers that have replicas."""
        wanted = set(brokers)
        for one in self._known(partitions):
            self._requests.role(one, wanted.intersection(one.replicas), is_new=is_new)

    # --- writing

    def _with_controller_epoch(self, state: PartitionState) -> PartitionState:
        return state._replace(controller_epoch=self._topics.controller_epoch)

    def write(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Write states, many in one change. A state is written only if the stored one has the partition's version.
        Return the partitions whose states were written, with their new versions; errors of the others are logged.

        Raises KafkaError NOT_CONTROLLER if this broker is not the controller any more, or the tree cannot be reached.
        """
        everything = list(partitions)
        for one in everything:
            if one.state.controller_epoch > self._topics.controller_epoch:
                # The tree accepts the changes of this controller only: the number in /controller_epoch was set back.
                log.error(
                    "the metadata at %s has controller epoch %d, and this controller's is %d: it is replaced",
                    paths.partition_state(*one.key), one.state.controller_epoch, self._topics.controller_epoch,
                )  # fmt: skip
        written: list[Partition] = []
        parts = [everything[at : at + _AT_ONCE] for at in range(0, len(everything), _AT_ONCE)]
        while parts:
            single: list[list[Partition]] = []
            for part, error in self._write_parts(parts):
                if error is None:
                    written += part
                elif len(part) > 1:  # the error may be that of one of them
                    single += ([one] for one in part)
                else:
                    log.error("the state of %s cannot be written: %s", part[0], error.message)
                    if _is_conflict(error):
                        self._on_conflict()
            parts = single
        return list(self._known(one.key for one in written))

    def _write_parts(self, parts: Sequence[list[Partition]]) -> Iterator[tuple[list[Partition], KafkaError | None]]:
        """Write each part in one change of the metadata tree, without waiting for earlier parts. Yield each with its
        error, if any.
        """

        def write(part: list[Partition], done: Callable[[KafkaError | None], None]) -> None:
            states = {one.key: self._with_controller_epoch(one.state) for one in part}
            self._topics.set_states(states, done, versions={one.key: one.version for one in part})

        for part, error in zip(parts, wait_for_all([partial(write, part) for part in parts]), strict=True):
            if error is not None and error.code == Errors.NOT_CONTROLLER and not _is_conflict(error):
                raise error
            yield part, error


def _is_conflict(error: KafkaError) -> bool:
    """Return True if the error means that another program has written the node, so that its version differs."""
    cause = error.__cause__
    return isinstance(cause, BadVersion) and not_controller_error(cause) is None
