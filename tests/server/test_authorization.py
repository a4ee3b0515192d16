"""Responses to clients without a right, for every row of tests/data/facts/authorization-3.9.tsv, compared with those of
Apache Kafka 3.9.1 to the same requests (tests/data/authorization): byte for byte where Kafka's order is fixed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import pytest

from kafkapy.protocol import apis
from kafkapy.server.admission import Action, Authorizer
from kafkapy.server.api_table import TABLE
from kafkapy.server.broker import BrokerServer
from kafkapy.server.call import Call
from kafkapy.server.checks import NoCheck, Right
from kafkapy.server.config.broker_config import BrokerConfig
from tests.harness.authorization import Acls, Answer, answers, open_answers, plain, prepare, settings
from tests.harness.authorization_cases import CASES, Case

Closed = tuple["Recording", dict[str, set[Right]]]  # responses, and the rights that were asked for, by API

DATA = Path(__file__).parents[1] / "data"
FACTS = DATA / "facts" / "authorization-3.9.tsv"
RECORDED = DATA / "authorization" / "kafka-3.9.1.jsonl"
DENIALS = {29, 30, 31, 53, 65}  # the error codes of missing rights
# Fields that differ from broker to broker.
HERE = {"host", "port", "cluster_id", "controller_id", "throttle_time_ms"}
# Fields that say what a part of a response is about, and which operations the client is authorized for.
IDENTITY = {
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "partition",
    "partition_index",
    "partition_id",
    "index",
    "group_id",
    "transactional_id",
    "key",
    "resource_type",
    "resource_name",
    "user",
    "feature",
    "cluster_authorized_operations",
    "topic_authorized_operations",
    "authorized_operations",
}


class Recording:
    """The responses of one broker, in which topic ids are names."""

    def __init__(self, topic_ids: dict[str, bytes]) -> None:
        self.topic_ids = topic_ids
        self.bodies: dict[tuple[str, str], bytes | None] = {}

    def add(self, answer: Answer) -> None:
        self.bodies[answer.case, answer.variant] = answer.body

    def exactly(self, case: Case, variant: str) -> bytes | None:
        """Return the bytes of a response, None if there was none, with topic names in the place of topic ids."""
        body = self.bodies[case.name, variant]
        for name, topic_id in self.topic_ids.items():
            body = None if body is None else body.replace(topic_id, name.encode().ljust(16))
        return body

    def fields(self, case: Case, variant: str) -> Any:
        """Return a response as dictionaries and lists, None if there was none."""
        body = self.bodies[case.name, variant]
        if body is None:
            return None
        found = plain(getattr(apis, case.api).decode_response(body, case.version))
        return _canonical(found, {topic_id.hex(): name for name, topic_id in self.topic_ids.items()})


def _canonical(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(one, names) for key, one in value.items() if key not in HERE}
    if isinstance(value, list):
        return sorted((_canonical(one, names) for one in value), key=repr)
    return names.get(value, value) if isinstance(value, str) else value


def without(value: Any, masked: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {key: without(one, masked) for key, one in value.items() if key not in masked}
    return [without(one, masked) for one in value] if isinstance(value, list) else value


def outline(value: Any) -> Any:
    """Return only the error codes of a response, and the fields that say what they are about."""
    if isinstance(value, dict):
        kept = {
            key: outline(one)
            for key, one in value.items()
            if isinstance(one, (dict, list)) or key in IDENTITY or key.endswith("error_code")
        }
        return {key: one for key, one in kept.items() if one not in ([], {})}
    return sorted((outline(one) for one in value), key=repr) if isinstance(value, list) else value


def codes(value: Any) -> list[int]:
    """Return all error codes of a response."""
    if isinstance(value, dict):
        own = [one for key, one in value.items() if key.endswith("error_code")]
        return own + [code for one in value.values() for code in codes(one)]
    return [code for one in value for code in codes(one)] if isinstance(value, list) else []


class Spy:
    """Wraps a broker's authorizer, and records the rights that it is asked for, by API."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self.asked: dict[str, set[Right]] = defaultdict(set)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._authorizer, name)

    def denied(self, call: Call, actions: Collection[Action], *, grants: bool = True, **options: Any) -> Any:
        if grants:
            self.asked[call.served.api.name] |= {Right(one.operation, one.resource_type) for one in actions}
        return self._authorizer.denied(call, actions, grants=grants, **options)

    def allowed_on_some(self, call: Call, operation: str, resource_type: str) -> bool:
        self.asked[call.served.api.name].add(Right(operation, resource_type))
        return self._authorizer.allowed_on_some(call, operation, resource_type)


def read() -> dict[bool, Recording]:
    found: list[Recording] = []
    for line in RECORDED.read_text().splitlines():
        one = json.loads(line)
        if "topic_ids" in one:
            found.append(Recording({name: bytes.fromhex(topic_id) for name, topic_id in one["topic_ids"].items()}))
        else:
            body = None if one["body"] is None else bytes.fromhex(one["body"])
            found[-1].add(Answer(one["case"], one["variant"], body))
    return dict(zip((True, False), found, strict=True))


def is_served(case: Case) -> bool:
    api = getattr(apis, case.api, None)
    return not case.api or (api is not None and TABLE.find(api.key) is not None)


SERVED = [case for case in CASES if is_served(case)]


def run(directory: Path, *, authorizer: bool) -> Closed:
    """Send the cases to a broker of kafkapy. Return its responses, and the rights that it asked for, by API."""
    config = {
        "log.dirs": str(directory),
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        **settings(authorizer=authorizer),
    }
    server = BrokerServer(BrokerConfig(config))
    server.start()
    try:
        assert server.wait_until_loaded(60)
        bootstrap = server.bootstrap_servers.split(",")[1]
        world = prepare(bootstrap)
        ours = Recording(dict(world.topic_ids))
        if not authorizer:
            for answer in open_answers(bootstrap, world, SERVED):
                ours.add(answer)
            return ours, {}
        acls = Acls(bootstrap)
        acls.allow_everything()
        assert server.services.authorizer is not None
        spy = Spy(server.services.authorizer)
        server.services.authorizer = cast("Authorizer", spy)
        for answer in answers(bootstrap, world, acls.deny, SERVED):
            ours.add(answer)
        acls.close()
        return ours, spy.asked
    finally:
        server.stop()


@pytest.fixture(scope="module")
def kafka() -> dict[bool, Recording]:
    return read()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Closed:
    return run(tmp_path_factory.mktemp("closed"), authorizer=True)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return run(tmp_path_factory.mktemp("open"), authorizer=False)[0]


VARIANTS = [(case, variant) for case in SERVED for variant in case.denials]
ALLOWED = [case for case in SERVED if case.allowed != "no"]


def name_of(value: Any) -> str:
    return value.name if isinstance(value, Case) else str(value)


@pytest.mark.parametrize(("case", "variant"), VARIANTS, ids=name_of)
def test_a_denial_is_that_of_kafka(closed: Closed, kafka: dict[bool, Recording], case: Case, variant: str) -> None:
    ours, theirs = closed[0], kafka[True]
    if variant in case.instead:
        expected = case.instead[variant][1]
        if expected is None:
            assert ours.bodies[case.name, variant] is None
            return
        assert tuple(code for code in codes(ours.fields(case, variant)) if code) == expected
        assert theirs.bodies[case.name, variant] is None or codes(theirs.fields(case, variant)) != list(expected)
        return
    if not case.api:
        assert ours.bodies[case.name, variant] == theirs.bodies[case.name, variant] is None
        return
    assert without(ours.fields(case, variant), case.masked) == without(theirs.fields(case, variant), case.masked)
    if variant in case.exact:
        assert ours.exactly(case, variant) == theirs.exactly(case, variant)


@pytest.mark.parametrize("case", ALLOWED, ids=name_of)
@pytest.mark.parametrize("variant", ["allowed", "super user", "no authorizer"])
def test_who_may_do_it_gets_the_error_codes_of_kafka(
    closed: Closed,
    opened: Recording,
    kafka: dict[bool, Recording],
    case: Case,
    variant: str,
) -> None:
    authorizer = variant != "no authorizer"
    ours, theirs = closed[0] if authorizer else opened, kafka[authorizer]
    if case.allowed == "codes":
        found, expected = (outline(one.fields(case, variant)) for one in (ours, theirs))
        assert found == expected
    else:
        assert not DENIALS & set(codes(ours.fields(case, variant)))
        assert not DENIALS & set(codes(theirs.fields(case, variant)))


def test_every_row_of_the_facts_has_a_case() -> None:
    """Rows that begin with (rule) are about the authorizer itself, which has tests of its own."""
    rows = [line.split("\t") for line in FACTS.read_text().splitlines()[1:]]
    assert {(row[0], row[2]) for row in rows if not row[0].startswith("(rule)")} == {case.row for case in CASES}
    assert len({case.name for case in CASES}) == len(CASES)


def test_handlers_ask_for_the_rights_that_they_declare_and_for_no_others(
    closed: Closed,
) -> None:
    for key in TABLE.versions():
        served = TABLE.find(key)
        assert served is not None
        declared: set[Right] = set()
        if not isinstance(served.checks, NoCheck):
            declared = {right for check in served.checks for right in (check.right, check.unless) if right is not None}
        assert closed[1].get(served.api.name, set()) == declared, served.api.name
