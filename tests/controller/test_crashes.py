"""A controller that ends after any single one of its writes: the next one completes what was begun.

The cluster is three brokers that only record what the controller sends them. The metadata tree accepts a number of
writes. After those, the controller's writes fail as they do when another broker has been elected, and its requests are
lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkapy.controller.cluster import Registered
from kafkapy.controller.controller import ClusterController
from kafkapy.controller.isr_changes import IsrRequest
from kafkapy.controller.leaders import PREFERRED, UNCLEAN
from kafkapy.controller.requests import MetadataRequest, RolesRequest, StopRequest
from kafkapy.controller.topic_changes import Settings
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.cache import LiveBroker
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.controller_fence import ControllerFence, Term
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.producer_ids import ProducerIdBlocks
from kafkapy.metadata.roles import NO_LEADER, TOPIC_DELETED, PartitionRole
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.tree import BadVersion, Create, Operation, Set, Tree


class LimitedTree(Tree):
    """A tree that makes `left` changes and refuses all later ones, as if another controller had been elected."""

    def __init__(self, tree: LocalTree) -> None:
        self._tree = tree
        self.left: int | None = None  # None: no limit
        self.made = 0

    @property
    def is_over(self) -> bool:
        return self.left == 0

    def submit(self, operations: Sequence[Operation], done: Callable[..., None]) -> None:
        if self.is_over:
            done(None, BadVersion(paths.CONTROLLER_EPOCH, 0))
            return
        self.made += 1
        if self.left is not None:
            self.left -= 1
        self._tree.submit(operations, done)

    def find(self, path: str) -> Any:
        return self._tree.find(path)

    def children(self, path: str) -> list[str]:
        return self._tree.children(path)

    def watch(self, path: str, callback: Any) -> Callable[[], None]:
        return self._tree.watch(path, callback)

    def watch_all(self, callback: Any) -> Callable[[], None]:
        return self._tree.watch_all(callback)

    def close(self) -> None:
        pass

    def on_tree_thread(self) -> bool:
        return self._tree.on_tree_thread()

    def on_new_session(self, callback: Any) -> None:
        pass


class Replica(NamedTuple):
    """What a broker knows about one of its replicas."""

    topic_id: bytes
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


class Brokers:
    """Three brokers, which do what controllers request and check the requests."""

    def __init__(self) -> None:
        self.epochs = {0: 10, 1: 11, 2: 12}  # the broker epochs of the live brokers
        self.replicas: dict[int, dict[tuple[str, int], Replica]] = {0: {}, 1: {}, 2: {}}
        self.leaders: dict[int, dict[tuple[str, int], PartitionRole]] = {0: {}, 1: {}, 2: {}}
        self.live: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}
        self.controller_epoch = 0

    def registered(self) -> dict[int, Registered]:
        return {one: Registered(LiveBroker(one, {}), epoch) for one, epoch in self.epochs.items()}

    def end(self, broker_id: int) -> None:
        """Stop the broker. It keeps its logs, and loses what it knows about leaders and live brokers."""
        del self.epochs[broker_id]
        self.leaders[broker_id], self.live[broker_id] = {}, set()

    def begin(self, broker_id: int, epoch: int) -> None:
        self.epochs[broker_id] = epoch

    def obey(self, broker_id: int, request: Any) -> None:
        assert request.controller_epoch >= self.controller_epoch
        self.controller_epoch = request.controller_epoch
        if request.broker_epoch != self.epochs.get(broker_id):
            return
        mine = self.replicas[broker_id]
        if isinstance(request, MetadataRequest):
            self.live[broker_id] = {one.id for one in request.brokers}
            for role in request.partitions:
                self.leaders[broker_id][role.topic, role.partition] = role
        elif isinstance(request, RolesRequest):
            for role in request.roles:
                key = role.topic, role.partition
                before = mine.get(key)
                if before is not None and before.topic_id == role.topic_id:
                    assert role.leader_epoch >= before.leader_epoch, "leader epochs only rise"
                assert role.leader in (NO_LEADER, broker_id) or role.leader in self.live[broker_id], (
                    "a follower hears that its leader is alive before it follows it"
                )
                assert broker_id in role.replicas
                mine[key] = Replica(
                    role.topic_id, role.leader, role.leader_epoch, tuple(role.isr), tuple(role.replicas)
                )
        else:
            assert isinstance(request, StopRequest)
            for stop in request.stops:
                key = stop.topic, stop.partition
                if stop.delete and key in mine:
                    assert stop.leader_epoch in (TOPIC_DELETED, -1) or stop.leader_epoch >= mine[key].leader_epoch
                    del mine[key]


class Channel:
    """The requests of one controller to the brokers, which are lost when its writes are used up."""

    def __init__(self, brokers: Brokers, tree: LimitedTree) -> None:
        self._brokers = brokers
        self._tree = tree

    def send(self, broker: LiveBroker, requests: Sequence[Any]) -> None:
        for request, answered in requests:
            if not self._tree.is_over:
                self._brokers.obey(broker.id, request)
                answered({})

    def forget(self, broker_ids: Any) -> None:
        pass

    def wait_for_others(self, timeout_s: float) -> bool:
        return True


class Terms:
    """A cluster and its controllers, one after the other."""

    def __init__(self, store: LocalTree) -> None:
        self.store = store
        self.brokers = Brokers()
        self.unclean = False
        self.slow: set[int] = set()  # brokers that do not come in sync
        self._number = 0
        ClusterRegistry(store)
        store.commit([Create(paths.CONTROLLER_EPOCH, b"0")])
        self._begin()

    def _begin(self) -> None:
        self._number += 1
        self.store.commit([Set(paths.CONTROLLER_EPOCH, str(self._number).encode(), -1)])
        self.tree = LimitedTree(self.store)
        fence = ControllerFence(self.tree)
        fence.set_term(Term(self._number, self._number))
        self.topics = TopicRegistry(self.tree, fence=fence)
        self.controller = ClusterController(
            fence,
            self.topics,
            ProducerIdBlocks(self.tree),
            Channel(self.brokers, self.tree),
            broker_id=0,
            registered=self.brokers.registered,
            wait_for_own=lambda: None,
            first_epoch=lambda topic, index: 0,
            settings=Settings(
                check=lambda settings: None,
                check_stored=lambda topic: None,
                partitions=lambda: 1,
                replication=lambda: 1,
                may_be_unclean=lambda topic: self.unclean,
            ),
            later=lambda seconds, fn: None,
        )
        assert self.controller.start(self.topics.all(), lambda: False)

    def succeed(self) -> None:
        """End the present controller, and begin the term of the next."""
        self.tree.left = 0
        self.controller.stop()
        self._begin()

    def settle(self) -> None:
        """Let the controller handle all submitted events, and let leaders add followers to their ISRs."""
        for _ in range(6):
            self.controller.isr_changed([])  # an event after all others
            for broker_id, epoch in list(self.brokers.epochs.items()):
                asked = []
                for (topic, index), replica in self.brokers.replicas[broker_id].items():
                    known = self.topics.versioned_state(topic, index) if topic in self.topics else None
                    wanted = [one for one in replica.replicas if one in replica.isr or self._follows(one, topic, index)]
                    if replica.leader == broker_id and known is not None and set(wanted) - set(known[0].isr):
                        asked.append(IsrRequest(topic, index, replica.leader_epoch, known[1], wanted))
                if asked:
                    self.controller.alter_partitions(broker_id, epoch, asked)

    def _follows(self, broker_id: int, topic: str, index: int) -> bool:
        return (
            broker_id in self.brokers.epochs
            and broker_id not in self.slow
            and (topic, index) in self.brokers.replicas[broker_id]
        )

    def check(self) -> None:
        """Check that the brokers have exactly the replicas and leaders in the tree, and that nothing is in progress."""
        assert not self.topics.marked()
        again = TopicRegistry(self.store)
        expected: dict[int, dict[tuple[str, int], Replica]] = {one: {} for one in self.brokers.epochs}
        for topic in again.all():
            assert not topic.moves
            assert topic == self.topics.get(topic.name)
            for index, replicas in topic.assignment.items():
                found = again.versioned_state(topic.name, index)
                assert found is not None
                assert found == self.topics.versioned_state(topic.name, index)
                state, version = found
                assert state.leader in self.brokers.epochs
                assert state.leader in state.isr
                assert set(state.isr) <= set(replicas)
                for broker_id in self.brokers.epochs:
                    told = self.brokers.leaders[broker_id][topic.name, index]
                    assert (told.leader, told.leader_epoch) == (state.leader, state.leader_epoch)
                    assert (set(told.isr), told.partition_epoch) == (set(state.isr), version)
                    assert told.replicas == tuple(replicas)
                    if broker_id in replicas:
                        mine = self.brokers.replicas[broker_id][topic.name, index]
                        assert (mine.leader, mine.leader_epoch) == (state.leader, state.leader_epoch)
                        assert (mine.topic_id, mine.replicas) == (topic.id, tuple(replicas))
                        expected[broker_id][topic.name, index] = mine
        assert {one: self.brokers.replicas[one] for one in self.brokers.epochs} == expected
        assert all(self.brokers.live[one] == set(self.brokers.epochs) for one in self.brokers.epochs)


# --- What the controller is doing when it ends


def create(terms: Terms) -> None:
    if "new" not in terms.topics:
        terms.controller.create("new", by_hand={0: [0, 1], 1: [1, 2], 2: [2, 0]}, overrides={"retention.ms": "7"})


def add_partitions(terms: Terms) -> None:
    if len(terms.topics.get("t").assignment) == 2:
        terms.controller.add_partitions("t", 4, [[1, 2], [2, 0]], validate_only=False)


def delete(terms: Terms) -> None:
    if "t" in terms.topics:
        terms.controller.begin_deletion("t")


def lose_a_broker(terms: Terms) -> None:
    if 1 in terms.brokers.epochs:
        terms.brokers.end(1)
    terms.controller.brokers_changed()


def restart_a_broker(terms: Terms) -> None:
    if terms.brokers.epochs[1] == 11:
        terms.brokers.end(1)
        terms.brokers.begin(1, 99)
    terms.controller.brokers_changed()


def shut_a_broker_down(terms: Terms) -> None:
    if 1 in terms.brokers.epochs:
        while terms.controller.controlled_shutdown(1, terms.brokers.epochs[1]):
            pass
        terms.brokers.end(1)
    terms.controller.brokers_changed()


def delete_before_a_broker_is_back(terms: Terms) -> None:
    if 1 in terms.brokers.epochs and "t" in terms.topics:
        lose_a_broker(terms)
    delete(terms)
    terms.settle()
    if 1 not in terms.brokers.epochs:
        assert [topic.name for topic in terms.topics.marked()] == ["t"]
        terms.brokers.begin(1, 99)
    terms.controller.brokers_changed()


def elect_preferred(terms: Terms) -> None:
    terms.controller.elect(PREFERRED, None)


def elect_unclean(terms: Terms) -> None:
    terms.controller.elect(UNCLEAN, None)


def elect_as_the_setting_allows(terms: Terms) -> None:
    terms.unclean = True
    terms.controller.settings_changed("t")


def reassign(terms: Terms) -> None:
    topic = terms.topics.get("t")
    if topic.assignment[0] == [0, 1] and not topic.moves:
        terms.controller.reassign("t", 0, [2, 1])


def replace_all_replicas(terms: Terms) -> None:
    topic = terms.topics.get("alone")
    if topic.assignment[0] == [1] and not topic.moves:
        terms.controller.reassign("alone", 0, [2, 0])


def cancel_a_reassignment(terms: Terms) -> None:
    if terms.topics.get("t").moves:
        terms.controller.reassign("t", 0, None)


def replace_a_reassignment(terms: Terms) -> None:
    if terms.topics.get("t").moves:
        terms.controller.reassign("t", 0, [1, 0])


# --- The states before


def as_made(terms: Terms) -> None:
    terms.controller.create("t", by_hand={0: [0, 1], 1: [1, 0]})
    terms.controller.create("alone", by_hand={0: [1]})


def with_another_leader(terms: Terms) -> None:
    as_made(terms)
    restart_a_broker(terms)
    terms.settle()


def without_a_single_replica(terms: Terms) -> None:
    terms.controller.create("t", by_hand={0: [0, 1], 1: [1, 0], 2: [1, 2]})


def with_a_reassignment(terms: Terms) -> None:
    without_a_single_replica(terms)
    terms.slow = {2}
    terms.controller.reassign("t", 0, [2, 1])


def with_a_lost_leader(terms: Terms) -> None:
    """Make a broker that does not return the only member of the ISR of both partitions of `t`."""
    terms.controller.create("t", by_hand={0: [1, 0], 1: [1, 2]})
    states = {index: terms.topics.versioned_state("t", index) for index in (0, 1)}
    asked = [IsrRequest("t", index, state.leader_epoch, version, [1]) for index, (state, version) in states.items()]
    terms.controller.alter_partitions(1, terms.brokers.epochs[1], asked)
    lose_a_broker(terms)
    terms.controller.isr_changed([])


class Case(NamedTuple):
    before: Callable[[Terms], None]
    act: Callable[[Terms], None]
    after: dict[tuple[str, int], tuple[list[int], int]]  # replicas and leader
    gone: tuple[str, ...] = ()


MADE: dict[tuple[str, int], tuple[list[int], int]] = {
    ("t", 0): ([0, 1], 0), ("t", 1): ([1, 0], 1), ("alone", 0): ([1], 1),
}  # fmt: skip
CASES = {
    "creation": Case(as_made, create, {**MADE, ("new", 0): ([0, 1], 0), ("new", 2): ([2, 0], 2)}),
    "more partitions": Case(as_made, add_partitions, {**MADE, ("t", 2): ([1, 2], 1), ("t", 3): ([2, 0], 2)}),
    "deletion": Case(as_made, delete, {("alone", 0): ([1], 1)}, ("t",)),
    "restart of a leader": Case(as_made, restart_a_broker, {("t", 0): ([0, 1], 0)}),
    "loss of a leader": Case(
        without_a_single_replica, lose_a_broker, {("t", 0): ([0, 1], 0), ("t", 1): ([1, 0], 0), ("t", 2): ([1, 2], 2)}
    ),
    "controlled shutdown": Case(
        without_a_single_replica,
        shut_a_broker_down,
        {("t", 0): ([0, 1], 0), ("t", 1): ([1, 0], 0), ("t", 2): ([1, 2], 2)},
    ),
    "deletion while a broker is away": Case(as_made, delete_before_a_broker_is_back, {("alone", 0): ([1], 1)}, ("t",)),
    "preferred election": Case(with_another_leader, elect_preferred, MADE),
    "unclean election": Case(with_a_lost_leader, elect_unclean, {("t", 0): ([1, 0], 0), ("t", 1): ([1, 2], 2)}),
    "unclean election by setting": Case(
        with_a_lost_leader, elect_as_the_setting_allows, {("t", 0): ([1, 0], 0), ("t", 1): ([1, 2], 2)}
    ),
    "reassignment": Case(as_made, reassign, {**MADE, ("t", 0): ([2, 1], 2)}),
    "reassignment to other brokers": Case(as_made, replace_all_replicas, {**MADE, ("alone", 0): ([2, 0], 2)}),
    "cancelled reassignment": Case(with_a_reassignment, cancel_a_reassignment, {("t", 0): ([1, 0], 0)}),
    "replaced reassignment": Case(with_a_reassignment, replace_a_reassignment, {("t", 0): ([1, 0], 0)}),
}


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Callable[[], Terms]]:
    made: list[Terms] = []

    def make() -> Terms:
        terms = Terms(LocalTree(tmp_path / f"{len(made)}{FILE_NAME}"))
        made.append(terms)
        return terms

    yield make
    for terms in made:
        terms.controller.stop()
        terms.store.close()


def act(terms: Terms, case: Case) -> None:
    """Do the case's action, and settle the cluster. A controller that ends may refuse the action."""
    try:
        case.act(terms)
        terms.settle()
    except KafkaError as error:
        # STALE_BROKER_EPOCH: the controller ended before it knew the brokers
        if not terms.tree.is_over or error.code not in (Errors.NOT_CONTROLLER, Errors.STALE_BROKER_EPOCH):
            raise


def check(terms: Terms, case: Case) -> None:
    terms.check()
    for name in case.gone:
        assert name not in terms.topics
        assert not terms.store.exists(f"{paths.TOPICS}/{name}")
        assert not terms.store.exists(f"{paths.CONFIG}/topics/{name}")
    for (name, index), (replicas, leader) in case.after.items():
        topic, state = terms.topics.get(name), terms.topics.state(name, index)
        assert topic is not None
        assert state is not None
        assert (topic.assignment[index], state.leader) == (replicas, leader)


@pytest.mark.parametrize("name", CASES)
def test_the_next_controller_completes_what_the_last_one_began(name: str, new_cluster: Callable[[], Terms]) -> None:
    """A first run without a failure counts the writes. Then the controller ends after each number of them."""
    case = CASES[name]
    terms = new_cluster()
    case.before(terms)
    terms.settle()
    before = terms.tree.made
    act(terms, case)
    check(terms, case)
    writes = terms.tree.made - before
    assert writes > 0
    for number in range(writes + 1):
        terms = new_cluster()
        case.before(terms)
        terms.settle()
        terms.tree.left = number
        act(terms, case)
        terms.succeed()
        act(terms, case)  # a client repeats a request that failed
        check(terms, case)
        terms.succeed()  # the next controller finds nothing left to do
        terms.settle()
        check(terms, case)
