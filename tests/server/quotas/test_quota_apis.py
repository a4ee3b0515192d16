"""DescribeClientQuotas and AlterClientQuotas, and how quotas are stored."""

import json
import math
from urllib.parse import unquote

import pytest

from kafkapy.errors import Errors
from kafkapy.metadata import paths
from kafkapy.metadata.quotas import CONNECTIONS, CONSUMER, MUTATION, PRODUCER, REQUEST, Entity
from kafkapy.metadata.tree import Create, Delete, Set
from kafkapy.protocol.apis import (
    ALTER_CLIENT_QUOTAS,
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
)
from tests.harness.wire import Wire
from tests.server.requests import start_broker

EXACT, DEFAULT, ANY = range(3)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = start_broker(tmp_path_factory.mktemp("broker"), num_network_threads=1)
    yield running
    running.stop()


@pytest.fixture
def wire(server):
    with Wire(server.bootstrap_servers) as connection:
        yield connection
        for entity, quotas in server.services.quota_registry.all().items():
            names = {"user": entity.user, "client-id": entity.client_id, "ip": entity.ip}
            plain = {kind: None if name == "<default>" else unquote(name) for kind, name in names.items() if name}
            alter(connection, plain, dict.fromkeys(quotas))
    assert server.services.quota_registry.all() == {}
    assert server.services.quotas is None


def alteration(entity, quotas):
    make = ALTER_CLIENT_QUOTAS.Request.Entries
    return make(
        entity=[make.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            make.Ops(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in quotas.items()
        ],
    )


def alter(wire, entity, quotas, validate_only=False, version=1):
    request = ALTER_CLIENT_QUOTAS.Request(entries=[alteration(entity, quotas)], validate_only=validate_only)
    (entry,) = wire.call(ALTER_CLIENT_QUOTAS, version, request).entries
    assert {one.entity_type: one.entity_name for one in entry.entity} == entity
    return entry.error_code, entry.error_message


def describe(wire, *components, strict=False, version=1):
    make = DESCRIBE_CLIENT_QUOTAS.Request
    parts = [make.Components(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    response = wire.call(DESCRIBE_CLIENT_QUOTAS, version, make(components=parts, strict=strict))
    if response.error_code:
        return response.error_code
    return {
        tuple((one.entity_type, one.entity_name) for one in entry.entity): {one.key: one.value for one in entry.values}
        for entry in response.entries
    }


def stored(server, path):
    return json.loads(server._tree.get(path).data)


def test_quotas_are_stored_where_kafka_stores_them(server, wire):
    for entity, quotas, path, config in (
        ({"user": "a b*"}, {PRODUCER: 1024.0}, "/config/users/a%20b%2A", {PRODUCER: "1024"}),
        ({"client-id": "x/y"}, {REQUEST: 50.0}, "/config/clients/x%2Fy", {REQUEST: "50.0"}),
        ({"user": "u", "client-id": "c"}, {CONSUMER: 5.0}, "/config/users/u/clients/c", {CONSUMER: "5"}),
        ({"user": None, "client-id": None}, {MUTATION: 1.5},
         "/config/users/<default>/clients/<default>", {MUTATION: "1.5"}),
        ({"user": "<default>"}, {PRODUCER: 1.0}, "/config/users/%3Cdefault%3E", {PRODUCER: "1"}),
        ({"ip": "10.0.0.1"}, {CONNECTIONS: 7.0}, "/config/ips/10.0.0.1", {CONNECTIONS: "7"}),
        ({"ip": None}, {CONNECTIONS: 8.0}, "/config/ips/<default>", {CONNECTIONS: "8"}),
        ({"ip": "::1"}, {CONNECTIONS: 9.0}, "/config/ips/::1", {CONNECTIONS: "9"}),
    ):  # fmt: skip
        assert alter(wire, entity, quotas) == (Errors.NONE, None)
        assert stored(server, path) == {"version": 1, "config": config}
        notes = server._tree.children(paths.CONFIG_CHANGES)
        note = stored(server, f"{paths.CONFIG_CHANGES}/{notes[-1]}")
        assert note["entity_path"] == path.removeprefix("/config/")
        ((_, values),) = (pair for pair in describe(wire).items() if dict(pair[0]) == entity)
        assert values == quotas
    rates = server.services.connection_rates
    assert [rates.limit_of(one) for one in ("10.0.0.1", "::1", "10.0.0.2")] == [7, 9, 8]


def test_a_quota_that_is_removed_takes_its_empty_nodes_with_it_and_nothing_else(server, wire):
    both = {"user": "u", "client-id": "c"}
    alter(wire, both, {PRODUCER: 1.0, CONSUMER: 2.0})
    alter(wire, both, {PRODUCER: None})
    assert describe(wire) == {(("user", "u"), ("client-id", "c")): {CONSUMER: 2.0}}
    alter(wire, {"user": "u"}, {REQUEST: 3.0})
    alter(wire, both, {CONSUMER: None})
    assert server._tree.subtree("/config/users/u") == ["/config/users/u"]
    alter(wire, both, {CONSUMER: 1.0})
    alter(wire, {"user": "u"}, {REQUEST: None})
    assert server._tree.exists("/config/users/u/clients/c")
    alter(wire, both, {CONSUMER: None})
    assert not server._tree.exists("/config/users/u")
    assert alter(wire, both, {CONSUMER: None}) == (Errors.NONE, None)


def test_the_scram_credentials_of_a_user_are_kept(server, wire):
    make = ALTER_USER_SCRAM_CREDENTIALS.Request
    upsertion = make.Upsertions(name="bob", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted")
    wire.call(ALTER_USER_SCRAM_CREDENTIALS, 0, make(deletions=[], upsertions=[upsertion]))
    before = stored(server, "/config/users/bob")["config"]
    alter(wire, {"user": "bob"}, {PRODUCER: 1.0})
    assert stored(server, "/config/users/bob")["config"] == {**before, PRODUCER: "1"}
    code, _ = alter(wire, {"user": "bob"}, {"SCRAM-SHA-256": None})
    assert code == Errors.INVALID_REQUEST
    assert describe(wire) == {(("user", "bob"),): {PRODUCER: 1.0}}
    alter(wire, {"user": "bob"}, {PRODUCER: None})
    assert stored(server, "/config/users/bob")["config"] == before
    users = wire.call(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, DESCRIBE_USER_SCRAM_CREDENTIALS.Request(users=None))
    assert [one.user for one in users.results] == ["bob"]
    wire.call(
        ALTER_USER_SCRAM_CREDENTIALS,
        0,
        make(deletions=[make.Deletions(name="bob", mechanism=1)], upsertions=[]),
    )
    assert not server._tree.exists("/config/users/bob")


@pytest.mark.parametrize(
    ("entity", "quotas", "why"),
    [
        ({"user": "u"}, {PRODUCER: math.nan}, "must be greater than 0 and finite"),
        ({"user": "u"}, {PRODUCER: -1.0}, "must be greater than 0"),
        ({"user": "u"}, {PRODUCER: 0.0}, "must be greater than 0"),
        ({"user": "u"}, {PRODUCER: 1e-9}, "must be a LONG"),
        ({"user": "u"}, {PRODUCER: 1.5}, "must be a LONG"),
        ({"user": "u"}, {PRODUCER: 1e308}, "must be a LONG"),
        ({"user": "u"}, {REQUEST: math.inf}, "finite"),
        ({"user": "u"}, {REQUEST: -math.inf}, "finite"),
        ({"user": "u"}, {MUTATION: math.nan}, "finite"),
        ({"user": "u"}, {"bytes": 1.0}, "Invalid configuration key bytes"),
        ({"user": "u"}, {"bytes": None}, "Invalid configuration key bytes"),
        ({"user": "u"}, {CONNECTIONS: 1.0}, "Invalid configuration key"),
        ({"ip": "10.0.0.1"}, {PRODUCER: 1.0}, "Invalid configuration key"),
        ({"ip": "10.0.0.1"}, {CONNECTIONS: 3e9}, "must be a INT"),
        ({"ip": "10.0.0.1/8"}, {CONNECTIONS: 1.0}, "is not a valid IP or resolvable host"),
        ({"ip": "10.0.0.1", "user": "u"}, {CONNECTIONS: 1.0}, "should not be used with user/client ID"),
        ({"user": ""}, {PRODUCER: 1.0}, "Empty user not supported"),
        ({"client-id": ".."}, {PRODUCER: 1.0}, "cannot be stored"),
        ({"group": "g"}, {PRODUCER: 1.0}, "Unhandled client quota entity type: group"),
        ({}, {PRODUCER: 1.0}, "Invalid empty client quota entity"),
    ],
)
def test_invalid_quotas_are_refused(server, wire, entity, quotas, why):
    code, message = alter(wire, entity, quotas)
    assert code == Errors.INVALID_REQUEST
    assert why in message
    assert server.services.quota_registry.all() == {}


def test_the_largest_values_and_names_are_accepted(server, wire):
    name = "ü" * 10_000
    assert alter(wire, {"user": name}, {REQUEST: 1e308}) == (Errors.NONE, None)
    assert alter(wire, {"client-id": name}, {PRODUCER: 9e18}) == (Errors.NONE, None)
    assert describe(wire, ("user", EXACT, name)) == {(("user", name),): {REQUEST: 1e308}}


def test_each_entity_is_changed_on_its_own_and_twice_the_same_type_or_key_is_refused(wire):
    make = ALTER_CLIENT_QUOTAS.Request
    good, twice = alteration({"user": "good"}, {PRODUCER: 1.0}), alteration({"user": "u"}, {PRODUCER: 1.0})
    twice.ops *= 2
    same_type = alteration({"user": "u"}, {PRODUCER: 1.0})
    same_type.entity *= 2
    entries = wire.call(ALTER_CLIENT_QUOTAS, 0, make(entries=[twice, good, same_type])).entries
    assert [entry.error_code for entry in entries] == [Errors.INVALID_REQUEST, Errors.NONE, Errors.INVALID_REQUEST]
    assert describe(wire, version=0) == {(("user", "good"),): {PRODUCER: 1.0}}


def test_validate_only_stores_nothing(server, wire):
    assert alter(wire, {"user": "u"}, {PRODUCER: 1.0}, validate_only=True) == (Errors.NONE, None)
    assert alter(wire, {"user": "u"}, {PRODUCER: -1.0}, validate_only=True)[0] == Errors.INVALID_REQUEST
    assert describe(wire) == {}


U, C, UC, D, DD, IP = (
    (("user", "u"),),
    (("client-id", "c"),),
    (("user", "u"), ("client-id", "c")),
    (("user", None),),
    (("user", None), ("client-id", None)),
    (("ip", "10.0.0.1"),),
)


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, {U, C, UC, D, DD, IP}),
        ([], True, set()),
        ([("user", EXACT, "u")], False, {U, UC}),
        ([("user", EXACT, "u")], True, {U}),
        ([("user", DEFAULT, None)], False, {D, DD}),
        ([("user", DEFAULT, None)], True, {D}),
        ([("user", ANY, None)], True, {U, D}),
        ([("user", ANY, None), ("client-id", ANY, None)], True, {UC, DD}),
        ([("user", EXACT, "u"), ("client-id", EXACT, "c")], True, {UC}),
        ([("client-id", ANY, None)], False, {C, UC, DD}),
        ([("client-id", EXACT, "c")], True, {C}),
        ([("ip", ANY, None)], True, {IP}),
        ([("ip", EXACT, "10.0.0.1")], False, {IP}),
        ([("ip", DEFAULT, None)], False, set()),
        ([("user", EXACT, "")], False, set()),
        ([("user", EXACT, "<default>")], False, set()),
    ],
)
def test_filters_find_what_kafka_finds(wire, components, strict, expected):
    for entity in (U, C, UC, D, DD):
        alter(wire, dict(entity), {PRODUCER: 1.0})
    alter(wire, dict(IP), {CONNECTIONS: 1.0})
    assert set(describe(wire, *components, strict=strict)) == expected


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", EXACT, "u"), ("user", ANY, None)], Errors.INVALID_REQUEST),
        ([("user", EXACT, "u"), ("ip", ANY, None)], Errors.INVALID_REQUEST),
        ([("", ANY, None)], Errors.INVALID_REQUEST),
        ([("user", 9, None)], Errors.INVALID_REQUEST),
        ([("group", ANY, None)], Errors.UNSUPPORTED_VERSION),
    ],
)
def test_invalid_filters_are_refused(wire, components, code):
    assert describe(wire, *components) == code


def test_what_is_in_use_of_the_quotas_of_a_client_is_told(wire):
    alter(wire, {"user": None}, {REQUEST: 1e6, MUTATION: 10.0})
    alter(wire, {"client-id": "wire"}, {PRODUCER: 5.0})
    describe(wire)  # counts as a request
    usage = [("user", EXACT, "ANONYMOUS"), ("client-id", EXACT, "wire"), ("kafkapy.usage", ANY, None)]
    make = DESCRIBE_CLIENT_QUOTAS.Request
    parts = [make.Components(entity_type=kind, match_type=how, match=name) for kind, how, name in usage]
    entries = wire.call(DESCRIBE_CLIENT_QUOTAS, 1, make(components=parts, strict=True)).entries
    found = {}
    for entry in entries:
        values = {one.key: one.value for one in entry.values}
        used = values.pop("kafkapy.used")
        found[next(iter(values))] = entry.entity[0].entity_type, used
    assert set(found) == {PRODUCER, REQUEST, MUTATION}
    assert found[PRODUCER] == ("client-id", 0.0)
    assert found[MUTATION] == ("user", 0.0)
    assert found[REQUEST][1] > 0
    for wrong in (usage[1:], [*usage, ("ip", ANY, None)], [("user", ANY, None), *usage[1:]]):
        assert describe(wire, *wrong) == Errors.INVALID_REQUEST


def test_stored_values_that_cannot_be_used_limit_nothing_and_can_be_removed(server, wire, caplog):
    path = "/config/clients/odd"
    values = {PRODUCER: "NaN", CONSUMER: "-5", REQUEST: "many", MUTATION: "2.5", "other": "x"}
    server._tree.commit([Create(path, paths.to_json({"version": 1, "config": values}))])
    clients = server.services.client_quotas
    assert [clients.applied(key, "u", "odd").limit for key in (PRODUCER, CONSUMER, REQUEST, MUTATION)] == [
        None, None, None, 2.5,
    ]  # fmt: skip
    assert "producer_byte_rate=NaN" in caplog.text
    assert set(describe(wire)[(("client-id", "odd"),)]) == {PRODUCER, CONSUMER, REQUEST, MUTATION}
    assert alter(wire, {"client-id": "odd"}, {PRODUCER: None, CONSUMER: None, REQUEST: None}) == (Errors.NONE, None)
    assert stored(server, path)["config"] == {MUTATION: "2.5", "other": "x"}
    server._tree.commit([Set(path, b"not JSON")])
    assert describe(wire) == {}
    assert alter(wire, {"client-id": "odd"}, {PRODUCER: 1.0})[0] == Errors.UNKNOWN_SERVER_ERROR
    server._tree.commit([Delete(path)])


def test_quotas_apply_after_a_restart(tmp_path):
    server = start_broker(tmp_path)
    with Wire(server.bootstrap_servers) as wire:
        alter(wire, {"user": "u", "client-id": None}, {PRODUCER: 5.0})
        alter(wire, {"ip": "localhost"}, {CONNECTIONS: 6.0})
    server.stop()
    server = start_broker(tmp_path)
    try:
        assert server.services.client_quotas.applied(PRODUCER, "u", "any").limit == 5
        assert server.services.quotas is not None
        assert server.services.quota_registry.all()[Entity(ip="localhost")] == {CONNECTIONS: 6.0}
    finally:
        server.stop()
