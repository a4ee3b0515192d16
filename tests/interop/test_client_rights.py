"""Real clients with exactly the rights that they need, and without each of them: what they raise is what they raise
with Apache Kafka 3.9.1, which is recorded in tests/data/authorization."""

import json
import re
from pathlib import Path

import pytest

from tests.harness import client_rights
from tests.harness.authorization import Acls, settings
from tests.harness.brokers import QUICK, KafkapyBroker
from tests.harness.clients.registry import Clients

pytestmark = pytest.mark.other_runtime

RECORDED = Path(__file__).parents[1] / "data" / "authorization" / "clients-3.9.1.jsonl"
LISTENERS = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"


def test_clients_raise_what_they_raise_with_kafka_without_each_of_their_rights(tmp_path: Path) -> None:
    recorded = {(one[0], one[1], one[2]): one[3:] for one in map(json.loads, RECORDED.read_text().splitlines())}
    broker = KafkapyBroker(
        tmp_path, {**QUICK, **settings(authorizer=True, brokers_log_in=True), "listeners": LISTENERS}
    )
    clients = Clients(broker.bootstrap)
    try:
        acls = Acls(re.findall(r"://([^ ,]+)", broker.ready["addresses"])[1], "User:ANONYMOUS")
        acls.allow_everything()
        client_rights.prepare(clients["confluent-kafka"])
        found = {(*key,): outcome for *key, outcome in client_rights.outcomes(clients, acls)}
        acls.close()
    finally:
        clients.close()
    broker.stop()
    assert found.keys() == recorded.keys()
    others = {key: (outcome, recorded[key]) for key, outcome in found.items() if outcome not in recorded[key]}
    assert not others, others
