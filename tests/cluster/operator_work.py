"""An operator who creates, extends, reassigns and deletes topics, by requests, while faults happen to the cluster.

The operator repeats a request until there is a response. A request without a response may have been carried out, or may
be carried out later, when a frozen broker continues: its result is recorded as one of the possible ones. When the
cluster is quiet, every topic must be in a possible state.
"""

import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kazoo.exceptions import KazooException

from kafkapy.errors import Errors, name_of
from kafkapy.protocol import apis
from kafkapy.protocol.apis import Api
from tests.harness.cluster import Cluster
from tests.harness.wire import Wire

TIMEOUT_S = 3
PAUSES_S = (0, 0.2, 0.5, 1)
REFUSED = {Errors.INVALID_REPLICATION_FACTOR, Errors.INVALID_REPLICA_ASSIGNMENT, Errors.REASSIGNMENT_IN_PROGRESS}
AGAIN = {Errors.NOT_CONTROLLER, Errors.REQUEST_TIMED_OUT, Errors.UNKNOWN_SERVER_ERROR, Errors.LEADER_NOT_AVAILABLE}
DONE, NOT_DONE, UNKNOWN = "done", "not done", "unknown"
Replicas = tuple[int, ...]
T = TypeVar("T")


class Partition:
    """The possible replicas of a partition: one of `now`, or one of `late` if a late request was carried out. If `now`
    is empty, any replicas are possible."""

    def __init__(self, replicas: Iterable[Replicas] = ()) -> None:
        self.now = set(replicas)
        self.late: set[Replicas] = set()

    def allows(self, replicas: Replicas) -> bool:
        """Return True if the partition may have these replicas in the end."""
        return len(set(replicas)) == len(replicas) > 0 and (not self.now or replicas in self.now | self.late)


class Topic:
    """The possible states of a topic: `exists` and `counts` have the possible values."""

    def __init__(self, partitions: dict[int, Partition]) -> None:
        self.exists = {True}
        self.partitions = partitions
        self.counts = {len(partitions)}


class Operator(threading.Thread):
    """The operator's thread, which works from `start` to `finish`. `others` are the clients' topics, which are only
    reassigned."""

    def __init__(self, cluster: Cluster, number: int, rng: random.Random, others: Iterable[str]) -> None:
        super().__init__(name="operator", daemon=True)
        self._cluster = cluster
        self._number = number
        self._rng = rng
        self._others = list(others)
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._created = 0
        self.topics: dict[str, Topic] = {}
        self.done: dict[str, int] = {}

    def run(self) -> None:
        steps = [self._create] * 2 + [self._extend] + [self._reassign] * 4 + [self._cancel] * 2 + [self._delete]
        try:
            while not self._ended.wait(self._rng.choice(PAUSES_S)):
                step = self._rng.choice(steps)
                step()
                name = step.__name__.strip("_")
                self.done[name] = self.done.get(name, 0) + 1
        except BaseException as failure:
            self._failure = failure

    def end(self) -> None:
        """End the work. Do nothing if it was not begun."""
        self._ended.set()
        if self.is_alive():
            self.join()

    def finish(self) -> None:
        """End the work, and give each partition of the clients' topics three replicas again. Raise the exception of a
        step that failed."""
        self.end()
        if self._failure is not None:
            raise self._failure
        self._ended.clear()
        for name in self._others:
            for partition in self.topics[name].partitions if name in self.topics else ():
                while self._reassign_to(name, partition, self._some(3)) != DONE:
                    time.sleep(0.2)

    # --- steps

    def _create(self) -> None:
        self._created += 1
        name = f"asked-{self._number}-{self._created}"
        count, factor = self._rng.choice((1, 2, 5)), self._rng.choice((1, 2, 3))
        chosen = [self._some(factor) for _ in range(count)] if self._rng.random() < 0.3 else []
        topics = apis.CREATE_TOPICS.Request.Topics
        asked = topics(
            name=name,
            num_partitions=-1 if chosen else count,
            replication_factor=-1 if chosen else factor,
            assignments=[topics.Assignments(partition_index=p, broker_ids=list(ids)) for p, ids in enumerate(chosen)],
        )
        outcome = self._ask(
            apis.CREATE_TOPICS,
            4,
            lambda answer: answer.topics[0].error_code,
            {Errors.NONE, Errors.TOPIC_ALREADY_EXISTS},
            topics=[asked],
        )[0]
        topic = Topic({p: Partition(chosen[p : p + 1]) for p in range(count)})
        topic.exists = _possible(outcome, {False}, True)
        self.topics[name] = topic

    def _extend(self) -> None:
        name = self._own()
        if name is None:
            return
        topic = self.topics[name]
        count = max(topic.counts) + self._rng.choice((1, 2))
        one = apis.CREATE_PARTITIONS.Request.Topics(name=name, count=count, assignments=None)
        outcome = self._ask(
            apis.CREATE_PARTITIONS,
            1,
            lambda answer: answer.results[0].error_code,
            {Errors.NONE, Errors.INVALID_PARTITIONS},
            topics=[one],
            validate_only=False,
        )[0]
        topic.partitions |= {partition: Partition() for partition in range(max(topic.counts), count)}
        topic.counts = _possible(outcome, topic.counts, count)

    def _reassign(self) -> None:
        name, partition = self._any_partition()
        self._reassign_to(name, partition, self._some(self._rng.choice((2, 3) if name in self._others else (1, 2, 3))))

    def _cancel(self) -> None:
        """Begin and cancel a reassignment. The partition then has its earlier replicas, perhaps in another order as in
        Kafka, or the new ones if the reassignment was already complete."""
        name, partition = self._any_partition()
        allowed = self._partition(name, partition)
        before = {order for replicas in allowed.now for order in itertools.permutations(replicas)}
        self._reassign_to(name, partition, self._some(3))
        allowed.now |= before
        self._ask_reassignment(name, partition, None)

    def _delete(self) -> None:
        name = self._own()
        if name is None:
            return
        outcome = self._ask(
            apis.DELETE_TOPICS,
            4,
            lambda answer: answer.responses[0].error_code,
            {Errors.NONE, Errors.UNKNOWN_TOPIC_OR_PARTITION},
            topic_names=[name],
        )[0]
        self.topics[name].exists = _possible(outcome, {True}, False)

    # --- helpers of the steps

    def _some(self, count: int) -> Replicas:
        return tuple(self._rng.sample(sorted(self._cluster.members), count))

    def _own(self) -> str | None:
        """Return one of the operator's topics that exist for certain."""
        own = [name for name, topic in self.topics.items() if topic.exists == {True} and name not in self._others]
        return self._rng.choice(own) if own else None

    def _any_partition(self) -> tuple[str, int]:
        """Return (topic, partition) of a partition that exists for certain, usually of a topic of the clients."""
        own = self._own()
        name = self._rng.choice([*self._others, own] if own else self._others)
        if name not in self.topics:
            self.topics[name] = Topic({key[1]: Partition() for key in self._stored() if key[0] == name})
        return name, self._rng.randrange(min(self.topics[name].counts))

    def _partition(self, name: str, partition: int) -> Partition:
        """Return the possible replicas of a partition: before the first change, those that the controller chose."""
        allowed = self.topics[name].partitions[partition]
        if not allowed.now:
            allowed.now = {self._stored()[name, partition]}
        return allowed

    def _stored(self) -> dict[tuple[str, int], Replicas]:
        """Return the stored assignment of all partitions."""
        while True:
            try:
                nodes = self._nodes()
            except KazooException:  # the connection is lost, or a topic is being deleted
                time.sleep(0.2)
                continue
            return {(name, int(p)): tuple(ids) for name, node in nodes.items() for p, ids in node["partitions"].items()}

    def _nodes(self) -> dict[str, Any]:
        """Return the content of the nodes below /brokers/topics, by topic."""
        tree, topics = self._cluster.tree, "/brokers/topics"
        return {name: json.loads(tree.get(f"{topics}/{name}")[0]) for name in tree.get_children(topics)}

    def _reassign_to(self, name: str, partition: int, replicas: Replicas) -> str:
        allowed = self._partition(name, partition)
        outcome, may_be_late = self._ask_reassignment(name, partition, list(replicas))
        if may_be_late:
            allowed.late.add(replicas)
        if outcome == DONE:
            allowed.now = {replicas}
        return outcome

    def _ask_reassignment(self, name: str, partition: int, replicas: list[int] | None) -> tuple[str, bool]:
        topics = apis.ALTER_PARTITION_REASSIGNMENTS.Request.Topics
        one = topics(name=name, partitions=[topics.Partitions(partition_index=partition, replicas=replicas)])

        def code(answer: Any) -> int:
            return int(answer.error_code or answer.responses[0].partitions[0].error_code)

        good = {Errors.NONE, Errors.NO_REASSIGNMENT_IN_PROGRESS}
        return self._ask(apis.ALTER_PARTITION_REASSIGNMENTS, 0, code, good, topics=[one])

    def _ask(
        self, api: Api, version: int, code_of: Callable[[Any], int], good: set[int], **fields: Any
    ) -> tuple[str, bool]:
        """Repeat a request to the controller until there is a response or the work ends. Return (outcome, True if an
        earlier request had no response and may be carried out late)."""
        may_be_late = False
        while not self._ended.is_set():
            controller = self._controller()
            if controller is not None:
                try:
                    with Wire(self._cluster[controller].address, TIMEOUT_S + 1) as wire:
                        code = code_of(wire.call(api, version, timeout_ms=TIMEOUT_S * 1000, **fields))
                except (OSError, AssertionError):  # AssertionError: the broker closed the connection
                    code = Errors.REQUEST_TIMED_OUT
                if code in good:
                    return DONE, may_be_late
                if code in REFUSED:
                    return UNKNOWN if may_be_late else NOT_DONE, may_be_late
                assert code in AGAIN, f"{api.name} {fields} was answered by broker {controller} with {name_of(code)}"
                may_be_late = may_be_late or code != Errors.NOT_CONTROLLER
            self._ended.wait(0.2)
        return UNKNOWN if may_be_late else NOT_DONE, may_be_late

    def _controller(self) -> int | None:
        """Return the controller's id from Metadata of any running broker, None if none responds with one."""
        numbers = [number for number, member in self._cluster.members.items() if member.running and not member.frozen]
        for number in self._rng.sample(numbers, len(numbers)):
            try:
                with Wire(self._cluster[number].address, 1) as wire:
                    answer = wire.call(apis.METADATA, 9, topics=[], allow_auto_topic_creation=False)
            except (OSError, AssertionError):
                continue
            if answer.controller_id in self._cluster.members:
                return int(answer.controller_id)
        return None

    # --- the end

    def check(self) -> list[str]:
        """Return a sentence for each topic that is not in a possible state. The cluster must be quiet."""
        tree = self._cluster.tree
        problems = check_topics(self.topics, self._nodes())
        if left := tree.get_children("/admin/delete_topics"):
            problems.append(f"topics are still to be deleted: {left}")
        if tree.exists("/admin/reassign_partitions"):
            problems.append(f"/admin/reassign_partitions is there: {tree.get('/admin/reassign_partitions')[0]!r}")
        return problems

    def remove(self) -> None:
        """Delete the operator's topics."""
        for name, topic in self.topics.items():
            if name not in self._others and True in topic.exists:
                self._cluster.delete_topic(name)


def _possible(outcome: str, before: set[T], asked: T) -> set[T]:
    """Return the possible values after a request for the value `asked`; `before` were possible before."""
    return {DONE: {asked}, NOT_DONE: before, UNKNOWN: {*before, asked}}[outcome]


def check_topics(topics: dict[str, Topic], nodes: dict[str, Any]) -> list[str]:
    """Return a sentence for each difference between the topics and their nodes below /brokers/topics."""
    problems = []
    for name, topic in topics.items():
        node = nodes.get(name)
        if (node is not None) not in topic.exists:
            problems.append(f"{name} {'exists' if node else 'does not exist'}, which was not asked for")
        if node is None:
            continue
        if node.get("adding_replicas") or node.get("removing_replicas"):
            problems.append(f"{name} is still being reassigned: {node}")
        found = {int(p): tuple(replicas) for p, replicas in node["partitions"].items()}
        if len(found) not in topic.counts or found.keys() != set(range(len(found))):
            problems.append(f"{name} has the partitions {sorted(found)}, not {topic.counts} of them")
        for partition, replicas in found.items():
            allowed = topic.partitions.get(partition, Partition())
            if not allowed.allows(replicas):
                problems.append(
                    f"{name}-{partition} is on brokers {replicas}, not {sorted(allowed.now | allowed.late)}"
                )
    return problems
