"""Determines the broker's id, its cluster's id, and the addresses that it advertises to clients."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from kafkapy.log.directories.log_dirs import LogDirs
from kafkapy.metadata.cache import Node
from kafkapy.metadata.cluster import ClusterRegistry, Endpoint
from kafkapy.server.config.listeners import ANY_ADDRESSES
from kafkapy.server.services import Services


def identify(services: Services, cluster: ClusterRegistry, dirs: LogDirs) -> None:
    """Set `services.broker_id` and `services.cluster_id` from the settings, the metadata tree and the meta.properties
    files.

    Raise MetaPropertiesError if these sources contradict each other. The ids are not written to meta.properties yet: if
    the start is refused later, because another broker is registered, new directories must not keep this broker's id.
    """
    config = services.config
    services.cluster_id = cluster.ensure_cluster_id(dirs.stored_cluster_id())
    broker_id = config.broker_id
    if broker_id < 0:
        stored = dirs.stored_broker_id()
        broker_id = stored if stored is not None else cluster.generate_broker_id(config.reserved_broker_max_id)
    services.broker_id = broker_id
    dirs.check_identity(broker_id, services.cluster_id)


def advertise(services: Services, ports: Mapping[str, int]) -> list[Endpoint]:
    """Put this broker's addresses into the metadata cache, for clients, and return the advertised addresses. `ports`
    has the bound port of each listener, by name."""
    config = services.config
    endpoints = []
    nodes: dict[str, list[Node]] = {}
    for one in config.advertised_listeners:
        host = one.host
        if not host or host in ANY_ADDRESSES:
            host = socket.getfqdn()
        port = one.port or ports[one.name]
        endpoints.append(Endpoint(one.name, host, port, one.protocol))
        nodes[one.name] = [Node(services.broker_id, host, port, config.broker_rack)]
    first = endpoints[0]
    for listener in config.listeners:  # clients of an unadvertised listener get the first advertised address
        nodes.setdefault(listener.name, [Node(services.broker_id, first.host, first.port, config.broker_rack)])
    services.cache.set_brokers(services.broker_id, nodes)  # the only broker of the cluster, so also the controller
    return endpoints
