"""Who this broker is, and where its clients find it."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from kafkapy.log.log_dirs import LogDirs
from kafkapy.metadata.cluster import ClusterRegistry, Endpoint
from kafkapy.server.config_listeners import ANY_ADDRESSES
from kafkapy.server.services import Node, Services


def identify(services: Services, cluster: ClusterRegistry, dirs: LogDirs) -> None:
    """Broker id and cluster id, from the settings, the tree and each directory's meta.properties, which agree.

    Raises MetaPropertiesError where they do not.
    """
    config = services.config
    services.cluster_id = cluster.ensure_cluster_id(dirs.stored_cluster_id())
    broker_id = config.broker_id
    if broker_id < 0:
        stored = dirs.stored_broker_id()
        broker_id = stored if stored is not None else cluster.generate_broker_id(config.reserved_broker_max_id)
    services.broker_id = broker_id
    dirs.stamp(broker_id, services.cluster_id, services.clock.time_ms())


def advertise(services: Services, ports: Mapping[str, int]) -> list[Endpoint]:
    """Gives each listener the addresses that its clients are told; `ports` are those that were bound. Returns the
    advertised ones."""
    config = services.config
    endpoints = []
    for one in config.advertised_listeners:
        host = one.host
        if not host or host in ANY_ADDRESSES:
            host = socket.getfqdn()
        port = one.port or ports[one.name]
        endpoints.append(Endpoint(one.name, host, port, one.protocol))
        services.advertise(one.name, Node(services.broker_id, host, port, config.broker_rack))
    first = endpoints[0]
    for listener in config.listeners:
        if not services.nodes(listener.name):  # not advertised: its clients see the first one that is
            services.advertise(listener.name, Node(services.broker_id, first.host, first.port, config.broker_rack))
    return endpoints
