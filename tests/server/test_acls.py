"""ACLs over the wire: CreateAcls, DescribeAcls and DeleteAcls, what they change, and what a broken tree does."""

import logging
import sys
import threading

import pytest

from kafkapy.errors import Errors
from kafkapy.metadata.tree import Create, Delete
from kafkapy.protocol.apis import CREATE_ACLS, DELETE_ACLS, DELETE_RECORDS, DESCRIBE_ACLS, FETCH, METADATA, PRODUCE
from kafkapy.protocol.headers import request_frame
from kafkapy.runtime.logs import AUDIT_LOGGER
from kafkapy.security.acls.bindings import OPERATIONS, PATTERN_TYPES, PERMISSIONS, RESOURCE_TYPES
from kafkapy.server import log_levels
from kafkapy.server.config.alter import SET
from kafkapy.server.dispatcher import Dispatcher
from tests.harness.wire import Wire
from tests.server.lab import held
from tests.server.requests import VERSION, batch, fetch_of_partitions, make_topic, produce, request, start_broker

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
ADMIN, ALICE = "User:admin", "User:alice"


@pytest.fixture
def server(tmp_path):
    running = start_broker(tmp_path, authorizer_class_name=AUTHORIZER, super_users=ADMIN, num_partitions=1)
    yield running
    running.stop()


def wire_of(server, principal):
    """Return a connection that has logged in as this principal."""
    wire = Wire(server.bootstrap_servers)
    wire.call(METADATA, 12, METADATA.Request(topics=[]))  # so that the broker has accepted the connection
    (connection,) = (
        one
        for processor in server._network._processors
        for one in processor._connections.values()
        if one.peer == wire.socket.getsockname()
    )
    connection.principal = principal
    return wire


@pytest.fixture
def admin(server):
    with wire_of(server, ADMIN) as wire:
        make_topic(wire, "flights")
        yield wire


@pytest.fixture
def alice(server, admin):
    with wire_of(server, ALICE) as wire:
        yield wire


def creation(
    resource_type="TOPIC",
    name="flights",
    pattern_type="LITERAL",
    principal=ALICE,
    host="*",
    operation="WRITE",
    permission="ALLOW",
):
    return CREATE_ACLS.Request.Creations(
        resource_type=RESOURCE_TYPES.get(resource_type, resource_type),
        resource_name=name,
        resource_pattern_type=PATTERN_TYPES.get(pattern_type, pattern_type),
        principal=principal,
        host=host,
        operation=OPERATIONS.get(operation, operation),
        permission_type=PERMISSIONS.get(permission, permission),
    )


def create(wire, *creations):
    results = wire.call(CREATE_ACLS, 3, CREATE_ACLS.Request(creations=list(creations))).results
    return [(one.error_code, one.error_message) for one in results]


def described(wire, resource_type="ANY", name=None, pattern_type="ANY", principal=None, version=3):
    answer = wire.call(
        DESCRIBE_ACLS,
        version,
        resource_type_filter=RESOURCE_TYPES[resource_type],
        resource_name_filter=name,
        pattern_type_filter=PATTERN_TYPES[pattern_type],
        principal_filter=principal,
        host_filter=None,
        operation=OPERATIONS["ANY"],
        permission_type=PERMISSIONS["ANY"],
    )
    if answer.error_code:
        return answer.error_code, answer.error_message
    return [(one.resource_name, sorted(acl.principal for acl in one.acls)) for one in answer.resources]


def deletion(resource_type="ANY", name=None, pattern_type="ANY", principal=None):
    return DELETE_ACLS.Request.Filters(
        resource_type_filter=RESOURCE_TYPES.get(resource_type, resource_type),
        resource_name_filter=name,
        pattern_type_filter=PATTERN_TYPES[pattern_type],
        principal_filter=principal,
        host_filter=None,
        operation=OPERATIONS["ANY"],
        permission_type=PERMISSIONS["ANY"],
    )


def delete(wire, *filters):
    results = wire.call(DELETE_ACLS, 3, DELETE_ACLS.Request(filters=list(filters))).filter_results
    return [
        (one.error_code, one.error_message, [(acl.resource_name, acl.principal) for acl in one.matching_acls])
        for one in results
    ]


def produced(wire, topic="flights"):
    return produce(wire, topic, batch(b"x")).error_code


GOOD = (Errors.NONE, "")
UNEXPECTED = (Errors.UNKNOWN_SERVER_ERROR, None)
FAILED = (Errors.INVALID_REQUEST, "Failed to create ACL")


def test_a_right_counts_from_the_answer_on_and_is_lost_with_the_answer_too(admin, alice) -> None:
    assert produced(alice) == Errors.TOPIC_AUTHORIZATION_FAILED
    for _ in range(3):
        assert create(admin, creation()) == [GOOD]
        assert produced(alice) == Errors.NONE
        assert produced(alice) == Errors.NONE
        assert delete(admin, deletion("TOPIC", "flights", "LITERAL")) == [(0, None, [("flights", ALICE)])]
        assert produced(alice) == Errors.TOPIC_AUTHORIZATION_FAILED
    assert produced(admin) == Errors.NONE


def test_acls_are_described_by_pattern_and_as_matches_of_a_name(admin) -> None:
    every = [
        creation(),
        creation(principal="User:bob"),
        creation(name="*"),
        creation(name="fl", pattern_type="PREFIXED"),
        creation("DELEGATION_TOKEN", "t", operation="DESCRIBE"),
        creation("USER", "User:carol", operation="CREATE_TOKENS"),
    ]
    assert create(admin, *every) == [GOOD] * len(every)
    assert described(admin, "TOPIC") == [("*", [ALICE]), ("fl", [ALICE]), ("flights", [ALICE, "User:bob"])]
    assert described(admin, "TOPIC", "flights", "MATCH") == described(admin, "TOPIC")
    assert described(admin, "TOPIC", "flights") == [("flights", [ALICE, "User:bob"])]
    assert described(admin, "TOPIC", "flights", "MATCH", "User:bob") == [("flights", ["User:bob"])]
    assert described(admin, "TOPIC", "fl", "PREFIXED") == [("fl", [ALICE])]
    assert described(admin, "USER") == [("User:carol", [ALICE])]
    # Version 0 has no pattern types, so the response has only literal patterns.
    assert described(admin, "TOPIC", pattern_type="LITERAL", version=0) == [
        ("*", [ALICE]),
        ("flights", [ALICE, "User:bob"]),
    ]


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"name": ""}, (Errors.INVALID_REQUEST, "Invalid empty resource name")),
        ({"name": "a/b"}, FAILED),
        ({"operation": 99}, FAILED),
        ({"resource_type": 99}, FAILED),
        ({"pattern_type": 99}, FAILED),
        ({"permission": 99}, FAILED),
        (
            {"resource_type": "CLUSTER", "name": "mine"},
            (Errors.INVALID_REQUEST, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ),
        ({"name": "."}, UNEXPECTED),
    ],
)
def test_an_invalid_acl_is_refused_and_the_others_are_stored(admin, wrong, expected) -> None:
    assert create(admin, creation(name="good"), creation(**wrong)) == [GOOD, expected]
    assert described(admin) == [("good", [ALICE])]


@pytest.mark.parametrize("principal", ["", "alice"])
def test_without_a_principal_no_acl_of_the_resource_is_stored(admin, principal) -> None:
    asked = [creation(), creation(principal=principal), creation(name="other")]
    assert create(admin, *asked) == [UNEXPECTED, UNEXPECTED, GOOD]
    assert described(admin) == [("other", [ALICE])]


@pytest.mark.parametrize(
    "wrong", [{"operation": "ANY"}, {"resource_type": "ANY"}, {"pattern_type": "MATCH"}, {"permission": "ANY"}]
)
def test_what_only_filters_may_have_fails_the_whole_request(admin, wrong) -> None:
    assert create(admin, creation(), creation(**wrong)) == [UNEXPECTED] * 2
    assert described(admin) == []


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission"])
def test_code_zero_closes_the_connection(server, admin, field, caplog) -> None:
    with wire_of(server, ADMIN) as wire, pytest.raises(AssertionError, match="closed the connection"):
        create(wire, creation(**{field: 0}))
    assert "CreateAcls v3: an ACL or a filter has the code 0 (UNKNOWN)" in caplog.text
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("api", [DESCRIBE_ACLS, DELETE_ACLS], ids=["DescribeAcls", "DeleteAcls"])
@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
def test_code_zero_in_a_filter_closes_the_connection(server, admin, api, field, caplog) -> None:
    fields = dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), 1)
    names = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    fields |= {**names, field: 0}
    if api is DELETE_ACLS:
        fields = {"filters": [DELETE_ACLS.Request.Filters(**fields)]}
    with wire_of(server, ADMIN) as wire, pytest.raises(AssertionError, match="closed the connection"):
        wire.call(api, 3, **fields)
    assert f"{api.name} v3: an ACL or a filter has the code 0 (UNKNOWN)" in caplog.text
    assert not [record for record in caplog.records if record.exc_info]


def test_a_filter_with_an_unknown_pattern_type_deletes_nothing_beside_one_that_does(admin) -> None:
    create(admin, creation())
    unknown = deletion("TOPIC", "flights")
    unknown.pattern_type_filter = 9
    assert delete(admin, deletion("TOPIC"), unknown) == [(0, None, [("flights", ALICE)]), (0, None, [])]


def test_long_and_strange_names_are_stored_and_decide(admin, alice) -> None:
    strange = ["x" * 32_000, "*", "ü\u3042", " ", "a:b,c", "%2F"]
    asked = [creation(name=name, pattern_type=kind) for name in strange for kind in ("LITERAL", "PREFIXED")]
    asked.append(creation(host="10.0.0.0/8", principal="User:network"))
    assert create(admin, *asked) == [GOOD] * len(asked)
    assert {name for name, _ in described(admin)} == {*strange, "flights"}
    assert produced(alice) == Errors.NONE  # the literal "*" matches all topics
    assert delete(admin, deletion("TOPIC", "*", "LITERAL"))[0][2] == [("*", ALICE)]
    assert produced(alice) == Errors.TOPIC_AUTHORIZATION_FAILED  # a prefixed "*" is no wildcard


def test_an_acl_that_several_filters_delete_belongs_to_the_first(admin) -> None:
    create(admin, creation(), creation(principal="User:bob"))
    assert delete(admin, deletion(principal="User:bob"), deletion("TOPIC"), deletion(99)) == [
        (0, None, [("flights", "User:bob")]),
        (0, None, [("flights", ALICE)]),
        (0, None, []),
    ]


def test_denied_clients_neither_see_nor_change_acls(admin, alice) -> None:
    denied = (Errors.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    assert create(alice, creation(), creation()) == [denied] * 2
    assert described(alice) == denied
    assert delete(alice, deletion()) == [(*denied, [])]
    cluster = {"resource_type": "CLUSTER", "name": "kafka-cluster"}
    create(admin, creation(**cluster, operation="ALTER"))
    assert create(alice, creation()) == [GOOD]
    assert len(described(alice)) == 2  # Alter implies Describe


def test_without_an_authorizer_there_is_no_security(tmp_path) -> None:
    server = start_broker(tmp_path)
    try:
        with Wire(server.bootstrap_servers) as wire:
            disabled = Errors.SECURITY_DISABLED
            assert described(wire) == (disabled, "No Authorizer is configured on the broker")
            assert create(wire, creation()) == [(disabled, "No Authorizer is configured.")]
            assert delete(wire, deletion()) == [(disabled, "No Authorizer is configured.", [])]
    finally:
        server.stop()


def test_acls_outlive_a_restart(tmp_path) -> None:
    server = start_broker(tmp_path, authorizer_class_name=AUTHORIZER, super_users=ADMIN)
    with wire_of(server, ADMIN) as wire:
        create(wire, creation(name="fl", pattern_type="PREFIXED"))
    server.stop()
    server = start_broker(tmp_path, authorizer_class_name=AUTHORIZER, super_users=ADMIN)
    with wire_of(server, ADMIN) as wire:
        assert described(wire) == [("fl", [ALICE])]
    server.stop()


def test_half_written_acls_close_their_resource_only(server, admin, alice, caplog) -> None:
    create(admin, creation(name="*"))
    make_topic(admin, "other")
    assert produced(alice) == Errors.NONE
    server._tree.commit([Create("/kafka-acl/Topic/flights", b'{"version":1,"acls":[{"principal":"User:al')])
    assert produced(alice) == Errors.TOPIC_AUTHORIZATION_FAILED
    assert produced(alice, "other") == Errors.NONE
    assert produced(admin) == Errors.NONE
    assert [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()] != []
    server._tree.commit([Delete("/kafka-acl/Topic/flights")])
    assert produced(alice) == Errors.NONE


@pytest.fixture
def audit():
    """Return a list that gets (level, message) of each line of the audit log."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.levelname, record.getMessage()))
    logger = logging.getLogger(AUDIT_LOGGER)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(before)


def test_the_audit_log_has_kafkas_line_for_each_denial(admin, alice, audit) -> None:
    produced(alice)
    produced(admin)
    assert audit == [
        (
            "INFO",
            "Principal = User:alice is Denied Operation = Write from host = 127.0.0.1 on resource = "
            "Topic:LITERAL:flights for request = Produce with resourceRefCount = 1",
        )
    ]


def test_with_debug_every_allowed_operation_is_a_line(admin, audit) -> None:
    def lines():
        audit.clear()
        for _ in range(3):
            assert produced(admin) == Errors.NONE
        return [level for level, line in audit if "Operation = Write" in line and "is Allowed" in line]

    assert lines() == []
    log_levels.alter([(AUDIT_LOGGER, SET, "DEBUG")], validate_only=False)
    assert lines() == ["DEBUG"] * 3
    log_levels.alter([(AUDIT_LOGGER, SET, "INFO")], validate_only=False)
    assert lines() == []


def test_a_request_for_known_topics_costs_one_more_call_than_without_an_authorizer(server, admin, monkeypatch) -> None:
    """The ACLs are not evaluated again: one call compares the generation, and the topics are looked up in a set."""
    (connection,) = server._network._processors[0]._connections.values()
    dispatcher, authorizer = Dispatcher(server.services), server.services.authorizer
    monkeypatch.setattr(connection.processor, "together", False)
    fetch = fetch_of_partitions("flights", [0])
    for api, version, message in ((PRODUCE, VERSION, request("flights", batch(b"x"))), (FETCH, 12, fetch)):
        frame = request_frame(api, version, 1, "wire", message)[4:]

        def calls(frame=frame):
            """Return the number of calls of kafkapy functions while ten of the requests are handled."""
            found = 0

            def count(event_frame, event, _):
                nonlocal found
                found += event == "call" and str(event_frame.f_globals.get("__name__")).startswith("kafkapy.")

            sys.setprofile(count)
            try:
                dispatcher.handle(connection, [memoryview(bytearray(frame)) for _ in range(10)])
            finally:
                sys.setprofile(None)
            return found

        with held(server):
            calls()  # evaluates the ACLs once
            with_acls = min(calls() for _ in range(3))
            monkeypatch.setattr(server.services, "authorizer", None)
            calls()
            without = min(calls() for _ in range(3))
            monkeypatch.setattr(server.services, "authorizer", authorizer)
        # Produce requests of a connection are handled together, fetches one after the other.
        assert with_acls - without <= (1 if api is PRODUCE else 10)


def test_a_request_that_names_very_many_topics_is_authorized_on_a_pool(server, admin, alice, monkeypatch) -> None:
    plain, threads = server.services.authorizer.denied, []

    def denied(call, actions, **how):
        threads.append(threading.current_thread().name)
        return plain(call, actions, **how)

    monkeypatch.setattr(server.services.authorizer, "denied", denied)
    create(admin, creation(operation="DELETE"))
    threads.clear()
    make = DELETE_RECORDS.Request

    def codes(count):
        names = ["flights", *(f"t{number}" for number in range(count - 1))]
        partitions = [make.Topics.Partitions(partition_index=0, offset=0)]
        asked = make(topics=[make.Topics(name=name, partitions=partitions) for name in names], timeout_ms=1000)
        alice.send(DELETE_RECORDS, 2, asked)
        alice.send(DELETE_RECORDS, 2, asked)
        answers = [alice.receive(DELETE_RECORDS, 2)[1] for _ in range(2)]
        return [{one.name: one.partitions[0].error_code for one in answer.topics} for answer in answers]

    for count, name in ((1000, "network"), (1001, "disk")):
        for found in codes(count):
            assert found.pop("flights") == Errors.NONE
            assert len(found) == count - 1
            assert set(found.values()) == {Errors.TOPIC_AUTHORIZATION_FAILED}
        assert len(threads) == 2
        assert all(name in thread for thread in threads)
        threads.clear()
