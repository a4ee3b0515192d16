"""Request handlers, one module per API family. The dispatcher decodes a request; its handler checks the request,
delegates the work and builds the response.

The docstring of a module begins with the APIs and the versions that it serves, and says where responses differ from
those of Apache Kafka 3.9 with ZooKeeper. One difference is the same for all: there is no authorizer and no quota, so
nothing is denied, and throttle_time_ms is 0.

Importing this package registers every handler in `kafkapy.server.api_table`; a new module must be imported here.
"""

from kafkapy.server.handlers import (
    admin_topics,
    api_versions,
    cluster,
    configs,
    controller_requests,
    delegation_tokens,
    elections,
    features,
    fetch,
    find_coordinator,
    for_brokers,
    group_admin,
    groups,
    leader_epochs,
    log_dirs,
    markers,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offsets,
    produce,
    producers,
    reassignments,
    records,
    transaction_partitions,
    transactions,
    update_metadata,
    users,
)

__all__ = [
    "admin_topics",
    "api_versions",
    "cluster",
    "configs",
    "controller_requests",
    "delegation_tokens",
    "elections",
    "features",
    "fetch",
    "find_coordinator",
    "for_brokers",
    "group_admin",
    "groups",
    "leader_epochs",
    "log_dirs",
    "markers",
    "metadata",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "offsets",
    "produce",
    "producers",
    "reassignments",
    "records",
    "transaction_partitions",
    "transactions",
    "update_metadata",
    "users",
]
