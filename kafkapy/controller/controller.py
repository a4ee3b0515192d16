"""The controller of a cluster: decides which broker leads which partition, and carries out changes of topics.

All decisions are made on one thread, one event at a time. An event writes to the metadata tree first and then sends
requests to the brokers; every write fails if this broker is not the controller any more. A broker without a cluster is
a cluster of one: it makes the same decisions, and sends the requests to itself. Source:
kafka.controller.KafkaController, kafka.server.ZkAdminManager.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from kafkapy.controller.brokers import BrokerChanges
from kafkapy.controller.cluster import Cluster, Registered, replicas_on
from kafkapy.controller.deletions import Deletions
from kafkapy.controller.events import EventQueue
from kafkapy.controller.interface import Controller, not_controller
from kafkapy.controller.isr_changes import IsrRequest, decide
from kafkapy.controller.leaders import LeaderElections
from kafkapy.controller.moves import Moves
from kafkapy.controller.partition import Partition, TopicPartition
from kafkapy.controller.partitions import Partitions
from kafkapy.controller.requests import Channels, Failures, Request, Requests, RolesRequest, StopRequest
from kafkapy.controller.topic_changes import Settings, TopicChanges
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.controller_fence import ControllerFence
from kafkapy.metadata.producer_ids import ProducerIdBlocks
from kafkapy.metadata.roles import NO_LEADER
from kafkapy.metadata.topic_rules import Assignment
from kafkapy.metadata.topics import Topic, TopicRegistry
from kafkapy.metadata.tree import TreeUnreachable, wait
from kafkapy.runtime import collector
from kafkapy.runtime.counters import Histogram

log = logging.getLogger("kafkapy.controller")

_T = TypeVar("_T")
_P = ParamSpec("_P")

# The most partitions that one event at the beginning of a term handles. Each may create a log, and a stop of the broker
# waits for the event.
_AT_ONCE = 500
_REPEAT_S = 1.0
_DELETION_S = 5.0  # how long `delete` waits for the brokers
# A controlled shutdown moves leadership in about _PARTS parts, each of at least _SMALLEST_PART partitions. A part takes
# a fraction of a second, and the broker waits for all parts.
_PARTS, _SMALLEST_PART = 10, 100
_OTHERS_S = 1.0  # how long to wait for other brokers, so that a client finds its new topic on each of them


class Counts(NamedTuple):
    """Counts for the metrics. All are 0 on a broker that is not the controller."""

    active: int = 0
    brokers: int = 0
    partitions: int = 0
    offline_partitions: int = 0
    preferred_replica_imbalance: int = 0
    topics_to_delete: int = 0


def _event(
    method: Callable[Concatenate[ClusterController, _P], _T],
) -> Callable[Concatenate[ClusterController, _P], _T]:
    """Have a method run on the controller's thread as an event. The caller waits for it."""

    @wraps(method)
    def run(self: ClusterController, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._handle(lambda: method(self, *args, **kwargs))

    return run


class ClusterController(Controller):
    """The controller, on the broker that holds that role.

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
        self._settings = settings
        self._later = later
        self._unclean_by_default = False
        self._is_repeating = False
        self._term = 0  # counts the terms of this broker, so that events of an earlier term do nothing
        self._has_begun = False
        self._events = EventQueue()
        self._cluster = cluster = Cluster()
        self._requests = requests = Requests(channels, fence, cluster, self._answered)
        self._partitions = partitions = Partitions(
            topics,
            cluster,
            requests,
            may_be_unclean=settings.may_be_unclean,
            first_epoch=lambda topic, index: first_epoch(topic, index) if cluster.is_alone else 0,
            on_conflict=self._repeat_later,
        )
        self._moves = Moves(topics, cluster, partitions, requests)
        self._deletions = Deletions(topics, cluster, requests)
        self._brokers = BrokerChanges(topics, cluster, partitions, requests, self._moves, self._deletions)
        self._elections = LeaderElections(topics, cluster, partitions)
        self._topic_changes = TopicChanges(topics, cluster, partitions, self._moves, settings)

    # --- events

    def _handle(self, work: Callable[[], _T]) -> _T:
        """Run `work` on the controller's thread as an event. Blocks."""
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
                level = logging.INFO if error.code == Errors.NOT_CONTROLLER else logging.ERROR
                log.log(level, "the controller cannot handle an event: %s", error.message)

        self._events.post(run)

    def _run(self, work: Callable[[], _T]) -> _T:
        """Handle an event, and send the requests that it has collected."""
        self.check_active()
        with collector.paused():  # an event may concern all partitions
            if not self._has_begun:  # the first event of a term, which may be a client's
                self._begin()
            try:
                return work()
            except KafkaError as error:
                if isinstance(error.__cause__, TreeUnreachable):
                    self._repeat_later()
                raise
            finally:
                self._requests.send()  # also after a failure: brokers have to learn what was written

    def _repeat_later(self) -> None:
        """Schedule another look at all brokers, partitions and topics, because a change was not completed: the metadata
        tree could not be reached, or another program has changed a state. If the session expires meanwhile, the new
        term does the same.
        """
        if not self._is_repeating:
            self._is_repeating = True
            log.warning("the metadata tree cannot be changed at present: unfinished changes will be tried again")
            self._later(_REPEAT_S, lambda: self._post(self._repeat))

    def _repeat(self) -> None:
        self._is_repeating = False
        self._brokers_changed()
        self._partitions.bring_online(self._partitions.all(), is_new=False)
        self._resume()

    def _resume(self) -> None:
        self._moves.resume_all()
        self._deletions.resume()

    def check_active(self) -> None:
        if not self._fence.is_held:
            raise not_controller()

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
        self._handle(lambda: None)  # begins the term
        partitions = [(topic.name, index) for topic in topics for index in topic.assignment]
        for at in range(0, len(partitions), _AT_ONCE):
            if stopping():
                return False
            some = partitions[at : at + _AT_ONCE]
            self._handle(partial(self._partitions.bring_online, some, is_new=False))
            if self._cluster.is_alone:
                self._wait_for_own()
        if stopping():
            return False
        self._handle(self._resume)
        self._wait_for_own()
        return True

    def _begin(self) -> None:
        """Begin a term: send all brokers the live brokers and all partitions, before any of them gets a role.

        A follower accepts only a leader that it knows to be alive, and a transaction coordinator treats a partition
        that it does not know as deleted.
        """
        self._has_begun = True
        self._topic_changes.own_failures.clear()
        self._cluster.clear()
        self._cluster.registered = self._registered()
        self._unclean_by_default = self._settings.may_be_unclean("")
        self._requests.announce()
        if not self._cluster.is_alone:  # alone, `start` fills this broker's metadata bit by bit
            self._partitions.inform(self._partitions.all())
        self._requests.send()

    def end(self) -> None:
        """End the term: drop what is queued, and what has not been sent. Waits for the event that is being handled."""
        self._events.drop()
        self._events.run(self._forget)

    def _forget(self) -> None:
        self._term += 1
        self._has_begun = False
        self._is_repeating = False
        self._requests.forget(list(self._cluster.registered))
        self._cluster.clear()
        self._deletions.clear()

    def stop(self) -> None:
        """Stop the controller's thread. Callers that wait for it are released."""
        self._events.stop()
        self._deletions.clear()

    # --- brokers

    def brokers_changed(self) -> None:
        """Compare the registered brokers with those known."""
        self._post(self._brokers_changed)

    def _brokers_changed(self) -> None:
        found = self._registered()
        if self._broker_id in found:  # otherwise the session has expired, and `end` will be called soon
            self._brokers.registered(found)

    @_event
    def directory_failed(self, broker_id: int) -> None:
        """Send a broker that has lost a log directory all its roles: its errors say which replicas are offline."""
        self._partitions.send_roles(replicas_on(self._topics, [broker_id]), [broker_id])

    def _answered(self, broker_id: int, request: Request, failures: Failures) -> None:
        """Note a broker's response to a request. Called on any thread."""
        if request.controller_epoch != self._fence.epoch:
            return  # this broker itself has responded late, to a request of an earlier term
        if isinstance(request, StopRequest):
            self._post(lambda: self._deletions.answered(broker_id, request, failures))
        elif isinstance(request, RolesRequest):
            if not self._cluster.is_alone:  # otherwise there is no other leader
                self._post(lambda: self._brokers.answered(broker_id, request, failures))
            elif broker_id == self._broker_id:
                # A stale epoch means that the same role was sent twice.
                errors = {key: one for key, one in failures.items() if one.code != Errors.STALE_CONTROLLER_EPOCH}
                self._topic_changes.own_failures.update(errors)

    def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        led = self._handle(lambda: self._brokers.begin_shutdown(broker_id, broker_epoch))
        waits, size = True, max(_SMALLEST_PART, len(led) // _PARTS)
        for at in range(0, len(led), size):
            # In parts, so that no partition waits for its next leader until the brokers have changed all other roles.
            self._handle(partial(self._brokers.move_leadership, broker_id, led[at : at + size]))
            if waits and at + size < len(led):
                waits = self._wait_for_brokers()  # at most once for a broker that does not respond
        return self._handle(lambda: self._brokers.end_shutdown(broker_id, led))

    def check_registration(self, broker_id: int, broker_epoch: int) -> None:
        self.check_active()
        known = self._cluster.registered.get(broker_id)
        if known is None:
            raise KafkaError(Errors.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
        if known.epoch != broker_epoch:
            raise KafkaError(Errors.STALE_BROKER_EPOCH, f"broker {broker_id} has registered with {known.epoch}")

    def allocate_producer_ids(self, broker_id: int, done: Callable[[range | Exception], object]) -> None:
        self._producer_ids.allocate(broker_id, done)

    # --- ISRs and leaders

    @_event
    def alter_partitions(
        self, broker_id: int, broker_epoch: int, asked: Sequence[IsrRequest]
    ) -> dict[TopicPartition, Partition | KafkaError]:
        known = self._cluster.registered.get(broker_id)
        if known is None or known.epoch != broker_epoch:
            raise KafkaError(Errors.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered with {broker_epoch}")
        outcomes: dict[TopicPartition, Partition | KafkaError] = {}
        wanted: list[Partition] = []
        for one in asked:
            present = self._partitions.get(one.topic, one.partition)
            try:
                outcome = decide(one, broker_id, present, self._cluster.live)
            except KafkaError as error:
                outcomes[one.topic, one.partition] = error
            else:
                outcomes[outcome.key] = outcome
                wanted += [outcome] if outcome is not present else []
        for each in wanted:
            outcomes[each.key] = KafkaError(Errors.INVALID_UPDATE_VERSION, f"the state of {each} has changed meanwhile")
        outcomes.update((each.key, each) for each in self._partitions.write(wanted))
        self._partitions.inform(outcomes)
        self._requests.send()
        for topic, index in outcomes:
            self._moves.isr_changed(topic, index)
        return outcomes

    @_event
    def isr_changed(self, partitions: Sequence[TopicPartition]) -> None:
        """Send partition states that brokers have written themselves to all brokers, and complete reassignments whose
        target replicas are in sync now.
        """
        wait(self._topics.refresh_states, partitions)
        self._partitions.inform(partitions)
        for topic, index in partitions:
            self._moves.isr_changed(topic, index)

    def elect(self, kind: int, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, KafkaError | None]:
        results = self._handle(lambda: self._elections.elect(kind, partitions))
        self._wait_for_own()
        return results

    def rebalance(self) -> None:
        """Elect the preferred leaders, for brokers with too many of their preferred partitions led by others."""
        self._post(lambda: self._elections.rebalance(self._settings.imbalance()))

    @_event
    def settings_changed(self, name: str) -> None:
        topic = self._topics.get(name)
        if topic is not None and self._settings.may_be_unclean(name):
            self._partitions.elect_offline([(name, index) for index in topic.assignment])

    @_event
    def broker_settings_changed(self) -> None:
        """Elect leaders for all partitions without one, if the settings of this broker allow unclean elections, and did
        not before.
        """
        allowed, self._unclean_by_default = self._unclean_by_default, self._settings.may_be_unclean("")
        if self._unclean_by_default and not allowed:
            self._partitions.elect_offline(self._partitions.all())

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
        changes, settings = self._topic_changes, dict(overrides or {})
        plan = partial(changes.plan, partitions, replication, by_hand)
        try:
            topic = self._handle(lambda: changes.create(name, plan, settings, validate_only=validate_only))
        except KafkaError as error:
            if error.code == Errors.TOPIC_ALREADY_EXISTS:
                self._wait_for_own()  # another thread has just created it: the caller finds it in the metadata
            raise
        if validate_only:
            return topic
        failure = self._own_failure(name, topic.assignment)
        if failure is not None:  # most often a full disk: no topic is better than a topic without logs
            self.delete(name)
            raise failure
        count = len(topic.assignment)
        log.info("topic %s created with partitions: %d, settings: %s", name, count, settings or "defaults")
        return topic

    def _own_failure(self, name: str, indexes: Iterable[int]) -> KafkaError | None:
        """Wait until the brokers know their roles. If this broker is the only one, return the error of a partition, if
        any.
        """
        self._wait_for_brokers()
        failure = self._topic_changes.own_failure(name, indexes)
        return failure if self._cluster.is_alone else None

    def _wait_for_brokers(self) -> bool:
        """Wait until the brokers know what was sent to them. Return False if not all others have responded in time."""
        self._wait_for_own()
        return self._channels.wait_for_others(_OTHERS_S)

    def auto_create(self, names: Iterable[str]) -> dict[str, KafkaError]:
        errors = {}
        for name in names:
            try:
                self.create(name)
            except KafkaError as error:
                if error.code == Errors.NOT_CONTROLLER:  # clients would not fetch the metadata again after it
                    error = KafkaError(Errors.LEADER_NOT_AVAILABLE, error.message)
                if error.code != Errors.TOPIC_ALREADY_EXISTS or name not in self._topics:
                    errors[name] = error
        return errors

    def add_partitions(
        self, name: str, count: int, by_hand: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> None:
        changes = self._topic_changes
        added = self._handle(lambda: changes.add_partitions(name, count, by_hand, validate_only=validate_only))
        if validate_only:
            return
        failure = self._own_failure(name, added)
        if failure is not None:  # the next start tries again to create the logs
            raise failure
        log.info("topic %s has partitions now: %d", name, count)

    def delete(self, name: str) -> None:
        finished = threading.Event()

        def begin() -> None:
            if name not in self._topics:  # or it is being deleted already
                raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            self._deletions.begin(name)
            self._requests.send()
            self._deletions.when_done(name, finished.set)

        self._handle(begin)
        if not finished.wait(_DELETION_S):
            log.warning("topic %s is being deleted: not all brokers have responded yet", name)
        self._channels.wait_for_others(_OTHERS_S)

    @_event
    def begin_deletion(self, name: str) -> None:
        """Delete a topic, without waiting until the brokers have done it."""
        self._deletions.begin(name)

    def finish_marked(self, name: str) -> None:
        def finish() -> None:
            topic = self._topics.marked_topic(name)
            if topic is not None:
                self._deletions.resume([topic])

        self._post(finish)

    def reassign(self, name: str, index: int, target: Sequence[int] | None) -> None:
        self._handle(lambda: self._moves.begin(name, index, target))
        self._wait_for_own()

    @_event
    def follow(self, name: str, *, lead: bool = True) -> None:
        """Take over a topic that another program has created or extended in the metadata tree: give it a topic id, and
        leaders to its new partitions.

        With `lead` False, only note the topic. Does nothing for a topic that is complete or marked as deleted. Raises
        ValueError if the nodes are not those of a topic, and KafkaError for an invalid topic.
        """
        self._topic_changes.follow(name, lead=lead)
