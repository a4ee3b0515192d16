"""Which broker settings may change while the broker runs, and to what (DynamicBrokerConfig).

Dynamic settings are kept in the metadata tree, for one broker or, as cluster-wide defaults, for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkapy.runtime.config_def import ConfigError, UpdateMode
from kafkapy.server.config import BrokerConfig
from kafkapy.server.config_keys import DYNAMIC_ONLY_KEYS, key_of, listener_base

# Key stores can be replaced for one listener, never for all at once.
_PER_LISTENER = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
_LISTENER_DEFAULTS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
_THREAD_POOLS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)


def problem(name: str, text: str, *, per_broker: bool) -> str | None:
    """Why a setting cannot be changed while the broker runs, or not to this value; None if it can.

    Names that nothing knows pass, as in Kafka, where they may belong to plugins.
    """
    key = key_of(name)
    if key is None:
        return None
    base = listener_base(name)
    if base is None:
        if key.mode == UpdateMode.READ_ONLY:
            return f"{name} cannot be changed while the broker runs"
        if name in _PER_LISTENER:
            return f"{name} can only be changed for one listener, as listener.name.NAME.{name}"
        one_broker_only = key.mode == UpdateMode.PER_BROKER
    else:
        one_broker_only = base not in _LISTENER_DEFAULTS
    if one_broker_only and not per_broker:
        return f"{name} can only be changed for one broker; name the broker"
    if key.sensitive:
        return f"{name} is a password, which this broker does not store"
    try:
        key.parse(text)
    except ConfigError as error:
        return str(error)
    return None


def usable(values: Mapping[str, str], *, per_broker: bool) -> tuple[dict[str, str], list[str]]:
    """Of stored dynamic settings, those that can be used, and the names of the others."""
    good, bad = {}, []
    for name, text in values.items():
        if problem(name, text, per_broker=per_broker) is None:
            good[name] = text
        else:
            bad.append(name)
    return good, bad


def changed(config: BrokerConfig, values: Mapping[str, str], *, per_broker: bool) -> BrokerConfig:
    """The settings once `values` replace this broker's dynamic settings, or the cluster's; raises ConfigError.

    Settings that only exist as dynamic ones are checked, and have no place in the result's values.
    """
    for name, text in values.items():
        rule = problem(name, text, per_broker=per_broker)
        if rule is not None:
            key = key_of(name)
            raise ConfigError(name, "[hidden]" if key is None or key.sensitive else text, rule)
    if per_broker:
        new = config.with_dynamic(config.dynamic_default, values)
    else:
        new = config.with_dynamic(values, config.dynamic_broker)
    for name in _THREAD_POOLS:
        before, after = config[name], new[name]
        if after != before and not before // 2 <= after <= before * 2:
            raise ConfigError(name, after, f"must be from half to double of the {before} of now")
        if after < 1 <= before:
            raise ConfigError(name, after, "must be at least 1")
    return new


def is_dynamic(name: str) -> bool:
    """Whether DescribeConfigs shows the setting as changeable; a listener's own settings are shown as fixed."""
    key = key_of(name)
    if key is None or listener_base(name) is not None or name in DYNAMIC_ONLY_KEYS:
        return False
    return key.mode != UpdateMode.READ_ONLY
