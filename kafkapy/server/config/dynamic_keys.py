"""The broker settings that may change while the broker runs, and their valid values (DynamicBrokerConfig).

Dynamic settings are stored in the metadata tree, for one broker or cluster-wide.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkapy.runtime.config_def import ConfigError, UpdateMode
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.config.keys import DYNAMIC_ONLY_KEYS, in_lower_case, key_of, listener_base, shown
from kafkapy.server.config.sasl import BUILDER, CALLBACKS, ONLY_IN_FILE, is_hook, no_inter_broker_user
from kafkapy.server.config.security import protection

# Key stores and trust stores can be replaced for one listener only (SslConfigs.RECONFIGURABLE_CONFIGS).
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
_CONNECTION_LIMITS = frozenset({"max.connections", "max.connection.creation.rate"})
_LISTENER_DEFAULTS = _CONNECTION_LIMITS | {"num.network.threads"}
_THREAD_POOLS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)


def problem(name: str, text: str, *, per_broker: bool) -> str | None:
    """Return the reason why a setting cannot be changed to this value while the broker runs, worded as a ConfigError's
    rule.

    Return None if the setting can be changed. Unknown names are allowed, as in Kafka, where plugins may use them.
    """
    unprotected = protection(name, text)
    if unprotected is not None:
        return unprotected
    key = key_of(name)
    if key is None:
        return None
    base = listener_base(name)
    if in_lower_case(name) != name:
        return f"would be ignored: listeners and mechanisms must be in lower case, as {in_lower_case(name)}"
    if is_hook(text) and key.name in (BUILDER, CALLBACKS):
        return ONLY_IN_FILE
    if base is not None and base.startswith("sasl.") and key.mode == UpdateMode.READ_ONLY:
        return "cannot be changed while the broker runs"
    if base is None:
        if key.mode == UpdateMode.READ_ONLY:
            return "cannot be changed while the broker runs"
        if name in _PER_LISTENER:
            return f"can only be changed for one listener, as listener.name.NAME.{name}"
        one_broker_only = key.mode == UpdateMode.PER_BROKER
    else:
        one_broker_only = base not in _LISTENER_DEFAULTS
    if (base or name).startswith("ssl.") and base not in _PER_LISTENER:
        return "cannot be changed while the broker runs"
    if one_broker_only and not per_broker:
        return "can only be changed for one broker; name the broker"
    if key.sensitive and not per_broker:
        return "is a password, which can only be set for one broker; name the broker"
    try:
        value = key.parse(text)
    except ConfigError as error:
        return error.rule
    if key.name in _CONNECTION_LIMITS and value < 1:
        return "must be at least 1 while the broker runs"
    return None


def usable(values: Mapping[str, str], *, per_broker: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Return two dicts by name: the stored dynamic settings that can be used, and the reasons why the others cannot."""
    good, bad = {}, {}
    for name, text in values.items():
        rule = problem(name, text, per_broker=per_broker)
        if rule is None:
            good[name] = text
        else:
            bad[name] = rule
    return good, bad


def fitting(
    config: BrokerConfig, default: Mapping[str, str], broker: Mapping[str, str]
) -> tuple[BrokerConfig, dict[str, str]]:
    """Return the broker's settings with the stored dynamic ones (`default` cluster-wide, `broker` of this broker), and
    an error message, by name, for each stored setting that cannot be used.

    A setting cannot be used if `problem` returns a reason, or if it breaks a rule between settings. Of two dynamic
    settings that contradict each other, this broker's own is preferred to a cluster-wide one, otherwise the first one.
    """
    good_broker, bad = usable(broker, per_broker=True)
    good_default, bad_default = usable(default, per_broker=False)
    errors = {name: str(ConfigError(name, shown(name, default[name]), rule)) for name, rule in bad_default.items()}
    errors |= {name: str(ConfigError(name, shown(name, broker[name]), rule)) for name, rule in bad.items()}
    try:
        return config.with_dynamic(good_default, good_broker), errors
    except ConfigError:
        fits, clashes = _one_by_one(config, good_default, good_broker)
        return fits, errors | clashes


def _one_by_one(
    config: BrokerConfig, default: Mapping[str, str], broker: Mapping[str, str]
) -> tuple[BrokerConfig, dict[str, str]]:
    """Return the broker's settings with all dynamic settings that fit together, and an error message, by name, for each
    of the others. The settings are added one at a time, those of this broker first."""
    fits = config.with_dynamic({}, {})
    waiting = [(True, name, text) for name, text in broker.items()]
    waiting += [(False, name, text) for name, text in default.items()]
    while True:
        errors: dict[str, str] = {}
        left = []
        for per_broker, name, text in waiting:
            one = {name: text}
            try:
                if per_broker:
                    fits = fits.with_dynamic(fits.dynamic_default, fits.dynamic_broker | one)
                else:
                    fits = fits.with_dynamic(fits.dynamic_default | one, fits.dynamic_broker)
            except ConfigError as error:
                errors[name] = str(error)
                left.append((per_broker, name, text))
        if len(left) == len(waiting):
            return fits, errors
        waiting = left  # try again: a setting may only be valid together with a setting that came after it


def changed(config: BrokerConfig, values: Mapping[str, str], *, per_broker: bool) -> BrokerConfig:
    """Return the broker's settings after `values` replace this broker's dynamic settings, or the cluster-wide ones if
    `per_broker` is False. Raise ConfigError for an invalid value.

    Settings that exist only as dynamic ones are checked but are not in the result's `values`.
    """
    for name, text in values.items():
        rule = problem(name, text, per_broker=per_broker)
        if rule is not None:
            raise ConfigError(name, shown(name, text), rule)
    if per_broker:
        new = config.with_dynamic(config.dynamic_default, values)
    else:
        new = config.with_dynamic(values, config.dynamic_broker)
    missing = no_inter_broker_user(new)
    if missing is not None and no_inter_broker_user(config) is None:
        raise missing
    for name in _THREAD_POOLS:
        before, after = config[name], new[name]
        if after != before and not before // 2 <= after <= before * 2:
            raise ConfigError(name, after, f"must be from half to double of the present value, which is {before}")
        if after < 1 <= before:
            raise ConfigError(name, after, "must be at least 1")
    return new


def is_dynamic(name: str) -> bool:
    """Return True if DescribeConfigs shows the setting as changeable while the broker runs. A setting of a single
    listener is shown as read-only."""
    key = key_of(name)
    if key is None or listener_base(name) is not None or name in DYNAMIC_ONLY_KEYS:
        return False
    return key.mode != UpdateMode.READ_ONLY
