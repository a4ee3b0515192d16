"""What a controller's requests tell a broker, in a form in which two controllers can be compared.

A controller may say several things in one request or in several, may repeat what a broker knows already, and may leave
out what it replaces at once. None of this changes what the brokers do in the end. So each request is taken apart into
what it says of single partitions (`told`): their roles (LeaderAndIsr), their leaders (UpdateMetadata) and stops
(StopReplica). What only repeats the last saying of that kind is left out. Two lists are the same story (`compare`) if
the last sayings of each kind are the same and in the same order, and ours has no other ones than Kafka's before them.

Leader epochs are counted from the present one of the partition: what matters in a request is whether it is of now. How
far they rise is compared in the tree.

A broker that has just started, and every broker when a controller's term begins, knows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafkapy.metadata.cache import LEADER_DURING_DELETE
from kafkapy.metadata.roles import TOPIC_DELETED
from kafkapy.protocol.apis import LEADER_AND_ISR, UPDATE_METADATA, Api
from tests.cluster.story_names import Names

BROKERS = "live brokers"
Saying = tuple[str, Any]  # what kind, and what


class Known:
    """What a broker was told last, by the kind of saying and by partition."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, str], Any] = {}
        self.epochs: dict[tuple[str, str], int] = {}  # of the last role, also by topic id
        self.generations: dict[str, str] = {}  # of the topic id in the last role


def told(
    requests: list[tuple[Api, Any]], known: Known, names: Names, epochs: Mapping[str, int]
) -> dict[str, list[Saying]]:
    """Return what the requests say that is new, in order, for each partition, and of the live brokers. `epochs` are the
    present leader epochs, by "topic-partition".
    """
    new: dict[str, list[Saying]] = {}

    def say(kind: str, about: str, what: Any) -> None:
        if known.last.get((kind, about)) != what:
            known.last[kind, about] = what
            if kind != "leader":  # a broker that has stopped a replica may begin again, and the other way round
                known.last.pop(("stop" if kind == "role" else "role", about), None)
            if "leader_epoch" in what:
                what = {**what, "leader_epoch": what["leader_epoch"] - epochs.get(about, 0)}
            new.setdefault(about, []).append((kind, what))

    for api, request in requests:
        if api is UPDATE_METADATA:
            brokers = {
                one.id: ([names.port(each.port) for each in one.endpoints], one.rack) for one in request.live_brokers
            }
            say("brokers", BROKERS, dict(sorted(brokers.items())))
        for topic in request.topic_states:
            for one in topic.partition_states:
                about = f"{topic.topic_name}-{one.partition_index}"
                if api is LEADER_AND_ISR:
                    leaders = {each.broker_id for each in request.live_leaders}
                    what = _fields(one, "leader", "leader_epoch", "isr", "replicas", "is_new")
                    what |= _fields(one, "adding_replicas", "removing_replicas", "leader_recovery_state")
                    generation = what["id"] = names.topic_id(topic.topic_id, topic.topic_name)
                    what["address of leader"] = one.leader in leaders
                    if one.leader_epoch > known.epochs.get((about, generation), -1):  # otherwise a broker ignores it
                        say("role", about, what)
                    known.epochs[about, generation] = one.leader_epoch
                    known.generations[about] = generation
                elif api is UPDATE_METADATA and one.leader == LEADER_DURING_DELETE:
                    say("leader", about, "forget it")
                elif api is UPDATE_METADATA:
                    what = _fields(one, "leader", "leader_epoch", "isr", "replicas")
                    what |= _fields(one, "offline_replicas")
                    what["id"] = names.topic_id(topic.topic_id, topic.topic_name)
                    say("leader", about, what)
                else:
                    say("stop", about, (_stop(one.leader_epoch, known, about), one.delete_partition))
    return new


def _stop(leader_epoch: int, known: Known, about: str) -> str:
    """Return what a broker makes of the leader epoch in a StopReplica request."""
    if leader_epoch == TOPIC_DELETED:
        return "the topic is deleted"
    last = known.epochs.get((about, known.generations.get(about, "")), -1)
    return "too old" if -1 < leader_epoch < last else "of now"


def compare(kafka: dict[str, list[Saying]], ours: dict[str, list[Saying]]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences between what two controllers have told a broker: where, Kafka's and ours."""
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


def _of(kind: str, sayings: Sequence[Saying]) -> list[Any]:
    return [what for one, what in sayings if one == kind]


def _is_part(some: Sequence[Any], whole: Sequence[Any]) -> bool:
    rest = iter(whole)
    return all(one in rest for one in some)


def _order(sayings: Sequence[Saying]) -> list[list[str]]:
    """Return the kinds in the order of their last sayings: roles among leaders, and roles among stops. A stop and what
    all brokers learn of the leader do not depend on each other.
    """
    kinds = list(dict.fromkeys(kind for kind, _ in reversed(sayings)))
    return [[kind for kind in kinds if kind in pair] for pair in (("role", "leader"), ("role", "stop"))]


def _fields(one: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}
