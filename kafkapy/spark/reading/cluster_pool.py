"""A pool of connections to brokers. Tasks share it, because Spark reuses its Python worker processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from kafkapy.client.cluster import Cluster
from kafkapy.client.security import Security

_idle: dict[tuple[int, str, str, float, Security], list[Cluster]] = {}


@contextmanager
def borrowed_cluster(bootstrap_servers: str, client_id: str, timeout_s: float, security: Security) -> Iterator[Cluster]:
    """Provide a Cluster (a client's connections to brokers) for exclusive use within a `with` block.

    The Cluster is kept for the next task. If the block raises an exception or is cancelled, the Cluster is closed
    instead, because responses may be outstanding on its connections.
    """
    # The key has the process id, because forked workers must not use inherited sockets.
    key = (os.getpid(), bootstrap_servers, client_id, timeout_s, security)
    kept = _idle.setdefault(key, [])
    if kept:
        cluster = kept.pop()
    else:
        cluster = Cluster(bootstrap_servers, client_id=client_id, timeout_s=timeout_s, security=security)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    kept.append(cluster)
