"""DescribeClientQuotas (versions 0 to 1) and AlterClientQuotas (versions 0 to 1): the quotas of users, client ids and
IP addresses (KIP-546).

Source: kafka.server.ZkAdminManager.

Differences from Kafka:

- Quotas must be finite numbers greater than 0. Kafka with ZooKeeper also stores NaN, infinite and negative numbers and
  0, and most of them limit nothing. Kafka with KRaft refuses 0 and negative numbers, but stores NaN and infinity.
- An entity with two names of the same type, or a key that occurs twice for an entity, is INVALID_REQUEST, as with
  KRaft. With ZooKeeper the last one counts.
- The keys of SCRAM credentials are INVALID_REQUEST; in Kafka UNKNOWN_SERVER_ERROR.
- IPv6 addresses may have quotas.
- An unknown match type is INVALID_REQUEST; in Kafka UNKNOWN_SERVER_ERROR.
- An empty name in a filter finds nothing. Kafka looks up a node without a name and fails with UNKNOWN_SERVER_ERROR.
- A filter with the entity type `kafkapy.usage`, beside a user and a client id, asks which quotas apply to this client
  and how much of each is in use on this broker. Each entry of the response has the entity of a quota, its limit and, as
  `kafkapy.used`, its usage. Kafka answers UNSUPPORTED_VERSION.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.quotas import DEFAULT, LONGEST_INT, Entity
from kafkapy.metadata.tree import wait
from kafkapy.metadata.users import path_name
from kafkapy.protocol.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from kafkapy.runtime.printable import one_word
from kafkapy.server.admission import refusal
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call
from kafkapy.server.changes import changed
from kafkapy.server.checks import CLUSTER_DENIED, on_cluster

if TYPE_CHECKING:
    from kafkapy.server.services import Services

USER, CLIENT_ID, IP, USAGE = "user", "client-id", "ip", "kafkapy.usage"
USED = "kafkapy.used"
_TYPES = (USER, CLIENT_ID, IP)
EXACT, THE_DEFAULT, ANY = range(3)

Matches = Callable[[str], bool]


@serves(DESCRIBE_CLIENT_QUOTAS, pooled=True, checks=on_cluster("DESCRIBE_CONFIGS"))
def describe(broker: Services, call: Call, request: Any) -> Any:
    """Handle DescribeClientQuotas on the disk pool: return the entities that the filter matches, with their quotas."""
    make = DESCRIBE_CLIENT_QUOTAS.Response
    if call.denied:  # without a message, as from Kafka
        return make(error_code=Errors.CLUSTER_AUTHORIZATION_FAILED, error_message=None, entries=None)
    try:
        if any(one.entity_type == USAGE for one in request.components):
            return make(error_code=Errors.NONE, error_message=None, entries=_usage(broker, request))
        matches = _filter(request)
    except KafkaError as error:
        return make(error_code=error.code, error_message=error.message, entries=None)
    entries = [_entry(entity, quotas) for entity, quotas in broker.quota_registry.all().items() if matches(entity)]
    return make(error_code=Errors.NONE, error_message=None, entries=entries)


def _filter(request: Any) -> Callable[[Entity], bool]:
    """Return the function that decides which entities a request is for. Raise KafkaError for an invalid filter."""
    found: dict[str, Matches] = {}
    for one in request.components:
        if not one.entity_type:
            raise KafkaError(Errors.INVALID_REQUEST, "Unexpected empty filter component entity type")
        if one.entity_type not in _TYPES:
            raise KafkaError(Errors.UNSUPPORTED_VERSION, f"Custom entity type '{one.entity_type}' not supported")
        if one.entity_type in found:
            raise KafkaError(Errors.INVALID_REQUEST, f"Duplicate {one.entity_type} filter component entity type")
        found[one.entity_type] = _match(one)
    if IP in found and len(found) > 1:
        raise KafkaError(
            Errors.INVALID_REQUEST,
            "Invalid entity filter component combination, IP filter component should not be used with user or clientId "
            "filter component.",
        )
    unnamed: Matches = (lambda name: not name) if request.strict else (lambda name: True)
    of_user, of_client, of_ip = (found.get(kind, unnamed) for kind in _TYPES)
    if IP in found:
        return lambda entity: bool(entity.ip) and of_ip(entity.ip)
    return lambda entity: of_user(entity.user) and of_client(entity.client_id) and of_ip(entity.ip)


def _usage(broker: Services, request: Any) -> list[Any]:
    names = {one.entity_type: one.match for one in request.components if one.match_type == EXACT}
    if set(names) != {USER, CLIENT_ID} or len(request.components) != 3 or None in names.values():
        raise KafkaError(Errors.INVALID_REQUEST, f"{USAGE} needs the name of one user and of one client id")
    used = broker.client_quotas.usage(names[USER], names[CLIENT_ID])
    return [_entry(Entity(*one.entity), {one.key: one.limit, USED: one.used}) for one in used]


def _match(component: Any) -> Matches:
    if component.match_type == EXACT and component.match is not None:
        wanted = component.match if component.entity_type == IP else path_name(component.match)
        return lambda name: name == wanted != ""
    if component.match_type == THE_DEFAULT:
        return lambda name: name == DEFAULT
    if component.match_type == ANY:
        return bool
    raise KafkaError(Errors.INVALID_REQUEST, f"Unexpected match type: {component.match_type}")


def _entry(entity: Entity, quotas: Mapping[str, float]) -> Any:
    make = DESCRIBE_CLIENT_QUOTAS.Response.Entries
    names = [(USER, entity.user), (CLIENT_ID, entity.client_id), (IP, entity.ip)]
    return make(
        entity=[
            make.Entity(entity_type=kind, entity_name=None if name == DEFAULT else unquote(name))
            for kind, name in names
            if name
        ],
        values=[make.Values(key=key, value=value) for key, value in sorted(quotas.items())],
    )


@serves(ALTER_CLIENT_QUOTAS, pooled=True, checks=on_cluster("ALTER_CONFIGS", CLUSTER_DENIED + " for each entity"))
def alter(broker: Services, call: Call, request: Any) -> Any:
    """Handle AlterClientQuotas on the disk pool: set and remove the quotas of each entity independently of the others,
    or only check them if the request says validate_only. Return an error code for each entity."""
    make = ALTER_CLIENT_QUOTAS.Response
    entries = []
    for one in request.entries:
        names = [make.Entries.Entity(entity_type=each.entity_type, entity_name=each.entity_name) for each in one.entity]
        entry = make.Entries(error_code=Errors.NONE, error_message=None, entity=names)
        try:
            if call.denied:
                raise refusal(Errors.CLUSTER_AUTHORIZATION_FAILED)
            entity = _entity(one.entity)
            changes = _changes(entity, one.ops)
            if not request.validate_only:
                wait(broker.quota_registry.alter, entity, changes)
                changed(call, _shown(one.entity), [_shown_change(*change) for change in changes.items()])
        except KafkaError as error:
            entry.error_code, entry.error_message = error.code, error.message
        entries.append(entry)
    return make(entries=entries)


def _shown(parts: Any) -> str:
    """Return an entity as the audit log shows it, such as "quotas of user alice and client-id (all others)"."""
    names = (
        f"{one.entity_type} {'(all others)' if one.entity_name is None else one_word(one.entity_name)}" for one in parts
    )
    return "quotas of " + " and ".join(names)


def _shown_change(key: str, value: float | None) -> str:
    if value is None:
        return f"{key} deleted"
    return f"{key}={int(value) if value.is_integer() else value}"


def _entity(parts: Any) -> Entity:
    names: dict[str, str] = {}
    for part in parts:
        kind, name = part.entity_type, part.entity_name
        if kind not in _TYPES:
            raise KafkaError(Errors.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if kind in names:
            raise KafkaError(Errors.INVALID_REQUEST, f"Invalid client quota entity, duplicate entity entry {kind}")
        if name == "":
            raise KafkaError(Errors.INVALID_REQUEST, f"Empty {kind} not supported")
        if name in (".", ".."):  # the tree has no nodes with these names
            raise KafkaError(Errors.INVALID_REQUEST, f"a quota of the {kind} '{name}' cannot be stored")
        names[kind] = DEFAULT if name is None else name if kind == IP else path_name(name)
    if not names:
        raise KafkaError(Errors.INVALID_REQUEST, "Invalid empty client quota entity")
    if IP in names:
        if len(names) > 1:
            raise KafkaError(
                Errors.INVALID_REQUEST,
                "Invalid quota entity combination, IP entity should not be used with user/client ID entity.",
            )
        _check_address(names[IP])
    return Entity(names.get(USER, ""), names.get(CLIENT_ID, ""), names.get(IP, ""))


def _check_address(name: str) -> None:
    if name == DEFAULT:
        return
    try:
        if "/" in name or "%" in name:
            raise OSError("not an address")
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        raise KafkaError(Errors.INVALID_REQUEST, f"{name} is not a valid IP or resolvable host.") from None


def _changes(entity: Entity, operations: Any) -> dict[str, float | None]:
    changes: dict[str, float | None] = {}
    for one in operations:
        if one.key in changes:
            raise KafkaError(Errors.INVALID_REQUEST, f"Duplicate quota key {one.key}")
        if one.key not in entity.keys:
            raise KafkaError(Errors.INVALID_REQUEST, f"Invalid configuration key {one.key}")
        if not one.remove:
            _check_value(one.key, one.value, entity.keys[one.key])
        changes[one.key] = None if one.remove else one.value
    return changes


def _check_value(key: str, value: float, largest: int | None) -> None:
    if not math.isfinite(value) or value <= 0:
        raise KafkaError(Errors.INVALID_REQUEST, f"Quota {key} must be greater than 0 and finite, not {value}")
    if largest is not None and not (0.5 < value <= largest and abs(round(value) - value) <= 1e-6):
        kind = "LONG" if largest > LONGEST_INT else "INT"
        raise KafkaError(Errors.INVALID_REQUEST, f"Configuration {key} must be a {kind} value")
