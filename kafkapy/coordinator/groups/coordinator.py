"""The group coordinator as handlers see it: finds a group's shard, runs the step, turns a refusal into an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkapy.coordinator.coordinator_log import coordinator_error
from kafkapy.coordinator.groups.answers import heartbeat_answer, join_refused, leave_refused, sync_refused
from kafkapy.coordinator.groups.deleting import delete
from kafkapy.coordinator.groups.joining import Join, join
from kafkapy.coordinator.groups.leaving import leave
from kafkapy.coordinator.groups.looking import CLASSIC, described, listed
from kafkapy.coordinator.groups.syncing import Sync, heartbeat, sync
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import DELETE_GROUPS, DESCRIBE_GROUPS, LIST_GROUPS

if TYPE_CHECKING:
    from kafkapy.coordinator.group_shard import GroupShard
    from kafkapy.coordinator.groups.member import Reply
    from kafkapy.coordinator.shard import Effects, Shard
    from kafkapy.coordinator.shards import Shards


class GroupCoordinator:
    """Every method but `describe` and `list` takes a `reply` that gets the response message, once: now or later."""

    def __init__(self, shards: Shards[GroupShard]) -> None:
        self._shards = shards

    def join(self, group_id: str, request: Join) -> None:
        try:
            self._member_shard(group_id).run(lambda home: join(home.rebalances, group_id, request))
        except KafkaError as error:
            request.reply(join_refused(error.code, request.member_id))

    def sync(self, group_id: str, request: Sync) -> None:
        try:
            self._member_shard(group_id).run(lambda home: sync(home.rebalances, group_id, request))
        except KafkaError as error:
            # A client of any version knows that it is to join again; that a coordinator loads, old ones do not.
            loading = error.code == Errors.COORDINATOR_LOAD_IN_PROGRESS
            request.reply(sync_refused(Errors.REBALANCE_IN_PROGRESS if loading else error.code))

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int, reply: Reply) -> None:
        try:
            code = self._member_shard(group_id).read(
                lambda home: heartbeat(home.rebalances, group_id, member_id, instance_id, generation)
            )
        except KafkaError as error:
            # While the group is loaded nobody's session is over.
            code = Errors.NONE if error.code == Errors.COORDINATOR_LOAD_IN_PROGRESS else error.code
        reply(heartbeat_answer(code))

    def leave(self, group_id: str, leaving: Sequence[Any], reply: Reply) -> None:
        try:
            self._member_shard(group_id).run(lambda home: leave(home.rebalances, group_id, leaving, reply))
        except KafkaError as error:
            reply(leave_refused(error.code))

    def _member_shard(self, group_id: str) -> Shard[GroupShard]:
        """Only groups with a name have members; without one there may be offsets."""
        if not group_id:
            raise KafkaError(Errors.INVALID_GROUP_ID, "a group needs a name")
        return self._shards.of(group_id)

    # --- for administrators

    def describe(self, group_ids: Sequence[str]) -> list[Any]:
        """A DescribeGroups.Response.Groups for each."""
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
        """Groups in one of the states and of one of the types, in whatever case they are written; none means all."""
        wanted = {state.lower() for state in states}
        code = Errors.COORDINATOR_LOAD_IN_PROGRESS if self._shards.is_loading else Errors.NONE
        groups: list[Any] = []
        if not types or CLASSIC in {type.lower() for type in types}:
            for shard in self._shards.active():
                try:
                    # The messages are made without the lock, which others wait for: each shows one moment or the next.
                    found = shard.read(lambda home: list(home.groups.values()))
                except KafkaError:  # it has ended meanwhile: its groups are no longer ours
                    continue
                groups += [listed(group) for group in found if not wanted or group.state.lower() in wanted]
        return LIST_GROUPS.Response(error_code=code, groups=groups)

    def delete(self, group_ids: Sequence[str], reply: Reply) -> None:
        """Empty groups, with all their offsets."""
        _Deletion(self._shards, list(dict.fromkeys(group_ids)), reply).begin()


def _describe(group_id: str, home: GroupShard) -> Any:
    return described(group_id, home.groups.get(group_id))


class _Deletion:
    """One request's groups, which end on several shards, each in its time."""

    def __init__(self, shards: Shards[GroupShard], group_ids: Sequence[str], reply: Callable[[Any], object]) -> None:
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

    def _delete(self, group_id: str, home: GroupShard) -> Effects:
        return delete(
            home,
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
