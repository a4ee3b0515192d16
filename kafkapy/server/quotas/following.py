"""Connects the quotas in the metadata tree with the parts of the broker that apply them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkapy.metadata.quotas import Entity, QuotaRegistry
from kafkapy.metadata.tree import Tree
from kafkapy.runtime.scheduler import Scheduler
from kafkapy.server.config.apply import mutation_windows, quota_windows
from kafkapy.server.metrics.quotas import register
from kafkapy.server.quotas.address_limits import AddressLimits
from kafkapy.server.quotas.client_quotas import ClientQuotas

if TYPE_CHECKING:
    from kafkapy.server.services import Services


EXPIRY_CHECK_S = 60.0
RESOLVE_S = 60.0  # how often host names without an address are looked up again


def follow_quotas(services: Services, tree: Tree, scheduler: Scheduler) -> None:
    """Apply the stored quotas, and from now on every change of them. `services.quotas` is None as long as no quota of
    users and client ids is set, so that requests need not be counted."""
    clients = services.client_quotas = ClientQuotas(
        services.clock, quota_windows(services.config), mutation_windows(services.config)
    )
    addresses = AddressLimits(services.connection_rates.set_address_limits, services.disk_pool.submit)

    def changed(entity: Entity, quotas: Mapping[str, float]) -> None:
        if entity.ip:
            addresses.change(entity.ip, quotas)
        else:
            clients.change(entity, quotas)
            services.quotas = clients if clients.are_set else None

    services.quota_registry = QuotaRegistry(tree, services.configs)
    services.quota_registry.follow(changed)
    scheduler.schedule("quota-expiry", clients.expire, EXPIRY_CHECK_S, EXPIRY_CHECK_S)
    scheduler.schedule("quota-addresses", addresses.resolve_missing, RESOLVE_S, RESOLVE_S)
    register(clients, services.counters)
