"""AlterPartition (versions 0 to 3), ControlledShutdown (versions 0 to 3) and AllocateProducerIds (version 0), which
brokers send to the controller.

Source: KafkaApis.handleAlterPartitionRequest, handleControlledShutdownRequest, handleAllocateProducerIdsRequest.

Differences from Kafka: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.protocol.apis import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, CONTROLLED_SHUTDOWN
from kafkapy.server import for_brokers
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, answered
from kafkapy.server.checks import on_cluster

if TYPE_CHECKING:
    from kafkapy.runtime.disk_pool import DiskPool
    from kafkapy.server.services import Services


def pool(broker: Services, request: Any) -> DiskPool:
    """Return the pool for requests to the controller: administration of topics must not hold them up."""
    return broker.controller_pool


@serves(ALTER_PARTITION, pooled=pool, quota="exempt", checks=on_cluster("CLUSTER_ACTION"))
def alter_partition(broker: Services, call: Call, request: Any) -> Any:
    """Handle AlterPartition: return the new state of each partition, or an error."""
    if call.denied:
        return ALTER_PARTITION.Response(error_code=Errors.CLUSTER_AUTHORIZATION_FAILED)
    return for_brokers.alter_partition(broker, request, call.version)


@serves(CONTROLLED_SHUTDOWN, pooled=pool, quota="exempt", checks=on_cluster("CLUSTER_ACTION"))
def controlled_shutdown(broker: Services, call: Call, request: Any) -> Any:
    """Handle ControlledShutdown: return the partitions that the broker still leads."""
    if call.denied:
        return CONTROLLED_SHUTDOWN.Response(error_code=Errors.CLUSTER_AUTHORIZATION_FAILED)
    return for_brokers.controlled_shutdown(broker, request, call.version)


@serves(ALLOCATE_PRODUCER_IDS, checks=on_cluster("CLUSTER_ACTION"))
def allocate_producer_ids(broker: Services, call: Call, request: Any) -> Any:
    """Handle AllocateProducerIds: return a block of producer ids."""
    if call.denied:
        return ALLOCATE_PRODUCER_IDS.Response(error_code=Errors.CLUSTER_AUTHORIZATION_FAILED)
    return answered(
        call, lambda reply: for_brokers.allocate_producer_ids(broker, request, reply), broker.controller_pool
    )
