"""Settings as DescribeConfigs returns them: value, source, synonyms, type and documentation (Kafka's ConfigHelper).

The entries are plain values with Kafka's codes; the handler puts them into messages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from kafkapy.log.config import TOPIC_KEYS, TOPIC_SYNONYMS, LogConfig
from kafkapy.runtime.config_def import ConfigKey, ConfigType
from kafkapy.server import log_levels
from kafkapy.server.config.alter import stored_topic
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.config.dynamic_keys import is_dynamic
from kafkapy.server.config.keys import BROKER_KEYS, key_of, synonyms


class Source:
    """DescribeConfigs codes for the source of a setting's value. If several sources have a value, the one with the
    lowest code takes precedence."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


class Synonym(NamedTuple):
    """One source of a setting's value: the key that this source uses, the value (None if it is secret) and the Source
    code."""

    name: str
    value: str | None
    source: int


class Entry(NamedTuple):
    """One setting in a DescribeConfigs response. `synonyms` has all sources of its value in order of precedence; `type`
    is one of the codes in ConfigType.WIRE_CODES."""

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    type: int
    documentation: str | None


def describe_topic(
    config: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[Entry]:
    """Return the settings of a topic with these overrides, sorted by name. `names` selects some settings; None or empty
    selects all. Raise KafkaError for an override that cannot be parsed."""
    log = stored_topic(config, overrides)
    return [_topic_entry(config, log, overrides, name) for name in _chosen(TOPIC_KEYS, names)]


def describe_broker(config: BrokerConfig, names: Collection[str] | None = None) -> list[Entry]:
    """Return the settings of this broker, sorted by name: all settings that are not internal, and all others that are
    set. `names` selects some of them; None or empty selects all."""
    shown = {name for name, key in BROKER_KEYS.items() if not key.internal}
    shown.update(config.static_values, config.dynamic_default, config.dynamic_broker)
    return [_broker_entry(config, name, _broker_value(config, name)) for name in _chosen(shown, names)]


def describe_broker_default(config: BrokerConfig, names: Collection[str] | None = None) -> list[Entry]:
    """Return the cluster-wide dynamic settings that are set, sorted by name. `names` selects some of them; None or
    empty selects all."""
    values = config.dynamic_default
    return [_broker_entry(config, name, values[name], default_only=True) for name in _chosen(values, names)]


def describe_loggers(names: Collection[str] | None = None) -> list[Entry]:
    """Return the log levels of this broker's loggers as entries, sorted by name. `names` selects some loggers; None or
    empty selects all."""
    return [
        Entry(name, level, Source.DYNAMIC_BROKER_LOGGER, False, False, (), ConfigType.UNKNOWN_CODE, None)
        for name, level in log_levels.levels(names).items()
    ]


def _chosen(available: Iterable[str], names: Collection[str] | None) -> list[str]:
    wanted = frozenset(names or ())
    return sorted(name for name in available if not wanted or name in wanted)


def _topic_entry(config: BrokerConfig, log: LogConfig, overrides: Mapping[str, str], name: str) -> Entry:
    key = TOPIC_KEYS[name]
    value = key.format(log.values[name])
    found: list[Synonym] = []
    if name in overrides:
        found.append(Synonym(name, value, Source.DYNAMIC_TOPIC))
    if name in TOPIC_SYNONYMS:
        found += _broker_synonyms(config, TOPIC_SYNONYMS[name][0][0])
    return _entry(name, value, found, key, read_only=False)


def _broker_entry(config: BrokerConfig, name: str, value: str | None, *, default_only: bool = False) -> Entry:
    found = _broker_synonyms(config, name)
    if default_only:
        found = [synonym for synonym in found if synonym.source == Source.DYNAMIC_DEFAULT_BROKER]
    return _entry(name, value, found, key_of(name), read_only=not is_dynamic(name))


def _entry(name: str, value: str | None, found: list[Synonym], key: ConfigKey | None, *, read_only: bool) -> Entry:
    sensitive = _secret(key)
    return Entry(
        name,
        None if sensitive else value,
        found[0].source if found else Source.DEFAULT,
        read_only,
        sensitive,
        tuple(found),
        ConfigType.WIRE_CODES[key.type] if key is not None else ConfigType.UNKNOWN_CODE,
        key.doc if key is not None else None,
    )


def _broker_value(config: BrokerConfig, name: str) -> str | None:
    key = BROKER_KEYS.get(name)
    if key is not None:
        return key.format(config[name])
    for values in (config.dynamic_broker, config.dynamic_default, config.static_values):
        if name in values:
            return values[name]
    return None


def _broker_synonyms(config: BrokerConfig, name: str) -> list[Synonym]:
    """Return the values of a broker setting from all sources, under its own name and under its synonyms, in order of
    precedence.

    Values before the first one under the name itself are left out, as in ConfigHelper.
    """
    found: list[Synonym] = []
    secret = _secret(key_of(name))
    sources: tuple[tuple[Mapping[str, str], int], ...] = (
        (config.dynamic_broker, Source.DYNAMIC_BROKER),
        (config.dynamic_default, Source.DYNAMIC_DEFAULT_BROKER),
        (config.static_values, Source.STATIC_BROKER),
    )
    for values, source in sources:
        for synonym in synonyms(name):
            if synonym in values:
                found.append(Synonym(synonym, None if secret else values[synonym], source))
    for synonym in synonyms(name):
        default = _default_text(BROKER_KEYS.get(synonym))
        if default is not None:
            found.append(Synonym(synonym, None if secret else default, Source.DEFAULT))
    while found and found[0].name != name:
        del found[0]
    return found


def _default_text(key: ConfigKey | None) -> str | None:
    default: Any = key.default if key is not None else None
    return key.format(default) if key is not None and default is not None else None


def _secret(key: ConfigKey | None) -> bool:
    """Return True if the value of a setting must not be shown: for a password, and for an unknown setting (None), which
    may be a password."""
    return key is None or key.sensitive
