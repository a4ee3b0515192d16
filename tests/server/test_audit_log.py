"""The audit log: its file, repeated denials, and the lines about changes and the principals that made them."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path

import pytest

from kafkapy.errors import Errors
from kafkapy.network.connection import ANONYMOUS
from kafkapy.network.metrics import METRICS as METRICS_OF_NETWORK
from kafkapy.network.settings import UNLIMITED
from kafkapy.protocol.apis import (
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    ALTER_USER_SCRAM_CREDENTIALS,
    CREATE_ACLS,
    DELETE_ACLS,
    HEARTBEAT,
    INCREMENTAL_ALTER_CONFIGS,
    OFFSET_COMMIT,
)
from kafkapy.runtime.config_def import HIDDEN, ConfigError
from kafkapy.runtime.counters import Registry
from kafkapy.runtime.logs import AUDIT_LOGGER
from kafkapy.server.authorization.audit_log import METRICS
from kafkapy.server.config.alter import BROKER_LOGGER_RESOURCE, BROKER_RESOURCE, DELETE, SET, TOPIC_RESOURCE
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.requests import batch, make_topic, produce, start_broker

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
DENIED = (
    f"Principal = {ANONYMOUS} is Denied Operation = Write from host = 127.0.0.1 on resource = Topic:LITERAL:flights "
    "for request = Produce with resourceRefCount = 1"
)


def started(tmp_path: Path, **settings):
    settings.setdefault("kafkapy_audit_repeat_seconds", 3600)  # no window ends before the broker stops
    settings.setdefault("kafkapy_audit_file", str(tmp_path / "audit.log"))
    return start_broker(tmp_path / "data", **settings)


def values_of(registry: Registry) -> dict[str, float]:
    values = registry.read()
    return {name: values[metric][0][1] for name, metric in METRICS.items()}


def alter(wire: Wire, resource_type: int, name: str, *operations: tuple[str, int, str | None], **more) -> int:
    make = INCREMENTAL_ALTER_CONFIGS.Request
    configs = [
        make.Resources.Configs(name=key, config_operation=operation, value=value)
        for key, operation, value in operations
    ]
    resource = make.Resources(resource_type=resource_type, resource_name=name, configs=configs)
    more.setdefault("validate_only", False)
    (answer,) = wire.call(INCREMENTAL_ALTER_CONFIGS, 1, make(resources=[resource], **more)).responses
    return answer.error_code


def test_a_thousand_repeated_denials_are_two_lines_of_the_file(tmp_path: Path, capsys) -> None:
    logger = logging.getLogger(AUDIT_LOGGER)
    before = list(logger.handlers), logger.propagate
    server = started(tmp_path, authorizer_class_name=AUTHORIZER)
    with Wire(server.bootstrap_servers) as wire:
        for _ in range(1000):
            produce(wire, "flights", batch(b"value"))
    assert values_of(server.services.counters) == {"authorizer_denied": 1000, "audit_lines_lost": 0}
    server.stop()
    first, second = (tmp_path / "audit.log").read_text().splitlines()
    assert first.endswith(f"Z INFO  {AUDIT_LOGGER}  {DENIED}")
    assert second.endswith(f"Z INFO  {AUDIT_LOGGER}  {DENIED} (repeated 999 times)")
    assert "Denied" not in capsys.readouterr().err
    assert (logger.handlers, logger.propagate) == before


def test_the_file_may_have_lines_of_json(tmp_path: Path) -> None:
    server = started(tmp_path, authorizer_class_name=AUTHORIZER, kafkapy_audit_format="json")
    name = 'fl"\nights'
    with Wire(server.bootstrap_servers) as wire:
        for _ in range(3):
            produce(wire, name, batch(b"value"))
    server.stop()
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    for line in lines:
        del line["time"]
    expected = {
        "level": "INFO",
        "logger": AUDIT_LOGGER,
        "event": "authorization",
        "principal": ANONYMOUS,
        "result": "Denied",
        "operation": "Write",
        "host": "127.0.0.1",
        "resource_type": "Topic",
        "pattern_type": "LITERAL",
        "resource": name,
        "request": "Produce",
        "references": 1,
    }
    assert lines == [expected, {**expected, "repeated": 2}]


def test_the_file_has_allowed_operations_if_its_level_says_so(tmp_path: Path) -> None:
    server = started(tmp_path, authorizer_class_name=AUTHORIZER, super_users=ANONYMOUS, kafkapy_audit_level="DEBUG")
    with Wire(server.bootstrap_servers) as wire:
        make_topic(wire, "flights")
        for _ in range(3):
            produce(wire, "flights", batch(b"value"))
    server.stop()
    lines = (tmp_path / "audit.log").read_text().splitlines()
    assert sum("is Allowed Operation = Write" in line for line in lines) == 3
    assert logging.getLogger(AUDIT_LOGGER).level != logging.DEBUG


def test_changes_are_logged_with_who_and_from_where_and_without_secrets(tmp_path: Path) -> None:
    server = started(tmp_path, password_encoder_secret="encoder-secret")
    broker = str(server.services.broker_id)
    with Wire(server.bootstrap_servers) as wire:
        make_topic(wire, "flights")
        assert not alter(
            wire, TOPIC_RESOURCE, "flights", ("retention.ms", SET, "1000"), ("cleanup.policy", DELETE, None)
        )
        assert not alter(wire, TOPIC_RESOURCE, "flights", ("flush.ms", SET, "1"), validate_only=True)
        assert alter(wire, TOPIC_RESOURCE, "flights", ("retention.ms", SET, "soon"))
        assert not alter(
            wire,
            BROKER_RESOURCE,
            broker,
            ("listener.name.plaintext.ssl.keystore.password", SET, "a-password"),
            ("a.plugin.of.somebody", SET, "a-token"),
        )
        assert not alter(wire, BROKER_RESOURCE, "", ("max.connections", SET, "77"))
        assert not alter(wire, BROKER_LOGGER_RESOURCE, broker, ("server", SET, "INFO"))
        make = ALTER_CONFIGS.Request
        settings = [make.Resources.Configs(name="flush.ms", value="5")]
        replaced = make.Resources(resource_type=TOPIC_RESOURCE, resource_name="flights", configs=settings)
        wire.call(ALTER_CONFIGS, 1, make(resources=[replaced], validate_only=False))
    server.stop()
    text = (tmp_path / "audit.log").read_text()
    who = f"Principal = {ANONYMOUS} has changed"
    incremental = "from host = 127.0.0.1 for request = IncrementalAlterConfigs"
    assert [line.partition("changes  ")[2] for line in text.splitlines()] == [
        f"{who} topic flights {incremental}: retention.ms=1000, cleanup.policy deleted",
        f"{who} broker {broker} {incremental}: listener.name.plaintext.ssl.keystore.password={HIDDEN}, "
        f"a.plugin.of.somebody={HIDDEN}",
        f"{who} broker (default of all) {incremental}: max.connections=77",
        f"{who} log levels of broker {broker} {incremental}: server=INFO",
        f"{who} topic flights from host = 127.0.0.1 for request = AlterConfigs: all settings replaced, flush.ms=5",
    ]
    assert "a-password" not in text
    assert "a-token" not in text


def test_changes_of_users_and_acls_are_logged(tmp_path: Path) -> None:
    server = started(tmp_path, authorizer_class_name=AUTHORIZER, super_users=ANONYMOUS)
    with Wire(server.bootstrap_servers) as wire:
        make = ALTER_USER_SCRAM_CREDENTIALS.Request
        for user, iterations in (("alice\nroot", 4096), ("bob", 1)):
            change = make.Upsertions(
                name=user, mechanism=1, iterations=iterations, salt=b"the salt", salted_password=b"the password"
            )
            wire.call(ALTER_USER_SCRAM_CREDENTIALS, 0, make(deletions=[], upsertions=[change]))
        deletion = make.Deletions(name="alice\nroot", mechanism=1)
        wire.call(ALTER_USER_SCRAM_CREDENTIALS, 0, make(deletions=[deletion], upsertions=[]))
        creations = [
            CREATE_ACLS.Request.Creations(
                resource_type=2,
                resource_name="flights",
                resource_pattern_type=3,
                principal=principal,
                host="*",
                operation=operation,
                permission_type=3,
            )
            for principal, operation in (("User:alice", 3), ("User:bob", 4))
        ]
        answer = wire.call(CREATE_ACLS, 3, CREATE_ACLS.Request(creations=creations))
        assert [one.error_code for one in answer.results] == [Errors.NONE] * 2
        every = DELETE_ACLS.Request.Filters(
            resource_type_filter=2,
            resource_name_filter="flights",
            pattern_type_filter=3,
            principal_filter="User:bob",
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        wire.call(DELETE_ACLS, 3, DELETE_ACLS.Request(filters=[every]))
    server.stop()
    text = (tmp_path / "audit.log").read_text()
    who = f"Principal = {ANONYMOUS} has changed"
    assert [line.partition("changes  ")[2] for line in text.splitlines()] == [
        rf"{who} user alice\nroot from host = 127.0.0.1 for request = AlterUserScramCredentials: "
        "SCRAM-SHA-256 set with 4096 iterations",
        rf"{who} user alice\nroot from host = 127.0.0.1 for request = AlterUserScramCredentials: "
        "SCRAM-SHA-256 deleted",
        f"{who} ACLs of Topic:LITERAL:flights from host = 127.0.0.1 for request = CreateAcls: "
        "added: Allow Read to User:alice from host = *, added: Allow Write to User:bob from host = *",
        f"{who} ACLs of Topic:LITERAL:flights from host = 127.0.0.1 for request = DeleteAcls: "
        "deleted: Allow Write to User:bob from host = *",
    ]
    assert "the salt" not in text
    assert "the password" not in text


def alter_quotas(wire: Wire, entity: dict[str, str | None], quotas: dict[str, float | None]) -> int:
    make = ALTER_CLIENT_QUOTAS.Request.Entries
    entry = make(
        entity=[make.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[make.Ops(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )
    request = ALTER_CLIENT_QUOTAS.Request(entries=[entry], validate_only=False)
    return wire.call(ALTER_CLIENT_QUOTAS, 1, request).entries[0].error_code


def test_names_with_spaces_are_quoted_so_that_they_cannot_look_like_the_rest_of_a_line(tmp_path: Path) -> None:
    server = started(tmp_path, authorizer_class_name=AUTHORIZER, super_users="User:admin")
    name = "x for request = Produce"
    with Wire(server.bootstrap_servers) as wire:
        request = HEARTBEAT.Request(group_id=name, generation_id=1, member_id="")
        assert wire.call(HEARTBEAT, 0, request).error_code == Errors.GROUP_AUTHORIZATION_FAILED
    server.stop()
    (line,) = (tmp_path / "audit.log").read_text().splitlines()
    assert f'on resource = Group:LITERAL:"{name}" for request = Heartbeat with' in line


def test_a_client_that_may_not_use_a_group_causes_no_lines_about_its_topics(tmp_path: Path) -> None:
    server = started(tmp_path, authorizer_class_name=AUTHORIZER)
    partition = OFFSET_COMMIT.Request.Topics.Partitions(partition_index=0, committed_offset=1)
    topic = OFFSET_COMMIT.Request.Topics(name="flights", partitions=[partition])
    with Wire(server.bootstrap_servers) as wire:
        answer = wire.call(OFFSET_COMMIT, 7, OFFSET_COMMIT.Request(group_id="group", topics=[topic]))
        assert answer.topics[0].partitions[0].error_code == Errors.GROUP_AUTHORIZATION_FAILED
    server.stop()
    (line,) = (tmp_path / "audit.log").read_text().splitlines()
    assert "Operation = Read from host = 127.0.0.1 on resource = Group:LITERAL:group" in line


def test_changes_of_quotas_are_logged(tmp_path: Path) -> None:
    server = started(tmp_path)
    entity: dict[str, str | None] = {"user": "al\nice b", "client-id": None}
    with Wire(server.bootstrap_servers) as wire:
        assert not alter_quotas(wire, entity, {"producer_byte_rate": 10485761.0, "request_percentage": 50.5})
        assert not alter_quotas(wire, entity, {"producer_byte_rate": None, "request_percentage": None})
        assert alter_quotas(wire, {"ip": "10.0.0.1"}, {"connection_creation_rate": 0.3}) == Errors.INVALID_REQUEST
    server.stop()
    who = rf'Principal = {ANONYMOUS} has changed quotas of user "al\nice b" and client-id (all others)'
    assert [line.partition("changes  ")[2] for line in (tmp_path / "audit.log").read_text().splitlines()] == [
        f"{who} from host = 127.0.0.1 for request = AlterClientQuotas: producer_byte_rate=10485761, "
        "request_percentage=50.5",
        f"{who} from host = 127.0.0.1 for request = AlterClientQuotas: producer_byte_rate deleted, "
        "request_percentage deleted",
    ]


def test_an_address_that_exceeds_its_quota_of_connections_is_not_served(tmp_path: Path) -> None:
    server = started(tmp_path)
    try:
        with Wire(server.bootstrap_servers) as wire:
            for name in (None, "127.0.0.2", "localhost"):
                assert not alter_quotas(wire, {"ip": name}, {"connection_creation_rate": 1.0})
            eventually(lambda: server.services.connection_rates.limit_of("127.0.0.1") == 1)
            host, _, port = server.bootstrap_servers.partition(":")
            # The rate is measured over at least ten seconds, so a rate of 1 allows 10 connections at once.
            clients = [socket.create_connection((host, int(port))) for _ in range(15)]
            metric = METRICS_OF_NETWORK["network_connections_throttled"]
            eventually(lambda: server.services.counters.read()[metric][0][1] == 5)
            for client in clients:
                client.close()
            assert not alter_quotas(wire, {"ip": "localhost"}, {"connection_creation_rate": None})
            assert not alter_quotas(wire, {"ip": None}, {"connection_creation_rate": None})
            eventually(lambda: server.services.connection_rates.limit_of("127.0.0.1") == UNLIMITED)
    finally:
        server.stop()


def test_a_file_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"kafkapy\.audit\.file=.*/missing/audit\.log: cannot be opened: No such file"
    ):
        started(tmp_path, kafkapy_audit_file=str(tmp_path / "missing" / "audit.log"))


def test_two_brokers_of_a_process_may_have_files(tmp_path: Path) -> None:
    logger = logging.getLogger(AUDIT_LOGGER)
    before = logger.handlers[:], logger.propagate, logger.level
    servers = [
        start_broker(tmp_path / f"data-{n}", kafkapy_audit_file=str(tmp_path / f"audit-{n}.log")) for n in range(2)
    ]
    servers[0].stop()
    with Wire(servers[1].bootstrap_servers) as wire:
        assert not alter(wire, BROKER_RESOURCE, "", ("max.connections", SET, "77"))
    servers[1].stop()
    assert "max.connections=77" in (tmp_path / "audit-1.log").read_text()
    assert (logger.handlers[:], logger.propagate, logger.level) == before
