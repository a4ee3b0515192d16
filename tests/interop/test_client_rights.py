"""Real clients with exactly the rights that they need, and without each of them, raise the same errors as with Apache
Kafka 3.9.1, which are recorded in tests/data/authorization. Kafka Streams works with rights on a prefix."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.server.admission import Action
from tests.harness import client_rights
from tests.harness.authorization import Acls, settings
from tests.harness.brokers import QUICK, KafkapyBroker
from tests.harness.clients.registry import Clients
from tests.harness.streams import PARTITIONS, Counts, Instance, lines_all_the_time

pytestmark = pytest.mark.other_runtime

RECORDED = Path(__file__).parents[1] / "data" / "authorization" / "clients-3.9.1.jsonl"
LISTENERS = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
APPLICATION = "word-count"


@pytest.fixture  # not shared, since a second try of a test needs a broker without topics
def closed_broker(tmp_path: Path) -> Iterator[KafkapyBroker]:
    """Start a broker with ACLs, whose clients are User:ANONYMOUS on its first listener."""
    config = {**QUICK, **settings(authorizer=True, brokers_log_in=True), "listeners": LISTENERS}
    running = KafkapyBroker(tmp_path / "broker", config)
    yield running
    running.stop()


@pytest.fixture
def acls(closed_broker: KafkapyBroker) -> Iterator[Acls]:
    """Return the ACLs of the clients, which may do everything at first."""
    administrator = Acls(re.findall(r"://([^ ,]+)", closed_broker.ready["addresses"])[1], "User:ANONYMOUS")
    administrator.allow_everything()
    yield administrator
    administrator.close()


@pytest.fixture
def free_clients(closed_broker: KafkapyBroker) -> Iterator[Clients]:
    running = Clients(closed_broker.bootstrap)
    yield running
    running.close()


def test_clients_raise_what_they_raise_with_kafka_without_each_of_their_rights(
    acls: Acls, free_clients: Clients
) -> None:
    recorded = {(one[0], one[1], one[2]): one[3:] for one in map(json.loads, RECORDED.read_text().splitlines())}
    client_rights.prepare(free_clients["confluent-kafka"])
    found = {(*key,): outcome for *key, outcome in client_rights.outcomes(free_clients, acls)}
    assert found.keys() == recorded.keys()
    others = {key: (outcome, recorded[key]) for key, outcome in found.items() if outcome not in recorded[key]}
    assert not others, others


def test_kafka_streams_needs_rights_on_its_topics_and_on_the_prefix_of_its_application(
    acls: Acls, free_clients: Clients, closed_broker: KafkapyBroker, tmp_path: Path
) -> None:
    admin, bootstrap, sent = free_clients["confluent-kafka"], closed_broker.bootstrap, Counter[str]()
    for topic in ("lines", "counts"):
        admin.create_topic(topic, PARTITIONS)
    # Rights of the application, and of the test's own clients, which write lines and read counts.
    acls.allow_only(
        [
            *(Action(operation, "TOPIC", topic) for operation in ("READ", "WRITE") for topic in ("lines", "counts")),
            Action("READ", "GROUP", "unused"),
        ]
    )
    acls.allow_prefixed(Action("ALL", kind, APPLICATION) for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID"))
    instance = Instance(bootstrap, APPLICATION, tmp_path / "state")
    counts = Counts(bootstrap)
    try:
        with lines_all_the_time(bootstrap, sent):
            instance.wait_until_it_runs()
            counts.read_until(sent.total() + 100, [instance])
        counts.read_until(sent.total(), [instance])
        instance.stop()
    finally:
        counts.close()
        instance.kill()
    assert counts.latest == dict(sent)
