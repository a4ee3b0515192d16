"""DescribeCluster (versions 0 to 1): the cluster id, the controller and the brokers (KIP-700).

Source: KafkaApis.handleDescribeCluster, AuthHelper.computeDescribeClusterResponse.

Differences from Kafka: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.protocol.apis import DESCRIBE_CLUSTER
from kafkapy.server.admission import OPERATIONS_NOT_ASKED, authorized_operations, is_denied
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call
from kafkapy.server.checks import Check, Right

if TYPE_CHECKING:
    from kafkapy.server.services import Services

BROKERS, CONTROLLERS = 1, 2


@serves(
    DESCRIBE_CLUSTER,
    checks=[
        Check(
            Right("DESCRIBE", "CLUSTER"),
            "none: the authorized operations are 0; brokers, controller and cluster id are told",
            only="include_cluster_authorized_operations",
        )
    ],
)
def handle(broker: Services, call: Call, request: Any) -> Any:
    """Handle DescribeCluster: return the cluster id, the controller, and the brokers with their addresses on the
    listener that received the request."""
    make = DESCRIBE_CLUSTER.Response
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    if endpoint_type != BROKERS:
        return make(
            error_code=(
                Errors.MISMATCHED_ENDPOINT_TYPE if endpoint_type == CONTROLLERS else Errors.UNSUPPORTED_ENDPOINT_TYPE
            ),
            error_message=f"endpoint type {endpoint_type} is not served: this is a broker, endpoint type 1",
            endpoint_type=endpoint_type,
        )
    operations = OPERATIONS_NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = cluster_operations(broker, call)
    return make(
        cluster_id=broker.cluster_id,
        controller_id=broker.cache.controller_id,
        brokers=[
            make.Brokers(broker_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in broker.cache.nodes(call.connection.listener)
        ],
        cluster_authorized_operations=operations,
    )


def cluster_operations(broker: Services, call: Call) -> int:
    """Return the operations on the cluster that the principal of the call may do, as a bit field; 0 if the principal
    may not describe the cluster."""
    return 0 if is_denied(broker, call, "DESCRIBE") else authorized_operations(broker, call, "CLUSTER")
