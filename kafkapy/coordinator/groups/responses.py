"""Builds the responses to JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and sends large numbers of responses in
slices."""

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

# A response takes about 3 µs. This many are sent at a time, with a pause for other steps of the shard.
_SLICE = 64
_PAUSE_S = 0.0005


class ResponseQueue:
    """Sends responses in slices of 64: the first slice at once, each further slice after a short pause, so that other
    requests are not held up. Callers hold the lock of the shard (the partition of `__consumer_offsets`)."""

    def __init__(self) -> None:
        self._queue: deque[Iterator[tuple[Reply, Any]]] = deque()

    def send(self, shard: Shard[Any], responses: Iterable[tuple[Reply, Any]]) -> None:
        """Queue (reply, response) pairs, and begin to send if the queue was empty: each `reply` is called with its
        response. With a lazy iterable, each response is built only when it is sent."""
        self._queue.append(iter(responses))
        if len(self._queue) == 1:
            self._send_slices(shard)

    def send_all(self) -> None:
        """Send all queued responses now, without pauses."""
        while self._queue:
            for reply, message in self._queue.popleft():
                reply(message)

    def _send_slices(self, shard: Shard[Any]) -> None:
        self._send(_SLICE)
        if self._queue:
            shard.after(_PAUSE_S, lambda _: self._send_slices(shard))

    def _send(self, count: int) -> None:
        while self._queue and count > 0:
            sent = 0
            for reply, message in islice(self._queue[0], count):
                reply(message)
                sent += 1
            count -= sent
            if count > 0:
                self._queue.popleft()


def join_error(code: int, member_id: str = NO_MEMBER) -> Any:
    return JOIN_GROUP.Response(
        error_code=code, generation_id=NO_GENERATION, protocol_name=None, leader=NO_MEMBER, member_id=member_id
    )


def join_response_maker(group: Group) -> Callable[..., Any]:
    """Return a function that builds successful JoinGroup responses for the group's current generation. The caller of
    that function must pass `member_id`, and `members` for the leader.

    The group's values are stored in the function, so responses that it builds after the next rebalance has begun still
    describe this generation.
    """
    return partial(
        JOIN_GROUP.Response,
        error_code=Errors.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader,
    )


def members_for_leader(group: Group) -> list[Any]:
    """Return the members of the group with their metadata, for the leader's JoinGroup response. The leader computes the
    assignment from them."""
    assert group.protocol is not None
    return [
        JOIN_GROUP.Response.Members(
            member_id=member.id, group_instance_id=member.instance_id, metadata=member.metadata(group.protocol)
        )
        for member in group.members.values()
    ]


def join_response(group: Group, member_id: str) -> Any:
    """Return the successful JoinGroup response for a member of the group's current generation. The leader's response
    contains all members."""
    members = members_for_leader(group) if member_id == group.leader else []
    return join_response_maker(group)(member_id=member_id, members=members)


def sync_response_maker(group: Group) -> Callable[..., Any]:
    """Return a function that builds successful SyncGroup responses for the group's current generation. The caller of
    that function must pass `assignment`."""
    return partial(
        SYNC_GROUP.Response,
        error_code=Errors.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
    )


def sync_error(code: int) -> Any:
    return SYNC_GROUP.Response(error_code=code, assignment=b"")


def heartbeat_response(code: int) -> Any:
    return HEARTBEAT.Response(error_code=code)


def leave_error(code: int) -> Any:
    return LEAVE_GROUP.Response(error_code=code, members=[])
