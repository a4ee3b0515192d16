"""Creates the authorizer that the settings name, and warns if other brokers would refuse this broker's requests."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkapy.network.connection import ANONYMOUS
from kafkapy.runtime.config_def import ConfigError
from kafkapy.security.acls.bindings import CLUSTER_NAME, Filter
from kafkapy.server.admission import Action
from kafkapy.server.authorization.authorizer import AclAuthorizer
from kafkapy.server.config import authorization as settings
from kafkapy.server.config.listeners import SASL_PROTOCOLS
from kafkapy.server.config.sasl import load_hook

if TYPE_CHECKING:
    from kafkapy.metadata.tree import Tree
    from kafkapy.server.admission import Authorizer
    from kafkapy.server.authorization.audit import Audit
    from kafkapy.server.config.broker_config import BrokerConfig
    from kafkapy.server.secured_listeners import SecuredListeners

log = logging.getLogger("kafkapy.server.authorization")


def make_authorizer(config: BrokerConfig, tree: Tree, audit: Audit) -> Authorizer | None:
    """Return the authorizer that the settings name, None if everybody may do everything. Blocks."""
    if settings.has_acls(config):
        return AclAuthorizer(tree, settings.super_users(config), config[settings.EVERYONE], audit)
    name = settings.hook_of(config)
    if name:
        from kafkapy.server.authorization.hook import HookAuthorizer

        hook = load_hook(settings.AUTHORIZER, name, dict(config.static_values))
        if not hasattr(hook, "authorize"):
            raise ConfigError(settings.AUTHORIZER, name, "has no method authorize")
        return HookAuthorizer(name, hook, config[settings.TIMEOUT] / 1000, audit)
    return None


def warn_of_refused_brokers(
    config: BrokerConfig, authorizer: Authorizer | None, secured: SecuredListeners | None
) -> None:
    """Log a warning if the ACLs do not allow this broker's principal to send requests of brokers to other brokers."""
    if not isinstance(authorizer, AclAuthorizer) or not config["zookeeper.connect"]:
        return
    principal = own_principal(config, secured)
    if principal is None:
        return
    action = Action("CLUSTER_ACTION", "CLUSTER", CLUSTER_NAME)
    hosts = {binding.entry.host for binding in authorizer.find(Filter("CLUSTER", CLUSTER_NAME))}
    if not authorizer.may(principal, action, hosts):
        log.warning(
            "other brokers will refuse the requests of this broker, so partitions are not replicated: it is %s, which "
            "is neither among %s nor allowed ClusterAction on the cluster",
            principal,
            settings.SUPER_USERS,
        )


def own_principal(config: BrokerConfig, secured: SecuredListeners | None) -> str | None:
    """Return this broker's principal on the inter-broker listener of other brokers, None if that is not known before it
    has logged in."""
    protocol = config.protocol_of(config.inter_broker_listener)
    if protocol in SASL_PROTOCOLS:
        from kafkapy.server.inter_broker_login import login_name

        name = login_name(config)
        return None if name is None else f"User:{name}"
    if protocol == "SSL" and secured is not None:
        return secured.own_principal()
    return ANONYMOUS
