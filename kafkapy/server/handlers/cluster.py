"""DescribeCluster (versions 0 to 1): the cluster id, the controller and the brokers (KIP-700).

Source: KafkaApis.handleDescribeCluster, AuthHelper.computeDescribeClusterResponse.

Differences from Kafka: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.protocol.apis import DESCRIBE_CLUSTER
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call

if TYPE_CHECKING:
    from kafkapy.server.services import Services

BROKERS, CONTROLLERS = 1, 2

# The operations that a response lists as authorized, as bits of AclOperation codes: there is no authorizer yet.
# Cluster: CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
# Topic: READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
OPERATIONS_NOT_ASKED = -(2**31)


@serves(DESCRIBE_CLUSTER)
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
            error_message=f"endpoint type {endpoint_type}: this is a broker (1)",
            endpoint_type=endpoint_type,
        )
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
    return make(
        cluster_id=broker.cluster_id,
        controller_id=broker.cache.controller_id,
        brokers=[
            make.Brokers(broker_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in broker.cache.nodes(call.connection.listener)
        ],
        cluster_authorized_operations=operations,
    )
