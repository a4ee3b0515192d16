"""The responses to members, and how many of them are given without holding up everybody else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from kafkapy.coordinator.groups.group import NO_GENERATION, Group
from kafkapy.coordinator.groups.member import Reply
from kafkapy.errors import Errors
from kafkapy.protocol.apis import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP

if TYPE_CHECKING:
    from kafkapy.coordinator.shard import Shard

NO_MEMBER = ""

# A member's answer takes some 3 µs here; this many are given at a time, with a pause in which others get their turn.
_SLICE = 64
_PAUSE_S = 0.0005


class Answers:
    """Gives answers in slices: the first ones at once, the rest by and by. Used under the shard's lock."""

    def __init__(self) -> None:
        self._owed: deque[Iterator[tuple[Reply, Any]]] = deque()

    def give(self, shard: Shard[Any], answers: Iterable[tuple[Reply, Any]]) -> None:
        """(reply, message): the messages are made when it is their turn."""
        self._owed.append(iter(answers))
        if len(self._owed) == 1:
            self._go_on(shard)

    def give_all(self) -> None:
        """What is still owed, now."""
        while self._owed:
            for reply, message in self._owed.popleft():
                reply(message)

    def _go_on(self, shard: Shard[Any]) -> None:
        self._give(_SLICE)
        if self._owed:
            shard.after(_PAUSE_S, lambda _: self._go_on(shard))

    def _give(self, count: int) -> None:
        while self._owed and count > 0:
            given = 0
            for reply, message in islice(self._owed[0], count):
                reply(message)
                given += 1
            count -= given
            if count > 0:
                self._owed.popleft()


def join_refused(code: int, member_id: str = NO_MEMBER) -> Any:
    return JOIN_GROUP.Response(
        error_code=code, generation_id=NO_GENERATION, protocol_name=None, leader=NO_MEMBER, member_id=member_id
    )


def generation_of(group: Group) -> Callable[..., Any]:
    """Makes responses about the present generation, also later, when it is over: add `member_id`."""
    return partial(
        JOIN_GROUP.Response,
        error_code=Errors.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader,
    )


def members_of(group: Group) -> list[Any]:
    """For the leader, who makes the assignment out of them."""
    assert group.protocol is not None
    return [
        JOIN_GROUP.Response.Members(
            member_id=one.id, group_instance_id=one.instance_id, metadata=one.metadata(group.protocol)
        )
        for one in group.members.values()
    ]


def joined(group: Group, member_id: str) -> Any:
    """To a member that needs not wait: the generation is there."""
    members = members_of(group) if member_id == group.leader else []
    return generation_of(group)(member_id=member_id, members=members)


def assignment_of(group: Group) -> Callable[..., Any]:
    """Makes responses with an assignment of the present generation: add `assignment`."""
    return partial(
        SYNC_GROUP.Response,
        error_code=Errors.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
    )


def sync_refused(code: int) -> Any:
    return SYNC_GROUP.Response(error_code=code, assignment=b"")


def heartbeat_answer(code: int) -> Any:
    return HEARTBEAT.Response(error_code=code)


def leave_refused(code: int) -> Any:
    return LEAVE_GROUP.Response(error_code=code, members=[])
