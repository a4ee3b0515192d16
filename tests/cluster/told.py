"""What a controller's requests tell a broker, in a form in which two controllers can be compared.

A controller may say several things in one request or in several, may repeat what a broker knows already, and may leave
out what it replaces at once. None of this changes what the brokers do in the end. So each request is taken apart into
what it says of single partitions (`told`): their roles (LeaderAndIsr), their leaders (UpdateMetadata) and stops
(StopReplica). What only repeats the last saying of that kind is left out. Two lists are the same story (`compare`) if
the last sayings of each kind are the same and in the same order, and ours has no other ones than Kafka's before them.

A broker that has just started, and every broker when a controller's term begins, knows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kafkapy.metadata.cache import LEADER_DURING_DELETE
from kafkapy.protocol.apis import LEADER_AND_ISR, UPDATE_METADATA, Api

if TYPE_CHECKING:
    from tests.cluster.story_stage import Stage

BROKERS = "live brokers"
Saying = tuple[str, Any]  # what kind, and what


class Known:
    """What a broker was told last, by the kind of saying and by partition."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, str], Any] = {}


def told(requests: list[tuple[Api, Any]], known: Known, stage: Stage) -> dict[str, list[Saying]]:
    """Return what the requests say that is new, in order, for each partition, and of the live brokers."""
    new: dict[str, list[Saying]] = {}

    def say(kind: str, about: str, what: Any) -> None:
        if known.last.get((kind, about)) != what:
            known.last[kind, about] = what
            new.setdefault(about, []).append((kind, what))

    for api, request in requests:
        if api is UPDATE_METADATA:
            brokers = {
                one.id: ([stage.port_name(each.port) for each in one.endpoints], one.rack)
                for one in request.live_brokers
            }
            say("brokers", BROKERS, dict(sorted(brokers.items())))
        for topic in request.topic_states:
            for one in topic.partition_states:
                about = f"{topic.topic_name}-{one.partition_index}"
                if api is LEADER_AND_ISR:
                    leaders = {each.broker_id for each in request.live_leaders}
                    what = _fields(one, "controller_epoch", "leader", "leader_epoch", "isr", "replicas", "is_new")
                    what |= _fields(one, "adding_replicas", "removing_replicas", "leader_recovery_state")
                    what["id"] = stage.id_name(topic.topic_id, topic.topic_name)
                    what["address of leader"] = one.leader in leaders
                    say("role", about, what)
                elif api is UPDATE_METADATA and one.leader == LEADER_DURING_DELETE:
                    say("leader", about, "forget it")
                elif api is UPDATE_METADATA:
                    what = _fields(one, "controller_epoch", "leader", "leader_epoch", "isr", "replicas")
                    what |= _fields(one, "offline_replicas")
                    what["id"] = stage.id_name(topic.topic_id, topic.topic_name)
                    say("leader", about, what)
                else:
                    say("stop", about, _fields(one, "leader_epoch", "delete_partition"))
    return new


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


def _order(sayings: Sequence[Saying]) -> list[str]:
    """Return the kinds in the order of their last sayings."""
    return list(dict.fromkeys(kind for kind, _ in reversed(sayings)))


def _fields(one: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}
