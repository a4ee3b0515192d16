"""Records what Apache Kafka 3.9.1 answers to clients without rights, and what real clients then raise:
`python -m tests.data.authorization.record answers|clients DIRECTORY`. See README.md."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.harness import brokers, client_rights
from tests.harness.authorization import Acls, Answer, World, answers, open_answers, prepare, settings
from tests.harness.clients.registry import Clients

RECORDED = Path(__file__).with_name("kafka-3.9.1.jsonl")
RECORDED_CLIENTS = Path(__file__).with_name("clients-3.9.1.jsonl")
RUNS = 3


def record(directory: Path, *, authorizer: bool) -> Iterable[dict[str, Any]]:
    ports = {name: brokers.free_port() for name in ("PLAINTEXT", "SASL_PLAINTEXT")}
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    broker = brokers.KafkaBroker(
        directory, {**settings(authorizer=authorizer), "listeners": listeners}, port=ports["PLAINTEXT"]
    )
    try:
        bootstrap = f"127.0.0.1:{ports['SASL_PLAINTEXT']}"
        world = prepare(bootstrap)
        yield {"topic_ids": {name: topic_id.hex() for name, topic_id in world.topic_ids.items()}}
        yield from map(_line, _answers(bootstrap, world, authorizer))
    finally:
        broker.stop()


def _answers(bootstrap: str, world: World, authorizer: bool) -> Iterable[Answer]:
    if not authorizer:
        yield from open_answers(bootstrap, world)
        return
    acls = Acls(bootstrap)
    acls.allow_everything()
    yield from answers(bootstrap, world, acls.deny)
    acls.close()


def _line(answer: Answer) -> dict[str, Any]:
    return {"case": answer.case, "variant": answer.variant, "body": None if answer.body is None else answer.body.hex()}


def record_clients(directory: Path) -> Iterable[tuple[str, str, str, str]]:
    """Yield what the clients of `tests.harness.client_rights` raise."""
    ports = {name: brokers.free_port() for name in ("PLAINTEXT", "SASL_PLAINTEXT")}
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    overrides = {**brokers.QUICK, **settings(authorizer=True, brokers_log_in=True), "listeners": listeners}
    broker = brokers.KafkaBroker(directory, overrides, port=ports["PLAINTEXT"])
    clients = Clients(broker.bootstrap)
    try:
        acls = Acls(f"127.0.0.1:{ports['SASL_PLAINTEXT']}", "User:ANONYMOUS")
        acls.allow_everything()
        client_rights.prepare(clients["confluent-kafka"])
        yield from client_rights.outcomes(clients, acls)
        acls.close()
    finally:
        clients.close()
        broker.stop()


def _record_answers(directory: Path) -> None:
    lines = [
        *record(directory / "authorizer", authorizer=True),
        *record(directory / "open", authorizer=False),
    ]
    RECORDED.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _record_clients(directory: Path) -> None:
    """Run all scenarios several times: what some clients raise depends on which response comes first."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for run in range(RUNS):
        for *key, outcome in record_clients(directory / f"clients-{run}"):
            outcomes = found.setdefault(tuple(key), [])
            if outcome not in outcomes:
                outcomes.append(outcome)
    lines = (json.dumps([*key, *outcomes]) + "\n" for key, outcomes in found.items())
    RECORDED_CLIENTS.write_text("".join(lines))


if __name__ == "__main__":
    {"answers": _record_answers, "clients": _record_clients}[sys.argv[1]](Path(sys.argv[2]))
