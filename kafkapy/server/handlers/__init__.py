"""One module an API family: decode is done, so a handler checks, delegates and shapes the answer.

Importing this package registers every handler with `kafkapy.server.api_table`; a new module is named here.
"""

from kafkapy.server.handlers import (
    admin_topics,
    api_versions,
    cluster,
    configs,
    elections,
    fetch,
    find_coordinator,
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
    records,
    transaction_partitions,
    transactions,
)

__all__ = [
    "admin_topics",
    "api_versions",
    "cluster",
    "configs",
    "elections",
    "fetch",
    "find_coordinator",
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
    "records",
    "transaction_partitions",
    "transactions",
]
