"""The controller of a cluster: decides which broker leads which partition, and carries out changes of topics.

All decisions are made on one thread, one event at a time. An event writes to the metadata tree first and then sends
requests to the brokers; every write fails if this broker is not the controller any more. So a broker alone is a cluster
of one: the same decisions, sent to itself. Source: kafka.controller.KafkaController, kafka.server.ZkAdminManager.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from kafkapy.controller import elections
from kafkapy.controller.cluster import Cluster, Registered, replicas_on
from kafkapy.controller.deletions import Deletions
from kafkapy.controller.events import EventQueue
from kafkapy.controller.interface import Assignment
from kafkapy.controller.isr_changes import IsrRequest, Outcome, decide
from kafkapy.controller.moves import Moves
from kafkapy.controller.partitions import Partitions, Versioned
from kafkapy.controller.requests import Channels, Failures, Request, Requests, RolesRequest, StopRequest, TopicPartition
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.controller_fence import ControllerFence
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.producer_ids import ProducerIdBlocks
from kafkapy.metadata.roles import NO_LEADER
from kafkapy.metadata.topic_rules import plan_more_partitions, plan_topic
from kafkapy.metadata.topics import PartitionState, Topic, TopicRegistry, validate_name
from kafkapy.metadata.tree import TreeUnreachable, wait
from kafkapy.runtime.counters import Histogram

log = logging.getLogger("kafkapy.controller")

_T = TypeVar("_T")

# The most partitions that one event at the beginning of a term handles. Each may create a log, and a stop of the broker
# waits for the event.
_AT_ONCE = 500
_REPEAT_S = 1.0
_DELETION_S = 5.0  # how long a deletion is waited for
_OTHERS_S = 1.0  # how long other brokers are waited for, so that a client finds its new topic on each of them
PREFERRED, UNCLEAN = 0, 1  # kinds of elections that clients may ask for


class Settings(NamedTuple):
    """The settings that the controller uses, as functions. The checks raise KafkaError INVALID_CONFIG.

    check               checks the settings of a new topic
    check_stored        checks the stored settings of a topic
    partitions          num.partitions
    replication         default.replication.factor
    may_be_unclean      unclean.leader.election.enable of a topic; "": of topics without settings of their own
    imbalance           leader.imbalance.per.broker.percentage
    """

    check: Callable[[Mapping[str, str]], object]
    check_stored: Callable[[str], object]
    partitions: Callable[[], int]
    replication: Callable[[], int]
    may_be_unclean: Callable[[str], bool]
    imbalance: Callable[[], int] = lambda: 10


class Counts(NamedTuple):
    """Counts for the metrics. All are 0 on a broker that is not the controller."""

    active: int = 0
    brokers: int = 0
    partitions: int = 0
    offline_partitions: int = 0
    preferred_replica_imbalance: int = 0
    topics_to_delete: int = 0


class ClusterController:
    """The controller, on the broker that holds that role. Implements kafkapy.controller.interface.Controller.

    Methods without `_` in front may be called on any thread that may block. They raise KafkaError NOT_CONTROLLER while
    another broker is the controller.
    """

    def __init__(
        self,
        fence: ControllerFence,
        topics: TopicRegistry,
        producer_ids: ProducerIdBlocks,
        channels: Channels,
        *,
        broker_id: int,
        registered: Callable[[], Mapping[int, Registered]],
        wait_for_own: Callable[[], object],
        first_epoch: Callable[[str, int], int],
        settings: Settings,
        later: Callable[[float, Callable[[], object]], object],
    ) -> None:
        """`registered()` returns the brokers that are registered now. `wait_for_own()` blocks until this broker has
        carried out all requests that were sent to it. `first_epoch(topic, partition)` returns the leader epoch of a
        partition without a state, if this broker is the only one of the cluster; it is later than those in its log.
        `later(seconds, fn)` calls a function after a delay, on any thread.
        """
        self._fence = fence
        self._topics = topics
        self._producer_ids = producer_ids
        self._channels = channels
        self._broker_id = broker_id
        self._registered = registered
        self._wait_for_own = wait_for_own
        self._first_epoch = first_epoch
        self._settings = settings
        self._later = later
        self._unclean_by_default = False
        self._is_repeating = False
        self._term = 0  # counts the terms of this broker, so that events of an earlier one do nothing
        self._has_begun = False
        self._events = EventQueue()
        self._cluster = Cluster()
        self._own_failures: dict[TopicPartition, KafkaError] = {}
        self._requests = Requests(channels, self._cluster, self._answered)
        self._partitions = Partitions(
            topics,
            self._cluster,
            self._requests,
            may_be_unclean=settings.may_be_unclean,
            first_epoch=self._first_leader_epoch,
            on_conflict=self._repeat_later,
        )
        self._moves = Moves(topics, self._cluster, self._partitions, self._requests, self._send)
        self._deletions = Deletions(topics, self._cluster, self._requests)

    # --- events

    def _event(self, work: Callable[[], _T]) -> _T:
        """Run `work` on the controller's thread, then send the requests that it has collected. Blocks."""
        return self._events.run(lambda: self._run(work))

    def _post(self, work: Callable[[], object]) -> None:
        """Have `work` run on the controller's thread later, unless the term has ended by then. Errors are logged."""
        term = self._term

        def run() -> None:
            if term != self._term:
                return
            try:
                self._run(work)
            except KafkaError as error:
                log.log(
                    logging.INFO if error.code == Errors.NOT_CONTROLLER else logging.ERROR,
                    "the controller cannot handle an event: %s", error.message,
                )  # fmt: skip

        self._events.post(run)

    def _run(self, work: Callable[[], _T]) -> _T:
        self.check_active()
        if not self._has_begun:  # the first event of a term, which may be a client's
            self._begin()
        try:
            return work()
        except KafkaError as error:
            if isinstance(error.__cause__, TreeUnreachable):
                self._repeat_later()
            raise
        finally:
            self._send()  # also after a failure: brokers have to learn what was written

    def _repeat_later(self) -> None:
        """Look at everything again soon: a change was not completed because the metadata tree could not be reached. If
        the session has expired meanwhile, a new term does the same.
        """
        if not self._is_repeating:
            self._is_repeating = True
            log.warning("the metadata tree cannot be changed at present: unfinished changes will be tried again")
            self._later(_REPEAT_S, lambda: self._post(self._repeat))

    def _repeat(self) -> None:
        self._is_repeating = False
        self._brokers_changed()
        self._partitions.bring_online([(topic, topic.assignment) for topic in self._topics.all()], is_new=False)
        self._resume()

    def _resume(self) -> None:
        self._moves.resume_all()
        self._deletions.resume()

    def _send(self) -> None:
        self._requests.send(self._topics.controller_epoch)

    def _first_leader_epoch(self, topic: str, index: int) -> int:
        return self._first_epoch(topic, index) if self.is_alone else 0

    def check_active(self) -> None:
        if not self._fence.is_held:
            raise KafkaError(Errors.NOT_CONTROLLER, "this broker is not the controller")

    @property
    def is_alone(self) -> bool:
        """True if this broker is the only one that is registered."""
        return len(self._cluster.registered) == 1

    # --- metrics

    @property
    def unclean_elections(self) -> int:
        return self._partitions.unclean_elections

    @property
    def queue_size(self) -> int:
        return len(self._events)

    @property
    def queue_time(self) -> Histogram:
        return self._events.waited

    def counts(self) -> Counts:
        """Count brokers, and partitions without a live or without the preferred leader. Topics that are being deleted
        do not count. Any thread may call this; it does not wait for the controller's thread.
        """
        if not self._fence.is_held:
            return Counts()
        partitions = offline = elsewhere = 0
        for topic in self._topics.all():
            for index, replicas in topic.assignment.items():
                try:
                    state = self._topics.state(topic.name, index)
                except ValueError:  # logged when the controller met it
                    state = None
                leader = NO_LEADER if state is None else state.leader
                partitions += 1
                offline += not self._cluster.is_online(topic.name, index, leader, or_shutting_down=True)
                elsewhere += leader != replicas[0]
        brokers, deleted = len(self._cluster.registered), len(self._topics.marked())
        return Counts(1, brokers, partitions, offline, elsewhere, deleted)

    # --- the term

    def start(self, topics: Iterable[Topic], stopping: Callable[[], bool]) -> bool:
        """Begin the term to which this broker was elected: send all brokers the live brokers, then all roles, and
        continue what the previous controller has left unfinished.

        Returns False, before all is done, if `stopping()` returns True. Other events may run in between.
        """

        self._event(lambda: None)  # begins the term
        for part in _parts(topics):
            if stopping():
                return False
            self._event(partial(self._take_over, part))
            if self.is_alone:
                self._wait_for_own()

        if stopping():
            return False
        self._event(self._resume)
        self._wait_for_own()
        return True

    def _begin(self) -> None:
        """Begin a term: send all brokers the live brokers and all partitions, before any of them gets a role.

        A follower accepts only a leader that it knows to be alive, and a transaction coordinator takes a partition that
        it does not know for deleted.
        """
        self._has_begun = True
        self._own_failures.clear()
        self._cluster.clear()
        self._cluster.replace(self._registered())
        self._unclean_by_default = self._settings.may_be_unclean("")
        self._requests.announce()
        if not self.is_alone:  # alone, `start` fills this broker's metadata bit by bit
            self._partitions.inform(self._all_partitions())
        self._send()

    def _all_partitions(self) -> list[TopicPartition]:
        return [(topic.name, index) for topic in self._topics.all() for index in topic.assignment]

    def _take_over(self, part: Sequence[tuple[Topic, Sequence[int]]]) -> None:
        present = []
        for topic, indexes in part:
            now = self._topics.get(topic.name)
            if now is not None and now.id == topic.id:
                present.append((now, [index for index in indexes if index in now.assignment]))
        self._partitions.bring_online(present, is_new=False)

    def end(self) -> None:
        """End the term: drop what is queued, and what has not been sent. Waits for the event that is being handled."""
        self._events.drop()
        self._events.run(self._forget)

    def _forget(self) -> None:
        self._term += 1
        self._has_begun = False
        self._channels.forget(list(self._cluster.registered))
        self._cluster.clear()
        self._deletions.clear()

    def stop(self) -> None:
        """Stop the controller's thread. Callers that wait for it are released."""
        self._events.stop()
        self._deletions.clear()

    # --- brokers

    def brokers_changed(self) -> None:
        """Compare the registered brokers with those known: elect leaders in place of brokers that are gone, and give
        roles to those that are new.
        """
        self._post(self._brokers_changed)

    def _brokers_changed(self) -> None:
        found = self._registered()
        if self._broker_id not in found:  # the session has expired: `end` will be called soon
            return
        before = self._cluster.registered
        present = {one: before[one] for one in found if one in before and found[one].epoch == before[one].epoch}
        gone = self._cluster.replace(present).gone
        if gone:
            log.info("brokers %s are gone, or have registered again; live are %s", gone, self._cluster.live)
            self._channels.forget(gone)
            self._deletions.broker_gone(gone)
            self._replicas_offline(gone, list(replicas_on(self._topics, gone)))
        changes = self._cluster.replace(found)
        if changes.new:
            log.info("brokers %s have registered; live are %s", changes.new, self._cluster.live)
            self._arrived(changes.new)
        elif changes.updated:
            self._requests.announce()

    def _replicas_offline(self, brokers: Iterable[int], partitions: Sequence[TopicPartition]) -> None:
        """Elect other leaders for these partitions, and remove the brokers, where their replicas are offline, from the
        ISRs.
        """
        self._partitions.elect_offline(partitions)
        for broker_id in brokers:
            self._partitions.take_offline(broker_id, partitions)
        self._requests.announce()  # also if no partition has changed
        self._send()

    def _arrived(self, brokers: Sequence[int]) -> None:
        """Send new brokers the metadata and their roles, and elect leaders from them where there are none.

        All other brokers learn of the new ones first: a follower accepts only a leader that it knows to be alive.
        """
        self._requests.announce([one for one in self._cluster.registered if one not in brokers])
        self._send()
        everything = self._all_partitions()
        self._requests.announce(brokers)
        for topic in self._topics.marked():
            self._requests.forget_topic(topic)
        self._partitions.inform(everything, brokers)
        self._send()
        self._partitions.send_roles(replicas_on(self._topics, brokers), brokers)
        self._partitions.elect_offline(everything)
        stateless = [(topic, missing) for topic in self._topics.all() if (missing := self._topics.without_state(topic))]
        self._partitions.bring_online(stateless, is_new=True)
        self._moves.resume_all(brokers)
        self._deletions.resume()

    def directory_failed(self, broker_id: int) -> None:
        """Send a broker that has lost a log directory all its roles: its errors say which replicas are offline."""
        self._event(lambda: self._partitions.send_roles(replicas_on(self._topics, [broker_id]), [broker_id]))

    def _answered(self, broker_id: int, request: Request, failures: Failures) -> None:
        """Note a broker's response to a request. Called on any thread."""
        if isinstance(request, StopRequest):
            self._post(lambda: self._deletions.answered(broker_id, request, failures))
        elif isinstance(request, RolesRequest):
            if broker_id == self._broker_id and self.is_alone:
                # A stale epoch means that the same role was sent twice.
                stale = Errors.STALE_CONTROLLER_EPOCH
                self._own_failures.update((key, error) for key, error in failures.items() if error.code != stale)
            if not self.is_alone:  # otherwise there is no other leader
                self._post(lambda: self._roles_answered(broker_id, request, failures))

    def _roles_answered(self, broker_id: int, request: RolesRequest, failures: Failures) -> None:
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
            log.warning(
                "broker %d has lost the replicas of %d partitions: a log directory has failed", broker_id, len(new)
            )
            self._replicas_offline([broker_id], [(topic, index) for topic, index, _ in new])

    def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move the leadership of a broker's partitions to other replicas, because it wants to stop. Return the
        partitions that it still leads.

        Raises KafkaError STALE_BROKER_EPOCH, or BROKER_NOT_AVAILABLE for a broker that is not registered.
        """
        return self._event(lambda: self._controlled_shutdown(broker_id, broker_epoch))

    def _controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        known = self._cluster.registered.get(broker_id)
        if known is None:
            raise KafkaError(Errors.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
        if -1 < broker_epoch < known.epoch:
            raise KafkaError(Errors.STALE_BROKER_EPOCH, f"broker {broker_id} has registered again since {broker_epoch}")
        self._cluster.shutting_down.add(broker_id)
        shutting_down = frozenset(self._cluster.shutting_down)
        movable = [
            (topic, index)
            for topic, index in replicas_on(self._topics, [broker_id])
            if len(self._topics.get(topic).assignment[index]) > 1  # type: ignore[union-attr]
        ]
        led = self._partitions.led_by(broker_id, movable)

        def choose(
            topic: Topic, index: int, state: PartitionState, is_online: elections.IsOnline
        ) -> PartitionState | None:
            return elections.elect_for_shutdown(topic.assignment[index], state, is_online, shutting_down)

        self._partitions.elect(led, choose, or_shutting_down=True)
        left = self._partitions.led_by(broker_id, movable)
        followed = set(movable) - set(led)  # the others are not in an ISR any more
        self._partitions.take_offline(broker_id, [one for one in movable if one in followed])
        log.info(
            "broker %d shuts down: partitions moved: %d, still led by it: %d",
            broker_id,
            len(led) - len(left),
            len(left),
        )
        return left

    # --- ISRs and elections

    def alter_partitions(
        self, broker_id: int, broker_epoch: int, asked: Sequence[IsrRequest]
    ) -> dict[TopicPartition, Outcome]:
        """Change ISRs as leaders ask, and return the new state with its version, or an error, for each partition.

        Raises KafkaError STALE_BROKER_EPOCH if the broker is not registered with this epoch.
        """
        return self._event(lambda: self._alter_partitions(broker_id, broker_epoch, asked))

    def _alter_partitions(
        self, broker_id: int, broker_epoch: int, asked: Sequence[IsrRequest]
    ) -> dict[TopicPartition, Outcome]:
        known = self._cluster.registered.get(broker_id)
        if known is None or known.epoch != broker_epoch:
            raise KafkaError(Errors.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered with {broker_epoch}")
        outcomes: dict[TopicPartition, Outcome] = {}
        wanted: dict[TopicPartition, Versioned] = {}
        for one in asked:
            key = one.topic, one.partition
            found = self._topics.get(one.topic)
            is_same = found is not None and one.topic_id in (None, found.id)  # not another topic of that name
            present = self._partitions.state(*key) if is_same else None
            outcome = decide(one, broker_id, present, self._cluster.live)
            if isinstance(outcome, PartitionState):
                assert present is not None
                wanted[key] = Versioned(outcome, present.version)
            else:
                outcomes[key] = outcome
        outcomes.update(self._partitions.write_isrs(wanted))
        self._partitions.inform(outcomes)
        self._send()
        for topic, index in outcomes:
            self._moves.isr_changed(topic, index)
        return outcomes

    def isr_changed(self, partitions: Sequence[TopicPartition]) -> None:
        """Send partition states that brokers have written themselves to all brokers."""
        wait(self._topics.refresh_states, partitions)
        self._event(lambda: self._partitions.inform(partitions))

    def elect(self, kind: int, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, KafkaError | None]:
        """Hold elections of the kind PREFERRED or UNCLEAN; return an error for each partition, None where a new leader
        was elected. `partitions` None means all partitions, of which those that need no election are left out.
        """
        results = self._event(lambda: self._elect(kind, partitions))
        self._wait_for_own()
        return results

    def _elect(self, kind: int, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, KafkaError | None]:
        results: dict[TopicPartition, KafkaError | None] = {}
        due = []
        for key in self._all_partitions() if partitions is None else partitions:
            refusal = self._election_refusal(kind, *key)
            if refusal is None:
                due.append(key)
            elif partitions is not None:
                results[key] = refusal

        def choose(
            topic: Topic, index: int, state: PartitionState, is_online: elections.IsOnline
        ) -> PartitionState | None:
            replicas = topic.assignment[index]
            if kind == PREFERRED:
                return elections.elect_preferred(replicas, state, is_online)
            return elections.elect_offline(replicas, state, is_online, unclean=True)

        code = Errors.PREFERRED_LEADER_NOT_AVAILABLE if kind == PREFERRED else Errors.ELIGIBLE_LEADERS_NOT_AVAILABLE
        for key, state in self._partitions.elect(due, choose).items():
            name, index = key
            refused = KafkaError(code, f"no replica of {name}-{index} can be elected: live are {self._cluster.live}")
            results[key] = None if state is not None else refused
        return results

    def _election_refusal(self, kind: int, name: str, index: int) -> KafkaError | None:
        topic = self._topics.get(name)
        known = None if topic is None or index not in topic.assignment else self._partitions.state(name, index)
        if topic is None or known is None:
            if self._topics.marked_topic(name) is not None:
                return KafkaError(Errors.INVALID_TOPIC_EXCEPTION, f"topic {name} is being deleted")
            return KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
        leader = known.state.leader
        if kind == PREFERRED and leader == topic.assignment[index][0]:
            return KafkaError(Errors.ELECTION_NOT_NEEDED, "the leader is the preferred replica already")
        if kind == UNCLEAN and leader in self._cluster.live:
            return KafkaError(Errors.ELECTION_NOT_NEEDED, f"broker {leader} leads the partition")
        return None

    def rebalance(self) -> None:
        """Give partitions back to their preferred leaders on brokers where too many are led by others."""
        self._post(self._rebalance)

    def _rebalance(self) -> None:
        by_preferred: dict[int, list[TopicPartition]] = {}
        for topic in self._topics.all():
            for index, replicas in topic.assignment.items():
                by_preferred.setdefault(replicas[0], []).append((topic.name, index))
        for broker_id, partitions in by_preferred.items():
            if broker_id not in self._cluster.live:
                continue
            led = set(self._partitions.led_by(broker_id, partitions))
            elsewhere = [one for one in partitions if one not in led]
            if elections.is_imbalanced(len(partitions), len(elsewhere), self._settings.imbalance()):
                movable = [one for one in elsewhere if one[1] not in self._topics.get(one[0]).moves]  # type: ignore[union-attr]
                self._elect(PREFERRED, movable)

    def settings_changed(self, name: str) -> None:
        """Elect leaders for partitions of a topic without one: its settings may allow unclean elections now."""
        topic = self._topics.get(name)
        if topic is not None and self._settings.may_be_unclean(name):
            self._event(lambda: self._partitions.elect_offline([(name, index) for index in topic.assignment]))

    def broker_settings_changed(self) -> None:
        """Elect leaders for all partitions without one, if the settings of this broker allow unclean elections, and did
        not before.
        """
        allowed, self._unclean_by_default = self._unclean_by_default, self._settings.may_be_unclean("")
        if self._unclean_by_default and not allowed:
            self._event(lambda: self._partitions.elect_offline(self._all_partitions()))

    # --- topics

    def create(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication: int = -1,
        by_hand: Assignment | None = None,
        overrides: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        overrides = dict(overrides or {})
        try:
            topic = self._event(
                lambda: self._create(name, partitions, replication, by_hand, overrides, validate_only=validate_only)
            )
        except KafkaError as error:
            if error.code == Errors.TOPIC_ALREADY_EXISTS:
                self._wait_for_own()  # another thread has just created it: the caller finds it in the metadata
            raise
        if validate_only:
            return topic
        failure = self._own_failure(topic, topic.assignment)
        if failure is not None:  # most often a full disk: no topic is better than a topic without logs
            self.delete(name)
            raise failure
        log.info(
            "topic %s created with partitions: %d, settings: %s", name, len(topic.assignment), overrides or "defaults"
        )
        return topic

    def _create(
        self,
        name: str,
        partitions: int,
        replication: int,
        by_hand: Assignment | None,
        overrides: Mapping[str, str],
        *,
        validate_only: bool,
    ) -> Topic:
        self._topics.check_new(name)
        assignment = plan_topic(
            self._racks(),
            partitions,
            replication,
            by_hand,
            default_partitions=self._settings.partitions(),
            default_replication=self._settings.replication(),
        )
        self._settings.check(overrides)
        if validate_only:
            return Topic(name, bytes(16), assignment)
        states = self._first_states(assignment)
        self._forget_failures(name, assignment)
        topic: Topic = wait(self._topics.create, name, assignment, overrides, states=states)
        self._partitions.bring_online([(topic, topic.assignment)], is_new=True)
        return topic

    def _racks(self) -> dict[int, str | None]:
        """Return the brokers that get replicas, with their racks. As in Kafka, these include brokers that are shutting
        down: they come back, and a topic with as many replicas as there are brokers can be created meanwhile.
        """
        return {one.broker.id: one.broker.rack for one in self._cluster.registered.values()}

    def _first_states(self, assignment: Assignment) -> dict[int, PartitionState]:
        """Return the states of new partitions. Those without a live replica are left out."""
        live, epoch = set(self._cluster.live), self._topics.controller_epoch
        states = {index: elections.first_state(replicas, live.__contains__) for index, replicas in assignment.items()}
        return {index: state._replace(controller_epoch=epoch) for index, state in states.items() if state is not None}

    def _forget_failures(self, name: str, indexes: Iterable[int]) -> None:
        for index in indexes:
            self._own_failures.pop((name, index), None)

    def _own_failure(self, topic: Topic, indexes: Iterable[int]) -> KafkaError | None:
        """Wait until the brokers know their roles. If this broker is the only one, return the error of a partition, if
        any.
        """
        self._wait_for_own()
        self._channels.wait_for_others(_OTHERS_S)
        failures = [self._own_failures.pop((topic.name, index), None) for index in indexes]
        return next((one for one in failures if one is not None), None) if self.is_alone else None

    def create_on_demand(
        self, name: str, *, partitions: int = -1, replication: int = -1, overrides: Mapping[str, str] | None = None
    ) -> None:
        self.create(name, partitions=partitions, replication=replication, overrides=overrides)

    def auto_create(self, names: Iterable[str]) -> dict[str, KafkaError]:
        errors = {}
        for name in names:
            try:
                self.create(name)
            except KafkaError as error:
                if error.code == Errors.NOT_CONTROLLER:  # after which clients would not fetch the metadata again
                    error = KafkaError(Errors.LEADER_NOT_AVAILABLE, error.message)
                if error.code != Errors.TOPIC_ALREADY_EXISTS or name not in self._topics:
                    errors[name] = error
        return errors

    def add_partitions(
        self, name: str, count: int, by_hand: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> None:
        added = self._event(lambda: self._add_partitions(name, count, by_hand, validate_only=validate_only))
        if added is None:
            return
        failure = self._own_failure(*added)
        if failure is not None:  # the next start tries again to create the logs
            raise failure
        log.info("topic %s has partitions now: %d", name, count)

    def _add_partitions(
        self, name: str, count: int, by_hand: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> tuple[Topic, list[int]] | None:
        topic = self._topics.get(name)
        if self._topics.marked_topic(name) is not None:
            raise KafkaError(Errors.INVALID_TOPIC_EXCEPTION, f"topic {name} is being deleted")
        if topic is None:
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        if topic.moves:
            raise KafkaError(
                Errors.REASSIGNMENT_IN_PROGRESS, f"partitions {sorted(topic.moves)} of {name} are being reassigned"
            )
        added = plan_more_partitions(name, topic.assignment, self._racks(), count, by_hand)
        self._settings.check_stored(name)
        if validate_only:
            return None
        states = self._first_states(added)
        self._forget_failures(name, added)
        grown: Topic = wait(self._topics.add_partitions, topic, added, states=states)
        self._partitions.bring_online([(grown, added)], is_new=True)
        return grown, list(added)

    def delete(self, name: str) -> None:
        finished = threading.Event()

        def begin() -> None:
            if name not in self._topics:  # nor if it is being deleted already
                raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            self._deletions.begin(name)
            self._send()
            self._deletions.when_done(name, finished.set)

        self._event(begin)
        if not finished.wait(_DELETION_S):
            log.warning("topic %s is being deleted: not all brokers have responded yet", name)
        self._channels.wait_for_others(_OTHERS_S)

    def begin_deletion(self, name: str) -> None:
        """Delete a topic, without waiting until the brokers have done it."""
        self._event(lambda: self._deletions.begin(name))

    def finish_marked(self, name: str) -> None:
        def finish() -> None:
            topic = self._topics.marked_topic(name)
            if topic is not None:
                self._deletions.resume([topic])

        self._post(finish)

    def reassign(self, name: str, index: int, target: Sequence[int] | None) -> None:
        self._event(lambda: self._moves.begin(name, index, target))
        self._wait_for_own()

    def allocate_producer_ids(self, broker_id: int, done: Callable[[range | Exception], object]) -> None:
        self._producer_ids.allocate(broker_id, done)

    def check_registration(self, broker_id: int, broker_epoch: int) -> None:
        """Raise KafkaError BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH unless the broker is registered with this
        broker epoch.
        """
        self.check_active()
        known = self._cluster.registered.get(broker_id)
        if known is None:
            raise KafkaError(Errors.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
        if known.epoch != broker_epoch:
            raise KafkaError(Errors.STALE_BROKER_EPOCH, f"broker {broker_id} has registered with {known.epoch}")

    # --- topics that other programs have written to the tree

    def follow(self, name: str, *, lead: bool = True) -> None:
        """Take over a topic that another program has created or extended in the metadata tree: give it a topic id, and
        leaders to its new partitions.

        With `lead` False, only note the topic. Does nothing for a topic that is complete or marked as deleted. Raises
        ValueError if the nodes are not those of a topic, and KafkaError for an invalid topic.
        """
        added = self._event(lambda: self._follow(name, lead=lead))
        if added:
            log.info("topic %s was created or extended by another program; new partitions: %s", name, added)

    def _follow(self, name: str, *, lead: bool) -> list[int]:
        known = self._topics.get(name)
        if self._topics.marked_topic(name) is not None:
            return []
        if known is None:
            validate_name(name)
        elif self._topics.read(name) == known and known.id != ZERO_ID and not self._topics.without_state(known):
            return []
        if lead:  # at the start each broker checks the settings of its own topics
            self._settings.check_stored(name)
        topic: Topic = wait(self._topics.complete_topic, name)
        if not lead:
            return []
        added = [
            index
            for index in topic.assignment
            if known is None or index not in known.assignment or self._topics.state(name, index) is None
        ]
        self._partitions.bring_online([(topic, added)], is_new=True)
        if known is not None and topic.moves != known.moves:
            self._moves.resume_all()
        return added


def _parts(topics: Iterable[Topic]) -> Iterator[list[tuple[Topic, Sequence[int]]]]:
    """Yield the partitions of the topics, _AT_ONCE at a time."""
    part: list[tuple[Topic, Sequence[int]]] = []
    size = 0
    for topic in topics:
        indexes = list(topic.assignment)
        while indexes:
            taken, indexes = indexes[: _AT_ONCE - size], indexes[_AT_ONCE - size :]
            part.append((topic, taken))
            size += len(taken)
            if size == _AT_ONCE:
                yield part
                part, size = [], 0
    if part:
        yield part
