"""Records what Apache Kafka 3.9.1 answers to the cases of `tests.harness.authorization_cases`:
`python -m tests.data.authorization.record DIRECTORY`, a directory for the brokers' data. See README.md."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.harness import brokers
from tests.harness.authorization import Acls, Answer, World, answers, open_answers, prepare, settings

RECORDED = Path(__file__).with_name("kafka-3.9.1.jsonl")


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
    yield from answers(bootstrap, world, acls.deny)
    acls.close()


def _line(answer: Answer) -> dict[str, Any]:
    return {"case": answer.case, "variant": answer.variant, "body": None if answer.body is None else answer.body.hex()}


if __name__ == "__main__":
    lines = [
        *record(Path(sys.argv[1]) / "authorizer", authorizer=True),
        *record(Path(sys.argv[1]) / "open", authorizer=False),
    ]
    RECORDED.write_text("".join(json.dumps(line) + "\n" for line in lines))
