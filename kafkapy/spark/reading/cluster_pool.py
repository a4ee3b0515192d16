"""Connections of a worker process, kept from task to task: Spark uses its Python workers again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from kafkapy.client.cluster import Cluster

_idle: dict[tuple[int, str, str, float], list[Cluster]] = {}


@contextmanager
def borrowed_cluster(bootstrap_servers: str, client_id: str, timeout_s: float) -> Iterator[Cluster]:
    """A cluster that nobody else uses meanwhile. It is kept for the next task unless this one failed or was given up,
    when answers may be under way that nobody waits for."""
    key = (os.getpid(), bootstrap_servers, client_id, timeout_s)  # workers are forked: sockets are not inherited
    kept = _idle.setdefault(key, [])
    cluster = kept.pop() if kept else Cluster(bootstrap_servers, client_id=client_id, timeout_s=timeout_s)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    kept.append(cluster)
