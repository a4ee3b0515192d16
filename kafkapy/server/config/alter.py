"""AlterConfigs and IncrementalAlterConfigs: apply the requested operations and check the result (ConfigAdminManager).

All functions raise KafkaError with Kafka's codes: INVALID_REQUEST for malformed requests and for broker settings,
INVALID_CONFIG for topic settings and for operations that do not fit a setting's type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import TOPIC_KEYS, LogConfig, check_overrides
from kafkapy.runtime.config_def import ConfigError, ConfigKey, ConfigType
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.config.dynamic_keys import changed
from kafkapy.server.config.keys import key_of

SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8

Operation = tuple[str, int, "str | None"]  # name, SET to SUBTRACT, value


def repeated(resources: Iterable[tuple[int, str]]) -> set[tuple[int, str]]:
    """Return the resources, as (type, name), that occur more than once in a request. Kafka refuses all of them."""
    return {resource for resource, count in Counter(resources).items() if count > 1}


def is_one_broker(resource_name: str, broker_id: int) -> bool:
    """Return True if the name of a broker resource is this broker's id. Return False if the name is empty, which means
    the cluster-wide settings.

    Raise KafkaError INVALID_REQUEST for any other name.
    """
    if not resource_name:
        return False
    try:
        number = int(resource_name)
    except ValueError:
        raise KafkaError(Errors.INVALID_REQUEST, f"a broker id must be a number, and {resource_name} is not") from None
    if number != broker_id:
        raise KafkaError(Errors.INVALID_REQUEST, f"this is broker {broker_id}, not broker {resource_name}")
    return True


def replaced(entries: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    """Return the settings in an AlterConfigs request, by name. They replace all current settings. Raise KafkaError
    INVALID_REQUEST if a name occurs more than once or a value is null."""
    _check_names(name for name, _ in entries)
    _check_nulls(name for name, value in entries if value is None)
    return {name: value for name, value in entries if value is not None}


def topic_operations(current: Mapping[str, str], operations: Sequence[Operation]) -> dict[str, str]:
    """Return a topic's overrides after the operations of an IncrementalAlterConfigs request on `current`. Raise
    KafkaError for invalid operations."""
    return _applied(current, operations, {name: TOPIC_KEYS.get(name) for name, _, _ in operations})


def broker_operations(current: Mapping[str, str], operations: Sequence[Operation]) -> dict[str, str]:
    """Return the dynamic settings of a broker, or the cluster-wide ones, after the operations of an
    IncrementalAlterConfigs request on `current`. Raise KafkaError for invalid operations."""
    return _applied(current, operations, {name: key_of(name) for name, _, _ in operations})


def check_topic(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """Return the log settings of a topic that is created or altered with these overrides. Raise KafkaError
    INVALID_CONFIG if an override is invalid."""
    try:
        check_overrides(config.log_config, overrides)
    except ConfigError as error:
        raise KafkaError(Errors.INVALID_CONFIG, str(error)) from None
    return stored_topic(config, overrides)


def stored_topic(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """Return the log settings of an existing topic with these overrides. Raise KafkaError INVALID_CONFIG only for a
    value that cannot be parsed."""
    try:
        return _topic_settings(config.log_config, tuple(overrides.items()))
    except ConfigError as error:
        raise KafkaError(Errors.INVALID_CONFIG, str(error)) from None


@lru_cache(maxsize=256)
def _topic_settings(defaults: LogConfig, overrides: tuple[tuple[str, str], ...]) -> LogConfig:
    """Return a topic's log settings, the same object for equal arguments. Sharing the object saves memory: it is larger
    than the rest of an idle partition."""
    return LogConfig.from_overrides(defaults, dict(overrides))


def check_broker(config: BrokerConfig, values: Mapping[str, str], *, per_broker: bool) -> BrokerConfig:
    """Return the broker's settings after `values` replace this broker's dynamic settings, or the cluster-wide ones if
    `per_broker` is False. Raise KafkaError INVALID_REQUEST if a value is invalid."""
    try:
        return changed(config, values, per_broker=per_broker)
    except ConfigError as error:
        raise KafkaError(Errors.INVALID_REQUEST, str(error)) from None


def check_operations(operations: Sequence[Operation]) -> None:
    """Raise KafkaError INVALID_REQUEST for operations that are invalid for any resource: a name that occurs twice, an
    unknown operation code, or a null value in an operation other than DELETE."""
    _check_names(name for name, _, _ in operations)
    for name, operation, _ in operations:
        if operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise KafkaError(Errors.INVALID_REQUEST, f"{name}: there is no operation {operation}")
    _check_nulls(name for name, operation, value in operations if value is None and operation != DELETE)


def _applied(
    current: Mapping[str, str], operations: Sequence[Operation], keys: Mapping[str, ConfigKey | None]
) -> dict[str, str]:
    check_operations(operations)
    result = dict(current)
    for name, operation, value in operations:
        if operation == DELETE:
            result.pop(name, None)
        elif operation == SET:
            result[name] = value or ""
        else:
            result[name] = _edited(result.get(name), name, operation, value or "", keys[name])
    return result


def _edited(text: str | None, name: str, operation: int, value: str, key: ConfigKey | None) -> str:
    """Return the text of a list setting after the items in `value` are appended to it, or subtracted from it. `text` is
    the current value; None: the default. Raise KafkaError INVALID_CONFIG if the setting is not a list."""
    if key is None:
        raise KafkaError(Errors.INVALID_CONFIG, f"{name} is not a setting")
    if key.type != ConfigType.LIST:
        action = "append to" if operation == APPEND else "subtract from"
        raise KafkaError(Errors.INVALID_CONFIG, f"cannot {action} {name}, which is not a list")
    items = _items(text) if text is not None else list(key.default or ())
    for item in _items(value):
        if operation == APPEND and item not in items:
            items.append(item)
        elif operation == SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _check_names(names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise KafkaError(Errors.INVALID_REQUEST, f"set more than once: {', '.join(twice)}")


def _check_nulls(names: Iterable[str]) -> None:
    found = list(names)
    if found:
        raise KafkaError(Errors.INVALID_REQUEST, f"must not be null: {', '.join(found)}")
