"""Settings as DescribeConfigs shows them: value, source, synonyms, type and documentation (Kafka's ConfigHelper).

Everything here is plain values, with Kafka's codes; the handler puts them into messages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from kafkapy.log.config import TOPIC_KEYS, TOPIC_SYNONYMS, LogConfig
from kafkapy.runtime.config_def import ConfigKey, ConfigType
from kafkapy.server.config import BrokerConfig
from kafkapy.server.config_dynamic import is_dynamic
from kafkapy.server.config_keys import BROKER_KEYS, key_of, synonyms


class Source:
    """Where a value comes from, with DescribeConfigs' codes; a smaller one wins."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """One place that gives a setting a value; `value` is None where it is secret."""

    name: str
    value: str | None
    source: int


class Entry(NamedTuple):
    """One setting. `synonyms` are in order of precedence; `type` is a ConfigType.WIRE_CODES code."""

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
    """Entries of a topic with these overrides, by name; `names` None or empty means all."""
    log = LogConfig.from_overrides(config.log_config, overrides)
    return [_topic_entry(config, log, overrides, name) for name in _chosen(TOPIC_KEYS, names)]


def describe_broker(config: BrokerConfig, names: Collection[str] | None = None) -> list[Entry]:
    """Entries of this broker, by name: every setting that is not internal, and whatever else is set."""
    shown = {name for name, key in BROKER_KEYS.items() if not key.internal}
    shown.update(config.static_values, config.dynamic_default, config.dynamic_broker)
    return [_broker_entry(config, name, _broker_value(config, name)) for name in _chosen(shown, names)]


def describe_broker_default(config: BrokerConfig, names: Collection[str] | None = None) -> list[Entry]:
    """Entries of the cluster-wide dynamic settings: only those that are set."""
    values = config.dynamic_default
    return [_broker_entry(config, name, values[name], default_only=True) for name in _chosen(values, names)]


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
    """Every value given to `name` or a synonym of it, strongest first.

    What a synonym says before `name` itself says anything is left out, as ConfigHelper does.
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
    """What nobody knows may be a password too."""
    return key is None or key.sensitive
