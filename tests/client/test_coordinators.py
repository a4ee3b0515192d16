"""Coordinators are found, and looked up again when they move, load or fail."""

import pytest

from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import ConnectionFailed
from kafkapy.client.groups.coordinators import GROUP, TRANSACTION, Coordinators
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol import apis

FIND = apis.FIND_COORDINATOR


@pytest.fixture
def nodes(fake_broker):
    """Return the coordinator's broker id by key; a negative number is an error code."""
    nodes = {}

    def answer(request):
        if request.coordinator_keys:
            shape = FIND.Response.Coordinators
            found = [(key, nodes.get(key, 1)) for key in request.coordinator_keys]
            return FIND.Response(
                coordinators=[
                    shape(key=key, node_id=node) if node >= 0 else shape(key=key, error_code=-node, error_message="no")
                    for key, node in found
                ]
            )
        return FIND.Response(node_id=nodes.get(request.key, 1))

    fake_broker.answers[FIND.key] = answer
    return nodes


@pytest.fixture
def cluster(fake_broker):
    with Cluster(fake_broker.address, timeout_s=5) as cluster:
        yield cluster


def described(answers):
    """Return the DescribeGroups answer of a broker: each call uses the next of `answers` (error codes by group)."""
    shape = apis.DESCRIBE_GROUPS.Response
    rest = list(answers)

    def answer(request):
        codes = rest.pop(0)
        return shape(groups=[shape.Groups(group_id=g, error_code=codes.get(g, 0)) for g in request.groups])

    return answer


def describe(connection, groups):
    response = connection.call(apis.DESCRIBE_GROUPS, apis.DESCRIBE_GROUPS.Request(groups=groups))
    return {one.group_id: KafkaError(one.error_code) if one.error_code else "here" for one in response.groups}


def describe_one(group):
    def ask(connection):
        answer = describe(connection, [group])[group]
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    return ask


def test_a_coordinator_is_looked_up_once(fake_broker, nodes, cluster):
    coordinators = Coordinators(cluster, TRANSACTION)
    assert [coordinators.node_of("a"), coordinators.node_of("a")] == [1, 1]
    (request,) = fake_broker.requests("FindCoordinator")
    assert (request.key_type, request.coordinator_keys) == (TRANSACTION, ["a"])


def test_a_broker_that_takes_one_key_at_a_time_gets_one_request_for_each(fake_broker, nodes, cluster):
    fake_broker.versions[FIND.key] = (0, 3)
    fake_broker.answers[apis.DESCRIBE_GROUPS.key] = described([{}])
    assert Coordinators(cluster, GROUP).ask_each(["a", "b"], describe) == {"a": "here", "b": "here"}
    assert [request.key for request in fake_broker.requests("FindCoordinator")] == ["a", "b"]


@pytest.mark.parametrize(
    ("code", "looked_up"),
    [(Errors.NOT_COORDINATOR, 2), (Errors.COORDINATOR_NOT_AVAILABLE, 2), (Errors.COORDINATOR_LOAD_IN_PROGRESS, 1)],
)
def test_a_moved_coordinator_is_looked_up_again_and_a_loading_one_is_waited_for(
    fake_broker, nodes, cluster, code, looked_up
):
    fake_broker.answers[apis.DESCRIBE_GROUPS.key] = described([{"a": code}, {}])
    assert Coordinators(cluster, GROUP).ask("a", describe_one("a")) == "here"
    assert len(fake_broker.requests("FindCoordinator")) == looked_up


def test_an_unreachable_coordinator_is_looked_up_again_at_the_next_call(fake_broker, second_broker, nodes, cluster):
    fake_broker.answers[apis.DESCRIBE_GROUPS.key] = second_broker.answers[apis.DESCRIBE_GROUPS.key] = described(
        [{}, {}]
    )
    nodes["a"] = 2
    coordinators = Coordinators(cluster, GROUP)
    assert coordinators.ask("a", describe_one("a")) == "here"
    second_broker.close()
    nodes["a"] = 1
    with pytest.raises(ConnectionFailed):
        coordinators.ask("a", describe_one("a"))
    assert coordinators.ask("a", describe_one("a")) == "here"


def test_an_unreachable_coordinator_of_several_keys_is_looked_up_again(fake_broker, second_broker, nodes, cluster):
    fake_broker.answers[apis.DESCRIBE_GROUPS.key] = second_broker.answers[apis.DESCRIBE_GROUPS.key] = described(
        [{}, {}]
    )
    nodes["a"] = nodes["b"] = 2
    coordinators = Coordinators(cluster, GROUP)
    assert coordinators.ask_each(["a", "b"], describe) == {"a": "here", "b": "here"}
    second_broker.close()
    nodes["a"] = nodes["b"] = 1
    with pytest.raises(ConnectionFailed):
        coordinators.ask_each(["a", "b"], describe)
    assert coordinators.ask_each(["a", "b"], describe) == {"a": "here", "b": "here"}


def test_only_the_keys_that_failed_are_asked_for_again(fake_broker, nodes, cluster):
    fake_broker.answers[apis.DESCRIBE_GROUPS.key] = described([{"b": Errors.NOT_COORDINATOR}, {}])
    assert Coordinators(cluster, GROUP).ask_each(["a", "b"], describe) == {"a": "here", "b": "here"}
    assert [request.groups for request in fake_broker.requests("DescribeGroups")] == [["a", "b"], ["b"]]


def test_each_broker_is_asked_for_what_it_coordinates(fake_broker, second_broker, nodes, cluster):
    nodes["b"] = 2
    for broker in (fake_broker, second_broker):
        broker.answers[apis.DESCRIBE_GROUPS.key] = described([{}])
    assert list(Coordinators(cluster, GROUP).ask_each(["c", "b", "a"], describe)) == ["c", "b", "a"]
    assert [request.groups for request in fake_broker.requests("DescribeGroups")] == [["c", "a"]]
    assert [request.groups for request in second_broker.requests("DescribeGroups")] == [["b"]]


def test_a_key_that_has_no_coordinator_has_an_error_of_its_own(fake_broker, nodes, cluster):
    nodes["bad"] = -Errors.INVALID_GROUP_ID
    fake_broker.answers[apis.DESCRIBE_GROUPS.key] = described([{}])
    answers = Coordinators(cluster, GROUP).ask_each(["a", "bad"], describe)
    assert answers["a"] == "here"
    assert str(answers["bad"]) == "INVALID_GROUP_ID: group 'bad': no"
    with pytest.raises(KafkaError, match="INVALID_GROUP_ID: group 'bad': no"):
        Coordinators(cluster, GROUP).node_of("bad")


def test_a_key_that_no_request_can_carry_is_an_error_of_its_own(fake_broker, nodes, cluster):
    fake_broker.answers[apis.DESCRIBE_GROUPS.key] = described([{}])
    answers = Coordinators(cluster, GROUP).ask_each(["ü" * 20_000, "b\udcff", "a"], describe)
    assert list(map(str, answers.values())) == [
        f"INVALID_GROUP_ID: group {'ü' * 20!r}...: it is longer than 32767 bytes",
        "INVALID_GROUP_ID: group 'b\\udcff': it is not in UTF-8",
        "here",
    ]


def test_an_error_that_lasts_beyond_the_time_out_is_returned(fake_broker, nodes, cluster):
    coordinators = Coordinators(cluster, GROUP)
    coordinators.connection("a")
    cluster.timeout_s = 0
    loading = KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS)
    assert coordinators.ask_each(["a"], lambda *_: {"a": loading}) == {"a": loading}


def test_a_key_that_its_coordinator_leaves_out_is_an_error(fake_broker, nodes, cluster):
    (answer,) = Coordinators(cluster, GROUP).ask_each(["a"], lambda *_: {}).values()
    assert str(answer) == "UNKNOWN_SERVER_ERROR: group 'a': the coordinator's response leaves it out"


def test_a_response_about_another_group_is_an_error(fake_broker, cluster):
    shape = FIND.Response.Coordinators
    fake_broker.answers[FIND.key] = lambda request: FIND.Response(coordinators=[shape(key="another", node_id=1)])
    with pytest.raises(KafkaError, match="group 'mine': the coordinator's response leaves it out"):
        Coordinators(cluster, GROUP).node_of("mine")
