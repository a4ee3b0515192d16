"""The classic rebalance protocol: JoinGroup (versions 0 to 9), SyncGroup (versions 0 to 5), Heartbeat (versions 0 to 4)
and LeaveGroup (versions 0 to 5).

Source: KafkaApis, GroupCoordinatorAdapter.

Differences from Kafka: static members are served whatever inter.broker.protocol.version is. Kafka refuses them with
UNSUPPORTED_VERSION below 2.3.
"""

from __future__ import annotations

from functools import lru_cache
from struct import unpack
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.protocol.apis import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, answered
from kafkapy.server.checks import GROUP_DENIED, Check, Right

if TYPE_CHECKING:
    from kafkapy.coordinator.groups.member import Reply
    from kafkapy.server.services import Services

REBALANCE_TIMEOUT_SINCE = 1
ID_REQUIRED_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9
PROTOCOL_SAID_SINCE = 5  # SyncGroup requests name the protocol
BATCHED_SINCE = 3  # LeaveGroup requests hold several members

# A request with more members or protocols takes milliseconds, too long for a network thread; it runs on the disk pool.
MOST_INLINE = 1500


_READS_GROUP = [Check(Right("READ", "GROUP"), GROUP_DENIED, lambda request: (request.group_id,))]


@serves(JOIN_GROUP, checks=_READS_GROUP)
def join_group(broker: Services, call: Call, request: Any) -> Any:
    """Handle JoinGroup: add a member to a group, or let a member rejoin. The response may wait until all members have
    joined."""
    from kafkapy.coordinator.groups.joining import Join
    from kafkapy.coordinator.groups.responses import join_error

    # In a rebalance all members of a group send JoinGroup at once. `patient` lets other connections be served first.
    call.connection.patient = True

    def begin(reply: Reply) -> None:
        def in_version(response: Any) -> None:
            if call.version < NULL_PROTOCOL_SINCE and response.protocol_name is None:
                response.protocol_name = ""
            reply(response)

        if call.denied:
            in_version(join_error(Errors.GROUP_AUTHORIZATION_FAILED))
            return
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


@serves(SYNC_GROUP, checks=_READS_GROUP)
def sync_group(broker: Services, call: Call, request: Any) -> Any:
    """Handle SyncGroup: return the member's assignment when the group's leader has sent the assignments with its
    SyncGroup."""
    from kafkapy.coordinator.groups.syncing import Sync

    if call.version >= PROTOCOL_SAID_SINCE and None in (request.protocol_type, request.protocol_name):
        return SYNC_GROUP.Response(error_code=Errors.INCONSISTENT_GROUP_PROTOCOL, assignment=b"")
    if call.denied:
        return SYNC_GROUP.Response(error_code=Errors.GROUP_AUTHORIZATION_FAILED, assignment=b"")

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


@serves(HEARTBEAT, checks=_READS_GROUP)
def heartbeat(broker: Services, call: Call, request: Any) -> Any:
    """Handle Heartbeat: restart the member's session time-out. Return REBALANCE_IN_PROGRESS if the member has to
    rejoin."""
    if call.denied:
        return HEARTBEAT.Response(error_code=Errors.GROUP_AUTHORIZATION_FAILED)
    return answered(
        call,
        lambda reply: broker.groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id, reply
        ),
    )


@serves(LEAVE_GROUP, checks=_READS_GROUP)
def leave_group(broker: Services, call: Call, request: Any) -> Any:
    """Handle LeaveGroup: remove members from a group. Return an error code for each member."""
    if call.denied:
        return LEAVE_GROUP.Response(error_code=Errors.GROUP_AUTHORIZATION_FAILED, members=[])
    members = request.members
    if call.version < BATCHED_SINCE:
        members = [LEAVE_GROUP.Request.Members(member_id=request.member_id)]

    def begin(reply: Reply) -> None:
        def in_version(response: Any) -> None:
            if call.version < BATCHED_SINCE:
                if response.members:  # exactly one; old versions have its error at the top level
                    response.error_code = response.members[0].error_code
                response.members = []
            reply(response)

        broker.groups.leave(request.group_id, members, in_version)

    return answered(call, begin, broker.disk_pool if len(members) > MOST_INLINE else None)


@lru_cache(maxsize=1024)
def java_address(host: str) -> str:
    """Return a client's IP address in the form of Java's InetAddress.toString without a host name ("/127.0.0.1"), which
    Kafka stores in the group metadata record."""
    if ":" not in host:
        return f"/{host}"
    from ipaddress import IPv6Address  # rarely needed; importing it at the start would slow the start down

    plain, percent, scope = host.partition("%")
    address = IPv6Address(plain)
    if address.ipv4_mapped is not None:
        return f"/{address.ipv4_mapped}"
    return "/" + ":".join(f"{part:x}" for part in unpack(">8H", address.packed)) + percent + scope
