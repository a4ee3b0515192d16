"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: what members say. Source: KafkaApis, GroupCoordinatorAdapter."""

from __future__ import annotations

from functools import lru_cache
from struct import unpack
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.protocol.apis import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, answered

if TYPE_CHECKING:
    from kafkapy.coordinator.groups.member import Reply
    from kafkapy.server.services import Services

REBALANCE_TIMEOUT_SINCE = 1
ID_REQUIRED_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9
PROTOCOL_SAID_SINCE = 5  # by SyncGroup
BATCHED_SINCE = 3  # LeaveGroup

# Members or protocols of one request: more take milliseconds, in which the network thread would serve nobody else.
MOST_INLINE = 1500


@serves(JOIN_GROUP)
def join_group(broker: Services, call: Call, request: Any) -> Any:
    from kafkapy.coordinator.groups.joining import Join

    # When a group rebalances, all its members ask at once: they are not to hold up others.
    call.connection.patient = True

    def begin(reply: Reply) -> None:
        def in_version(response: Any) -> None:
            if call.version < NULL_PROTOCOL_SINCE and response.protocol_name is None:
                response.protocol_name = ""
            reply(response)

        broker.groups.join(
            request.group_id,
            Join(
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                client_id=call.client_id or "",
                client_host=java_address(call.connection.peer[0]),
                session_ms=request.session_timeout_ms,
                rebalance_ms=(
                    request.session_timeout_ms
                    if call.version < REBALANCE_TIMEOUT_SINCE
                    else request.rebalance_timeout_ms
                ),
                protocol_type=request.protocol_type,
                protocols=tuple((one.name, one.metadata) for one in request.protocols),
                needs_id=call.version >= ID_REQUIRED_SINCE and request.group_instance_id is None,
                may_skip=call.version >= SKIP_ASSIGNMENT_SINCE,
                reason=request.reason,
                reply=in_version,
            ),
        )

    return answered(call, begin, broker.disk_pool if len(request.protocols) > MOST_INLINE else None)


@serves(SYNC_GROUP)
def sync_group(broker: Services, call: Call, request: Any) -> Any:
    from kafkapy.coordinator.groups.syncing import Sync

    if call.version >= PROTOCOL_SAID_SINCE and None in (request.protocol_type, request.protocol_name):
        return SYNC_GROUP.Response(error_code=Errors.INCONSISTENT_GROUP_PROTOCOL, assignment=b"")

    def begin(reply: Reply) -> None:
        broker.groups.sync(
            request.group_id,
            Sync(
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                request.protocol_type,
                request.protocol_name,
                {one.member_id: one.assignment for one in request.assignments},
                reply,
            ),
        )

    return answered(call, begin, broker.disk_pool if len(request.assignments) > MOST_INLINE else None)


@serves(HEARTBEAT)
def heartbeat(broker: Services, call: Call, request: Any) -> Any:
    return answered(
        call,
        lambda reply: broker.groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id, reply
        ),
    )


@serves(LEAVE_GROUP)
def leave_group(broker: Services, call: Call, request: Any) -> Any:
    members = request.members
    if call.version < BATCHED_SINCE:
        members = [LEAVE_GROUP.Request.Members(member_id=request.member_id)]

    def begin(reply: Reply) -> None:
        def in_version(response: Any) -> None:
            if call.version < BATCHED_SINCE:
                if response.members:  # there is one, and its error is the answer's
                    response.error_code = response.members[0].error_code
                response.members = []
            reply(response)

        broker.groups.leave(request.group_id, members, in_version)

    return answered(call, begin, broker.disk_pool if len(members) > MOST_INLINE else None)


@lru_cache(maxsize=1024)
def java_address(host: str) -> str:
    """A peer as Java prints an InetAddress without a name, which is what a group's record has."""
    if ":" not in host:
        return f"/{host}"
    from ipaddress import IPv6Address  # seldom needed, and not worth a start's time

    plain, percent, scope = host.partition("%")
    address = IPv6Address(plain)
    if address.ipv4_mapped is not None:
        return f"/{address.ipv4_mapped}"
    return "/" + ":".join(f"{part:x}" for part in unpack(">8H", address.packed)) + percent + scope
