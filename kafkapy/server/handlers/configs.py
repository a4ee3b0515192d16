"""DescribeConfigs (versions 0 to 4), AlterConfigs (versions 0 to 2) and IncrementalAlterConfigs (versions 0 to 1).

The resources are topics, brokers and the loggers of a broker. AlterConfigs does not change loggers.
Source: KIP-133, KIP-226, KIP-339, KIP-412, kafka.server.ConfigHelper, kafka.server.ConfigAdminManager.

Differences from Kafka:

- A resource that a DescribeConfigs request names more than once has one result.
- If DescribeConfigs names a resource of an unknown type, only this resource gets an error; Kafka refuses the whole
  request. Client metrics subscriptions, which Kafka describes, are an unknown type here.
- In version 0 of DescribeConfigs, `is_default` is true for a default; Kafka leaves it false for all settings.
- A client without the right to change a broker's settings gets CLUSTER_AUTHORIZATION_FAILED, whatever the values are.
  Kafka checks the values first, which may open files.
- Changes of the settings in kafkapy.server.config.keys.READ_ONLY_HERE are refused; Kafka can change these settings at
  run time. Classes of the operator (MODULE:CLASS) are taken from the broker's file only.
- The loggers are those of this broker, not Kafka's Java classes. alter.config.policy.class.name has no effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.topics import validate_name
from kafkapy.protocol.apis import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from kafkapy.runtime.printable import one_word
from kafkapy.server import changes, log_levels
from kafkapy.server.admission import CLUSTER, NO_MESSAGE, refusal
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call
from kafkapy.server.checks import CLUSTER_DENIED, TOPIC_DENIED, Check, Right
from kafkapy.server.config import alter as config_alter
from kafkapy.server.config import describe as config_describe
from kafkapy.server.config.alter import BROKER_LOGGER_RESOURCE, BROKER_RESOURCE, TOPIC_RESOURCE

if TYPE_CHECKING:
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.configs")

CLIENT_METRICS_RESOURCE = 16
_KINDS = {TOPIC_RESOURCE: "topic", BROKER_RESOURCE: "broker", BROKER_LOGGER_RESOURCE: "log levels of broker"}
OF_CLUSTER = (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE)

Change = Callable[[dict[str, str]], dict[str, str]]  # takes the current settings, returns the new ones


def _topics(request: Any) -> list[str]:
    return [one.resource_name for one in request.resources if one.resource_type == TOPIC_RESOURCE]


def _clusters(request: Any) -> tuple[str, ...]:
    return (CLUSTER,) if any(one.resource_type in OF_CLUSTER for one in request.resources) else ()


def _checks(operation: str) -> list[Check]:
    return [
        Check(Right(operation, "TOPIC"), TOPIC_DENIED + " for the resource", _topics, only="topics"),
        Check(Right(operation, "CLUSTER"), CLUSTER_DENIED + " for the resource", _clusters, only="other resources"),
    ]


class _Denials:
    """The resources of a request for which the principal lacks the right of the request."""

    def __init__(self, call: Call) -> None:
        self._topics = call.denied_names("TOPIC")
        self._is_cluster = call.is_denied("CLUSTER")

    def code(self, resource: Any) -> int:
        """Return the error code of a denied resource, NONE for one that is not denied."""
        if resource.resource_type == TOPIC_RESOURCE:
            is_denied = resource.resource_name in self._topics
            return Errors.TOPIC_AUTHORIZATION_FAILED if is_denied else Errors.NONE
        is_denied = self._is_cluster and resource.resource_type in OF_CLUSTER
        return Errors.CLUSTER_AUTHORIZATION_FAILED if is_denied else Errors.NONE

    def check(self, resource: Any) -> None:
        """Raise KafkaError if the principal may not alter the resource."""
        code = self.code(resource)
        if code != Errors.NONE:
            raise KafkaError(code, NO_MESSAGE)


@serves(DESCRIBE_CONFIGS, pooled=True, checks=_checks("DESCRIBE_CONFIGS"))
def describe(broker: Services, call: Call, request: Any) -> Any:
    """Handle DescribeConfigs on the disk pool: return the settings of each resource, or the error of the resource.
    Denied resources come last."""
    make = DESCRIBE_CONFIGS.Response
    denials = _Denials(call)
    results, refused = [], []
    for resource in _once(request.resources):
        result = make.Results(resource_type=resource.resource_type, resource_name=resource.resource_name, configs=[])
        denied = denials.code(resource)
        if denied != Errors.NONE:
            result.error_code, result.error_message = denied, refusal(denied).message
            refused.append(result)
            continue
        try:
            entries = _describe(broker, resource)
            result.configs = [_entry(entry, request, call.version) for entry in entries]
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return make(results=results + refused)


def _once(resources: list[Any]) -> list[Any]:
    """Return the resources of a DescribeConfigs request, each of them once. Repeated resources would take much memory:
    a request names a broker in a few bytes, and the description of a broker takes a hundred kilobytes."""
    found: dict[tuple[int, str | int], Any] = {}
    for resource in resources:
        name: str | int = resource.resource_name
        if resource.resource_type in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
            with suppress(ValueError):
                name = int(name)  # "1" and "01" name the same broker
        found.setdefault((resource.resource_type, name), resource)
    return list(found.values())


def _describe(broker: Services, resource: Any) -> list[config_describe.Entry]:
    names = resource.configuration_keys
    if resource.resource_type == TOPIC_RESOURCE:
        validate_name(resource.resource_name)
        if resource.resource_name not in broker.cache:
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {resource.resource_name}")
        return config_describe.describe_topic(broker.config, broker.configs.topic(resource.resource_name), names)
    if resource.resource_type == BROKER_RESOURCE:
        if config_alter.is_one_broker(resource.resource_name, broker.broker_id):
            return config_describe.describe_broker(broker.config, names)
        return config_describe.describe_broker_default(broker.config, names)
    if resource.resource_type == BROKER_LOGGER_RESOURCE:
        _check_this_broker(broker, resource)
        return config_describe.describe_loggers(names)
    raise _unsupported(resource)


def _unsupported(resource: Any) -> KafkaError:
    return KafkaError(
        Errors.INVALID_REQUEST,
        f"resource type {resource.resource_type} is not supported: topics ({TOPIC_RESOURCE}) and brokers "
        f"({BROKER_RESOURCE}) have settings; log levels ({BROKER_LOGGER_RESOURCE}) change by IncrementalAlterConfigs",
    )


def _check_this_broker(broker: Services, resource: Any) -> None:
    """Raise KafkaError INVALID_REQUEST unless the resource is this broker: log levels have no cluster-wide default."""
    if not config_alter.is_one_broker(resource.resource_name, broker.broker_id):
        raise KafkaError(Errors.INVALID_REQUEST, "log levels are set for a single broker: give the broker's id")


def _entry(entry: config_describe.Entry, request: Any, version: int) -> Any:
    make = DESCRIBE_CONFIGS.Response.Results.Configs
    synonyms = entry.synonyms if request.include_synonyms else ()
    return make(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=version == 0 and entry.source == config_describe.Source.DEFAULT,  # later versions have config_source
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[make.Synonyms(name=one.name, value=one.value, source=one.source) for one in synonyms],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


@serves(ALTER_CONFIGS, pooled=True, checks=_checks("ALTER_CONFIGS"))
def alter(broker: Services, call: Call, request: Any) -> Any:
    """Handle AlterConfigs on the disk pool: replace all settings of each resource with those in the request, or only
    check the new settings if the request says validate_only. Return an error code for each resource."""
    denials = _Denials(call)

    def apply(resource: Any) -> None:
        settings = [(one.name, one.value) for one in resource.configs]
        new = config_alter.replaced(settings)
        _apply(broker, denials, resource, lambda _current: new, request.validate_only)
        if not request.validate_only:
            changes.changed(call, _shown(resource), changes.replaced_settings(resource.resource_type, settings))

    return _alter(ALTER_CONFIGS.Response, request, apply)


@serves(INCREMENTAL_ALTER_CONFIGS, pooled=True, checks=_checks("ALTER_CONFIGS"))
def incremental_alter(broker: Services, call: Call, request: Any) -> Any:
    """Handle IncrementalAlterConfigs on the disk pool: set or delete single settings, and append items to list settings
    or subtract items from them. Only check the changes if the request says validate_only. Return an error code for each
    resource."""
    denials = _Denials(call)

    def apply(resource: Any) -> None:
        operations = [(one.name, one.config_operation, one.value) for one in resource.configs]
        if resource.resource_type == BROKER_LOGGER_RESOURCE:
            config_alter.check_operations(operations)
            denials.check(resource)
            _check_this_broker(broker, resource)
            log_levels.alter(operations, validate_only=request.validate_only)
        else:
            edit = (
                config_alter.topic_operations
                if resource.resource_type == TOPIC_RESOURCE
                else config_alter.broker_operations
            )
            config_alter.check_operations(operations)
            _apply(broker, denials, resource, lambda current: edit(current, operations), request.validate_only)
        if not request.validate_only:
            changes.changed(call, _shown(resource), changes.changed_settings(resource.resource_type, operations))

    return _alter(INCREMENTAL_ALTER_CONFIGS.Response, request, apply)


def _shown(resource: Any) -> str:
    """Return a resource as the audit log shows it."""
    return f"{_KINDS[resource.resource_type]} {one_word(resource.resource_name) or '(default of all)'}"


def _alter(make: Any, request: Any, apply: Callable[[Any], None]) -> Any:
    twice = config_alter.repeated((one.resource_type, one.resource_name) for one in request.resources)
    responses = []
    for resource in request.resources:
        response = make.Responses(
            error_code=Errors.NONE,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            if (resource.resource_type, resource.resource_name) in twice:
                raise KafkaError(Errors.INVALID_REQUEST, "each resource may be named once in a request")
            apply(resource)
        except KafkaError as error:
            response.error_code, response.error_message = error.code, error.message or None
        responses.append(response)
    return make(responses=responses)


def _apply(broker: Services, denials: _Denials, resource: Any, change: Change, validate_only: bool) -> None:
    name = resource.resource_name
    denials.check(resource)
    if resource.resource_type == TOPIC_RESOURCE:
        broker.topic_settings.alter(name, change, validate_only=validate_only)
    elif resource.resource_type == BROKER_RESOURCE:
        per_broker = config_alter.is_one_broker(name, broker.broker_id)
        broker.dynamic_config.alter(change, per_broker=per_broker, validate_only=validate_only)
    else:
        raise _unsupported(resource)
