"""Converts the requests that a broker receives from a controller, so that two controllers can be compared.

A controller may put several changes into one request or into several, may repeat a change that the broker has already
received, and may leave out a change that another one soon replaces. None of this changes the final state of the
brokers. So each request is split into changes of single partitions (`new_changes`): their roles (LeaderAndIsr), their
leaders (UpdateMetadata) and stops (StopReplica). A change that repeats the last one of its kind is left out. Two lists
are equivalent (`compare`) if the last changes of each kind are the same and in the same order, and kafkapy's list has
no earlier changes that are not in Kafka's.

Leader epochs are relative to the partition's current one, since a broker only compares whether a request is outdated.
By how much they rise is compared in the tree.

A broker that has just started has received nothing, nor has any broker when a new controller is elected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafkapy.metadata.cache import LEADER_DURING_DELETE
from kafkapy.metadata.roles import TOPIC_DELETED
from kafkapy.protocol.apis import LEADER_AND_ISR, UPDATE_METADATA, Api
from tests.cluster.story_names import Names

BROKERS = "live brokers"
Change = tuple[str, Any]  # kind, content


class Received:
    """The last changes that a broker has received, by kind and partition."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, str], Any] = {}
        self.epochs: dict[tuple[str, str], int] = {}  # of the last role, by partition and topic id
        self.generations: dict[str, str] = {}  # the topic id in the last role, by partition


def new_changes(
    requests: list[tuple[Api, Any]], received: Received, names: Names, epochs: Mapping[str, int]
) -> dict[str, list[Change]]:
    """Return the changes in the requests that the broker had not received yet, by partition and in order. Changes of
    the live brokers have the key BROKERS. `epochs` are the current leader epochs, by "topic-partition".
    """
    new: dict[str, list[Change]] = {}

    def add(kind: str, about: str, what: Any) -> None:
        if received.last.get((kind, about)) != what:
            received.last[kind, about] = what
            if kind != "leader":  # a role after a stop is new, and so is a stop after a role
                received.last.pop(("stop" if kind == "role" else "role", about), None)
            if "leader_epoch" in what:
                what = {**what, "leader_epoch": what["leader_epoch"] - epochs.get(about, 0)}
            new.setdefault(about, []).append((kind, what))

    for api, request in requests:
        if api is UPDATE_METADATA:
            brokers = {
                one.id: ([names.port(each.port) for each in one.endpoints], one.rack) for one in request.live_brokers
            }
            add("brokers", BROKERS, dict(sorted(brokers.items())))
        for topic in request.topic_states:
            for one in topic.partition_states:
                about = f"{topic.topic_name}-{one.partition_index}"
                if api is LEADER_AND_ISR:
                    leaders = {each.broker_id for each in request.live_leaders}
                    what = _fields(one, "leader", "leader_epoch", "isr", "replicas", "is_new")
                    what |= _fields(one, "adding_replicas", "removing_replicas", "leader_recovery_state")
                    generation = what["id"] = names.topic_id(topic.topic_id, topic.topic_name)
                    what["address of leader"] = one.leader in leaders
                    if one.leader_epoch > received.epochs.get((about, generation), -1):  # brokers ignore older epochs
                        add("role", about, what)
                    received.epochs[about, generation] = one.leader_epoch
                    received.generations[about] = generation
                elif api is UPDATE_METADATA and one.leader == LEADER_DURING_DELETE:
                    add("leader", about, "forget it")
                elif api is UPDATE_METADATA:
                    what = _fields(one, "leader", "leader_epoch", "isr", "replicas", "offline_replicas")
                    what["id"] = names.topic_id(topic.topic_id, topic.topic_name)
                    add("leader", about, what)
                else:
                    add("stop", about, (_stop(one.leader_epoch, received, about), one.delete_partition))
    return new


def _stop(leader_epoch: int, received: Received, about: str) -> str:
    """Return how a broker understands the leader epoch of a StopReplica request."""
    if leader_epoch == TOPIC_DELETED:
        return "the topic is deleted"
    last = received.epochs.get((about, received.generations.get(about, "")), -1)
    return "too old" if -1 < leader_epoch < last else "of now"


def compare(kafka: dict[str, list[Change]], ours: dict[str, list[Change]]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences between the changes from two controllers to a broker: (where, Kafka's, kafkapy's)."""
    for about in sorted({*kafka, *ours}):
        theirs, mine = kafka.get(about, []), ours.get(about, [])
        is_same = True
        for kind in sorted({kind for kind, _ in (*theirs, *mine)}):
            whole, some = _of(kind, theirs), _of(kind, mine)
            if whole[-1:] != some[-1:] or not _is_part(some, whole):
                is_same = False
                yield f"{about}: {kind}", whole, some
        if is_same and _order(theirs) != _order(mine):
            yield f"{about}: order", theirs, mine


def _of(kind: str, changes: Sequence[Change]) -> list[Any]:
    return [what for one, what in changes if one == kind]


def _is_part(some: Sequence[Any], whole: Sequence[Any]) -> bool:
    rest = iter(whole)
    return all(one in rest for one in some)


def _order(changes: Sequence[Change]) -> list[list[str]]:
    """Return two lists of kinds in the order of their last changes: roles and leaders, roles and stops. The order of
    stops and leaders does not matter, since these do not depend on each other.
    """
    kinds = list(dict.fromkeys(kind for kind, _ in reversed(changes)))
    return [[kind for kind in kinds if kind in pair] for pair in (("role", "leader"), ("role", "stop"))]


def _fields(one: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}
