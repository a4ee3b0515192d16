"""Determines the broker's id, its cluster's id, and the addresses that it advertises to clients."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from kafkapy.log.directories.log_dirs import LogDirs
from kafkapy.metadata.cache import LiveBroker
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


def advertise(services: Services, ports: Mapping[str, int]) -> tuple[list[Endpoint], LiveBroker]:
    """Return the addresses that this broker advertises, and this broker as its own clients see it. `ports` has the
    bound port of each listener, by name."""
    config = services.config
    endpoints = []
    for one in config.advertised_listeners:
        host = one.host
        if not host or host in ANY_ADDRESSES:
            host = socket.getfqdn()
        endpoints.append(Endpoint(one.name, host, one.port or ports[one.name], one.protocol))
    first = endpoints[0]
    addresses = {endpoint.listener: (endpoint.host, endpoint.port) for endpoint in endpoints}
    for listener in config.listeners:  # clients of an unadvertised listener get the first advertised address
        addresses.setdefault(listener.name, (first.host, first.port))
    return endpoints, LiveBroker(services.broker_id, addresses, config.broker_rack)
