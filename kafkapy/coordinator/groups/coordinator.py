"""The group coordinator's API for the request handlers. It runs each request on the partition of `__consumer_offsets`
that stores the group, and turns errors into responses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkapy.coordinator.coordinator_log import coordinator_error
from kafkapy.coordinator.groups.deleting import delete
from kafkapy.coordinator.groups.group import DEAD, STABLE, Group
from kafkapy.coordinator.groups.joining import Join, join
from kafkapy.coordinator.groups.leaving import leave
from kafkapy.coordinator.groups.responses import heartbeat_response, join_error, leave_error, sync_error
from kafkapy.coordinator.groups.syncing import Sync, heartbeat, sync
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import DELETE_GROUPS, DESCRIBE_GROUPS, LIST_GROUPS

if TYPE_CHECKING:
    from kafkapy.coordinator.group_machine import GroupMachine
    from kafkapy.coordinator.groups.member import Reply
    from kafkapy.coordinator.shard import Effects, Shard
    from kafkapy.coordinator.shards import Shards

CLASSIC = "classic"  # the type of every group here


class GroupCoordinator:
    """Handles the requests JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and DescribeGroups, ListGroups and
    DeleteGroups.

    All methods except `describe` and `list` return nothing and call the `reply` callback with the response once, either
    at once or later.
    """

    def __init__(self, shards: Shards[GroupMachine]) -> None:
        self._shards = shards

    def join(self, group_id: str, request: Join) -> None:
        try:
            self._member_shard(group_id).run(lambda machine: join(machine.rebalances, group_id, request))
        except KafkaError as error:
            request.reply(join_error(error.code, request.member_id))

    def sync(self, group_id: str, request: Sync) -> None:
        try:
            self._member_shard(group_id).run(lambda machine: sync(machine.rebalances, group_id, request))
        except KafkaError as error:
            # All clients handle REBALANCE_IN_PROGRESS by joining again; old ones do not handle a loading coordinator
            # here.
            loading = error.code == Errors.COORDINATOR_LOAD_IN_PROGRESS
            request.reply(sync_error(Errors.REBALANCE_IN_PROGRESS if loading else error.code))

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int, reply: Reply) -> None:
        try:
            code = self._member_shard(group_id).read(
                lambda machine: heartbeat(machine.rebalances, group_id, member_id, instance_id, generation)
            )
        except KafkaError as error:
            # Sessions do not expire during a load, so the member may carry on.
            code = Errors.NONE if error.code == Errors.COORDINATOR_LOAD_IN_PROGRESS else error.code
        reply(heartbeat_response(code))

    def leave(self, group_id: str, leaving: Sequence[Any], reply: Reply) -> None:
        try:
            self._member_shard(group_id).run(lambda machine: leave(machine.rebalances, group_id, leaving, reply))
        except KafkaError as error:
            reply(leave_error(error.code))

    def _member_shard(self, group_id: str) -> Shard[GroupMachine]:
        """Return the shard (a partition of `__consumer_offsets` with its state machine) that stores the group, for a
        request of a member.

        Raises KafkaError INVALID_GROUP_ID for an empty group id, since a group with an empty id may have offsets but no
        members, and the errors of `Shards.of`.
        """
        if not group_id:
            raise KafkaError(Errors.INVALID_GROUP_ID, "the group id is empty; members need one")
        return self._shards.of(group_id)

    # --- administration

    def describe(self, group_ids: Sequence[str]) -> list[Any]:
        """Return an entry of the DescribeGroups response (DESCRIBE_GROUPS.Response.Groups) for each group id. An error
        becomes the error code of the group's entry."""
        answers = []
        for group_id in group_ids:
            try:
                answers.append(self._shards.of(group_id).read(partial(_describe, group_id)))
            except KafkaError as error:
                answers.append(
                    DESCRIBE_GROUPS.Response.Groups(
                        error_code=error.code, group_id=group_id, group_state="", protocol_type="", protocol_data=""
                    )
                )
        return answers

    def list(self, states: Sequence[str], types: Sequence[str]) -> Any:
        """Return the ListGroups response with this coordinator's groups that are in one of `states` and of one of
        `types`, ignoring case.

        Empty `states` or `types` select all. The response's error code is COORDINATOR_LOAD_IN_PROGRESS while a
        partition of `__consumer_offsets` is being loaded.
        """
        wanted = {state.lower() for state in states}
        code = Errors.COORDINATOR_LOAD_IN_PROGRESS if self._shards.is_loading else Errors.NONE
        groups: list[Any] = []
        if not types or CLASSIC in {type.lower() for type in types}:
            for shard in self._shards.active():
                try:
                    # Only the list is copied under the lock; building the responses there would hold up other requests.
                    found = shard.read(lambda machine: list(machine.groups.values()))
                except KafkaError:  # the shard has ended: another broker may own its groups
                    continue
                groups += [_listed(group) for group in found if not wanted or group.state.lower() in wanted]
        return LIST_GROUPS.Response(error_code=code, groups=groups)

    def delete(self, group_ids: Sequence[str], reply: Reply) -> None:
        """Delete the groups, which must have no members, with all their committed offsets. Call `reply` with a
        DeleteGroups response that has an error code for each group."""
        _DeleteGroups(self._shards, list(dict.fromkeys(group_ids)), reply).begin()


def _describe(group_id: str, machine: GroupMachine) -> Any:
    """Return the entry of a group in the DescribeGroups response. A group that does not exist is described as a dead
    group.

    Members' metadata and assignments are included only for a stable group, as in Kafka.
    """
    group = machine.groups.get(group_id)
    make = DESCRIBE_GROUPS.Response.Groups
    if group is None:
        return make(error_code=Errors.NONE, group_id=group_id, group_state=DEAD, protocol_type="", protocol_data="")
    protocol = group.protocol if group.state == STABLE else None
    members = [
        make.Members(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=b"" if protocol is None else member.metadata(protocol),
            member_assignment=b"" if protocol is None else member.assignment,
        )
        for member in group.members.values()
    ]
    return make(
        error_code=Errors.NONE,
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=members,
    )


def _listed(group: Group) -> Any:
    """Return the entry of a group in the ListGroups response."""
    return LIST_GROUPS.Response.Groups(
        group_id=group.id, protocol_type=group.protocol_type or "", group_state=group.state, group_type=CLASSIC
    )


class _DeleteGroups:
    """A DeleteGroups request in progress. Its groups may be stored in several partitions of `__consumer_offsets`, whose
    deletions finish at different times."""

    def __init__(self, shards: Shards[GroupMachine], group_ids: Sequence[str], reply: Callable[[Any], object]) -> None:
        self._shards = shards
        self._group_ids = group_ids
        self._reply = reply
        self._lock = threading.Lock()
        self._codes: dict[str, int] = {}

    def begin(self) -> None:
        if not self._group_ids:
            self._reply(DELETE_GROUPS.Response(results=[]))
        for group_id in self._group_ids:
            try:
                self._shards.of(group_id).run(partial(self._delete, group_id))
            except KafkaError as error:
                self._done(group_id, error.code)

    def _delete(self, group_id: str, machine: GroupMachine) -> Effects:
        return delete(
            machine,
            group_id,
            lambda error: self._done(group_id, Errors.NONE if error is None else coordinator_error(error)),
        )

    def _done(self, group_id: str, code: int) -> None:
        with self._lock:
            self._codes[group_id] = code
            if len(self._codes) < len(self._group_ids):
                return
        make = DELETE_GROUPS.Response
        self._reply(make(results=[make.Results(group_id=id, error_code=self._codes[id]) for id in self._group_ids]))
