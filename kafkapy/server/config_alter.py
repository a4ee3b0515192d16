"""AlterConfigs and IncrementalAlterConfigs: from the operations asked for to checked settings (ConfigAdminManager).

Everything that is refused raises KafkaError with the code that Kafka gives: INVALID_REQUEST for a request that
is wrong in itself and for broker settings, INVALID_CONFIG for topic settings and for operations on the wrong type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import TOPIC_KEYS, LogConfig
from kafkapy.runtime.config_def import ConfigError, ConfigKey, ConfigType
from kafkapy.server.config import BrokerConfig
from kafkapy.server.config_dynamic import changed
from kafkapy.server.config_keys import key_of

SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4

Operation = tuple[str, int, "str | None"]  # name, SET to SUBTRACT, value


def repeated(resources: Iterable[tuple[int, str]]) -> set[tuple[int, str]]:
    """The (type, name) pairs that are there more than once; all of them are refused."""
    return {resource for resource, count in Counter(resources).items() if count > 1}


def is_one_broker(resource_name: str, broker_id: int) -> bool:
    """Whether a broker resource means this broker (True) or the cluster-wide settings (False, an empty name)."""
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
    """The settings that AlterConfigs asks for, which replace all that there were."""
    _check_names(name for name, _ in entries)
    _check_nulls(name for name, value in entries if value is None)
    return {name: value for name, value in entries if value is not None}


def topic_operations(current: Mapping[str, str], operations: Sequence[Operation]) -> dict[str, str]:
    """A topic's overrides after the operations."""
    return _applied(current, operations, {name: TOPIC_KEYS.get(name) for name, _, _ in operations})


def broker_operations(current: Mapping[str, str], operations: Sequence[Operation]) -> dict[str, str]:
    """Dynamic broker settings of one level after the operations."""
    return _applied(current, operations, {name: key_of(name) for name, _, _ in operations})


def check_topic(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """The settings of a topic with these overrides."""
    try:
        return _topic_settings(config.log_config, tuple(overrides.items()))
    except ConfigError as error:
        raise KafkaError(Errors.INVALID_CONFIG, str(error)) from None


@lru_cache(maxsize=256)
def _topic_settings(defaults: LogConfig, overrides: tuple[tuple[str, str], ...]) -> LogConfig:
    """The same object for all partitions with the same overrides: it is larger than the rest of an idle one."""
    return LogConfig.from_overrides(defaults, dict(overrides))


def check_broker(config: BrokerConfig, values: Mapping[str, str], *, per_broker: bool) -> BrokerConfig:
    """The broker's settings with `values` as its own dynamic ones, or as the cluster's."""
    try:
        return changed(config, values, per_broker=per_broker)
    except ConfigError as error:
        raise KafkaError(Errors.INVALID_REQUEST, str(error)) from None


def _applied(
    current: Mapping[str, str], operations: Sequence[Operation], keys: Mapping[str, ConfigKey | None]
) -> dict[str, str]:
    _check_names(name for name, _, _ in operations)
    for name, operation, _ in operations:
        if operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise KafkaError(Errors.INVALID_REQUEST, f"{name}: there is no operation {operation}")
    _check_nulls(name for name, operation, value in operations if value is None and operation != DELETE)
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
    """The text of a list setting with items appended or taken away."""
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
