"""DescribeGroups (versions 0 to 5), ListGroups (versions 0 to 5) and DeleteGroups (versions 0 to 2).

Source: KafkaApis, GroupCoordinatorAdapter.

Differences from Kafka: a group that a DescribeGroups request names more than once is described once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.protocol.apis import DELETE_GROUPS, DESCRIBE_GROUPS, LIST_GROUPS
from kafkapy.server.admission import denied_names, is_denied
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, answered

if TYPE_CHECKING:
    from kafkapy.server.services import Services

GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8))  # READ DELETE DESCRIBE


# A deletion takes about 50 µs a group; requests with more groups than this run on the disk pool.
MOST_INLINE = 10


@serves(DESCRIBE_GROUPS, pooled=True)
def describe_groups(broker: Services, call: Call, request: Any) -> Any:
    """Handle DescribeGroups on the disk pool: return the state and the members of each group."""
    # Each group once: a few bytes of a request name a group, and a group can have thousands of members.
    groups = broker.groups.describe(list(dict.fromkeys(request.groups)))
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return DESCRIBE_GROUPS.Response(groups=groups)


@serves(LIST_GROUPS, pooled=True)
def list_groups(broker: Services, call: Call, request: Any) -> Any:
    """Handle ListGroups on the disk pool: return the groups that have one of the requested states and types."""
    response = broker.groups.list(request.states_filter, request.types_filter)
    if is_denied(broker, call, "DESCRIBE", logged=False):
        names = [group.group_id for group in response.groups]
        denied = denied_names(broker, call, "DESCRIBE", "GROUP", names, logged=False)
        response.groups = [group for group in response.groups if group.group_id not in denied]
    return response


@serves(DELETE_GROUPS)
def delete_groups(broker: Services, call: Call, request: Any) -> Any:
    """Handle DeleteGroups: delete groups without members, and their committed offsets. Return an error code for each
    group."""
    pool = broker.disk_pool if len(request.groups_names) > MOST_INLINE else None
    return answered(call, lambda reply: broker.groups.delete(request.groups_names, reply), pool)
