"""Sends the cases of `tests.harness.authorization_cases` to a broker, as a user without the rights that each denies."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.protocol.headers import read_response_header
from kafkapy.protocol.message import Message
from kafkapy.server.admission import CLUSTER, Action
from tests.harness.authorization_cases import (
    CASES,
    DELETABLE,
    GROUPS,
    IDS,
    TOPICS,
    USER,
    ZSTD,
    Actions,
    Case,
    Raw,
    World,
    _batch,
    _commit,
)
from tests.harness.waiting import eventually
from tests.harness.wire import Producer, Wire

ADMIN = "admin"
PASSWORD = "secret"
SILENCE_S = 3.0  # a broker that has sent nothing for so long does not answer

# Sets what the user may not do.
Deny = Callable[[Actions], None]


class Answer(NamedTuple):
    """The body of a response; None if there is none, or if the connection was closed instead."""

    case: str
    variant: str
    body: bytes | None


def log_in(wire: Wire, user: str) -> Wire:
    """Log in with PLAIN."""
    assert wire.call(apis.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == Errors.NONE
    answer = wire.call(apis.SASL_AUTHENTICATE, 1, auth_bytes=f"\0{user}\0{PASSWORD}".encode())
    assert answer.error_code == Errors.NONE, answer
    return wire


def prepare(bootstrap: str) -> World:
    """Create the topics, groups and transactions that the cases need."""
    wire = log_in(Wire(bootstrap), ADMIN)
    for name in (*TOPICS, *DELETABLE):
        wire.create_topic(name)
    wire.create_topic(ZSTD, compression_type="zstd", message_downconversion_enable="false")
    topics = wire.call(apis.METADATA, 12, topics=None).topics
    producers = {}
    for transactional_id in IDS:
        found = wire.producer(transactional_id)
        assert isinstance(found, Producer)
        producers[transactional_id] = found
    world = World({topic.name: topic.topic_id for topic in topics}, producers)
    make = apis.PRODUCE.Request
    for name in TOPICS:
        part = make.TopicData.PartitionData(index=0, records=_batch(world))
        data = [make.TopicData(name=name, partition_data=[part])]
        answer = wire.call(apis.PRODUCE, 9, acks=1, timeout_ms=5000, topic_data=data, transactional_id=None)
        assert answer.responses[0].partition_responses[0].error_code == Errors.NONE
    assert set(wire.add(IDS[0], producers[IDS[0]], [(name, 0) for name in TOPICS])) == {Errors.NONE}
    for group in GROUPS:
        _find_group(wire, group)
        for topic in wire.call(apis.OFFSET_COMMIT, 8, _commit(group, TOPICS)).topics:
            assert topic.partitions[0].error_code == Errors.NONE
    wire.close()
    return world


def _find_group(wire: Wire, group: str) -> None:
    def found() -> bool:
        (one,) = wire.call(apis.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group]).coordinators
        if one.error_code != Errors.NONE:
            return False
        answer = wire.call(apis.OFFSET_FETCH, 7, group_id=group, topics=[])
        return bool(answer.error_code == Errors.NONE)

    eventually(found)


class Asking:
    """A connection that is opened again after the broker has closed it."""

    def __init__(self, bootstrap: str, user: str) -> None:
        self._bootstrap, self._user = bootstrap, user
        self._wire: Wire | None = None

    def ask(self, case: Case, world: World, *, silent: bool) -> bytes | None:
        wire = self._wire
        if wire is None:
            wire = self._wire = log_in(Wire(self._bootstrap, 60), self._user)
        request = case.request(world)
        if isinstance(request, Raw):
            header = struct.pack(">hhi", request.key, request.version, 7) + struct.pack(">h", 1) + b"w\0"
            wire.socket.sendall(struct.pack(">i", len(header) + len(request.body)) + header + request.body)
        else:
            wire.send(getattr(apis, case.api), case.version, request)
        wire.socket.settimeout(SILENCE_S if silent else 30)
        try:
            frame = wire.frame()
        except (AssertionError, OSError):
            self.close()
            return None
        if isinstance(request, Raw):
            return frame
        _, body = read_response_header(frame, getattr(apis, case.api), case.version)
        return bytes(frame[body:])

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


def answers(bootstrap: str, world: World, deny: Deny, cases: list[Case] = CASES) -> Iterator[Answer]:
    """Send all cases with all their variants, and yield the responses. "allowed" is the variant of a user to whom
    nothing is denied, "super user" that of a super user while everything is denied to the other one."""
    user, admin = Asking(bootstrap, USER), Asking(bootstrap, ADMIN)
    for case in cases:
        for variant, actions in case.denials.items():
            deny(actions)
            silent = variant in case.silent or variant in case.instead
            yield Answer(case.name, variant, user.ask(case, world, silent=silent))
        if case.allowed != "no":
            yield Answer(case.name, "super user", admin.ask(case, world, silent=False))
            deny([])
            yield Answer(case.name, "allowed", user.ask(case, world, silent=False))
    user.close()
    admin.close()


def open_answers(bootstrap: str, world: World, cases: list[Case] = CASES) -> Iterator[Answer]:
    """Send all cases to a broker without an authorizer, and yield the responses."""
    anybody = Asking(bootstrap, USER)
    for case in cases:
        if case.allowed != "no":
            yield Answer(case.name, "no authorizer", anybody.ask(case, world, silent=False))
    anybody.close()


def plain(value: Any) -> Any:
    """Return a message as dictionaries and lists."""
    if isinstance(value, Message):
        return {name: plain(getattr(value, name)) for name in value._fields}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return value


# --- a broker with logins and ACLs

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_TYPES = {"TOPIC": 2, "GROUP": 3, "CLUSTER": 4, "TRANSACTIONAL_ID": 5, "DELEGATION_TOKEN": 6, "USER": 7}
_OPERATIONS = {
    "ALL": 2,
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
    "CREATE_TOKENS": 13,
    "DESCRIBE_TOKENS": 14,
}
_LITERAL, _PREFIXED = 3, 4  # pattern types
_DENY, _ALLOW = 2, 3  # permissions
_ANY = 1


def settings(*, authorizer: bool, brokers_log_in: bool = False) -> dict[str, str]:
    """Return the settings of a broker for the cases, without its listeners, which are PLAINTEXT and SASL_PLAINTEXT.

    brokers_log_in: the brokers are the administrator, so that User:ANONYMOUS needs no rights.
    """
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in (ADMIN, USER))
    found = {
        "broker.id": "0",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_PLAIN} required {users};",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    if brokers_log_in:
        found["inter.broker.listener.name"] = "SASL_PLAINTEXT"
        found["sasl.mechanism.inter.broker.protocol"] = "PLAIN"
        login = f'username="{ADMIN}" password="{PASSWORD}"'
        found["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = f"{_PLAIN} required {login} {users};"
    if authorizer:
        found["authorizer.class.name"] = "kafka.security.authorizer.AclAuthorizer"
        found["super.users"] = f"User:{ADMIN}" if brokers_log_in else f"User:ANONYMOUS;User:{ADMIN}"
    return found


class Acls:
    """Sets the ACLs of one principal, as the administrator."""

    def __init__(self, bootstrap: str, principal: str = f"User:{USER}") -> None:
        self._wire = log_in(Wire(bootstrap), ADMIN)
        self._principal = principal
        self._denied: Actions = ()

    def allow_everything(self) -> None:
        """Allow everything; `deny` takes single actions away."""
        self._create([self._acl(kind, CLUSTER if kind == "CLUSTER" else "*", "ALL", _ALLOW) for kind in _TYPES])

    def deny(self, actions: Actions) -> None:
        """Deny these actions, and no others."""
        if self._denied:
            assert self._delete(_DENY) == len(set(self._denied))
        self._create([self._acl(action.resource_type, action.name, action.operation, _DENY) for action in actions])
        self._denied = actions

    def allow_only(self, actions: Iterable[Action]) -> None:
        """Allow these actions, and no others."""
        self._delete(_ALLOW)
        self._create([self._acl(action.resource_type, action.name, action.operation, _ALLOW) for action in actions])

    def allow_prefixed(self, actions: Iterable[Action]) -> None:
        """Also allow these actions on all resources whose names begin with the actions' names."""
        acls = [self._acl(action.resource_type, action.name, action.operation, _ALLOW) for action in actions]
        for acl in acls:
            acl.resource_pattern_type = _PREFIXED
        self._create(acls)

    def _delete(self, permission: int) -> int:
        make = apis.DELETE_ACLS.Request
        one = make.Filters(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=self._principal,
            host_filter=None,
            operation=_ANY,
            permission_type=permission,
        )
        (result,) = self._wire.call(apis.DELETE_ACLS, 3, filters=[one]).filter_results
        assert result.error_code == Errors.NONE, result
        return len(result.matching_acls)

    def _create(self, acls: list[Any]) -> None:
        for result in self._wire.call(apis.CREATE_ACLS, 3, creations=acls).results if acls else ():
            assert result.error_code == Errors.NONE, result

    def _acl(self, kind: str, name: str, operation: str, permission: int) -> Any:
        return apis.CREATE_ACLS.Request.Creations(
            resource_type=_TYPES[kind],
            resource_name=name,
            resource_pattern_type=_LITERAL,
            principal=self._principal,
            host="*",
            operation=_OPERATIONS[operation],
            permission_type=permission,
        )

    def close(self) -> None:
        self._wire.close()
