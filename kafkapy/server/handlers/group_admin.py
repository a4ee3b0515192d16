"""DescribeGroups (versions 0 to 5), ListGroups (versions 0 to 5) and DeleteGroups (versions 0 to 2).

Source: KafkaApis, GroupCoordinatorAdapter.

Differences from Kafka: a group that a DescribeGroups request names more than once is described once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.protocol.apis import DELETE_GROUPS, DESCRIBE_GROUPS, LIST_GROUPS
from kafkapy.server.admission import authorized_operations, denied_names, is_denied
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, answered
from kafkapy.server.checks import GROUP_DENIED, Check, Right

if TYPE_CHECKING:
    from kafkapy.server.services import Services

# A deletion takes about 50 µs a group; requests with more groups than this run on the disk pool.
MOST_INLINE = 10


@serves(
    DESCRIBE_GROUPS,
    pooled=True,
    checks=[Check(Right("DESCRIBE", "GROUP"), GROUP_DENIED + " for the group", lambda request: request.groups)],
)
def describe_groups(broker: Services, call: Call, request: Any) -> Any:
    """Handle DescribeGroups on the disk pool: return the state and the members of each group. Denied groups come
    first."""
    make = DESCRIBE_GROUPS.Response
    denied = call.denied_names("GROUP")
    # Each group once: a few bytes of a request name a group, and a group can have thousands of members.
    names = dict.fromkeys(request.groups)
    groups = broker.groups.describe([name for name in names if name not in denied])
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = authorized_operations(broker, call, "GROUP", group.group_id)
    refused = [
        make.Groups(
            error_code=Errors.GROUP_AUTHORIZATION_FAILED,
            group_id=name,
            group_state="",
            protocol_type="",
            protocol_data="",
        )
        for name in names
        if name in denied
    ]
    return make(groups=refused + groups)


@serves(
    LIST_GROUPS,
    pooled=True,
    checks=[
        Check(Right("DESCRIBE", "GROUP"), "none: the group is left out", unless=Right("DESCRIBE", "CLUSTER")),
    ],
)
def list_groups(broker: Services, call: Call, request: Any) -> Any:
    """Handle ListGroups on the disk pool: return the groups that have one of the requested states and types."""
    response = broker.groups.list(request.states_filter, request.types_filter)
    if is_denied(broker, call, "DESCRIBE", logged=False):
        names = [group.group_id for group in response.groups]
        denied = denied_names(broker, call, "DESCRIBE", "GROUP", names, logged=False)
        response.groups = [group for group in response.groups if group.group_id not in denied]
    return response


@serves(
    DELETE_GROUPS,
    checks=[
        Check(Right("DELETE", "GROUP"), GROUP_DENIED + " for the group", lambda request: request.groups_names),
    ],
)
def delete_groups(broker: Services, call: Call, request: Any) -> Any:
    """Handle DeleteGroups: delete groups without members, and their committed offsets. Return an error code for each
    group. Denied groups come last."""
    make = DELETE_GROUPS.Response
    denied = call.denied_names("GROUP")
    names = list(dict.fromkeys(request.groups_names))
    refused = [
        make.Results(group_id=name, error_code=Errors.GROUP_AUTHORIZATION_FAILED) for name in names if name in denied
    ]

    def begin(reply: Callable[[Any], None]) -> None:
        def done(response: Any) -> None:
            response.results += refused
            reply(response)

        broker.groups.delete([name for name in names if name not in denied], done)

    return answered(call, begin, broker.disk_pool if len(names) > MOST_INLINE else None)
