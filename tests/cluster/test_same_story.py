"""The same story happens in two clusters, one with Apache Kafka's controller and one with kafkapy's.

After each step, both clusters are compared as soon as they are quiet: all nodes in ZooKeeper (without times and
versions), the requests that three recording brokers got from the controller, Metadata, and the reassignments in
progress. Each expected difference is in DIFFERENCES, with its reason.
"""

from __future__ import annotations

import re
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cluster.requests_received import compare
from tests.cluster.story import STORY, Step
from tests.cluster.story_stage import Stage

pytestmark = [pytest.mark.other_runtime, pytest.mark.timeout(600)]


class Difference(NamedTuple):
    """Expected differences: in which steps and where (regular expressions), and why."""

    step: str
    where: str
    why: str


DIFFERENCES = [
    Difference("", "/latest_producer_id_block", "A kafkapy broker takes its first block when it starts."),
    Difference(
        "on an unknown broker$",
        "^result",
        "CreateTopics of Kafka takes any broker ids. Ours refuses unknown ones, as KRaft does.",
    ),
    Difference(
        "term ends|controller's broker restarts|controller restarts",
        ": order$",
        "Kafka first sends the live brokers only. Ours sends all leaders at once, before any role: a transaction "
        "coordinator takes a partition that it does not know for deleted.",
    ),
    Difference(
        "much changes meanwhile",
        r"^rises of epochs: [adf]-|^sent to .: [adh]-\d: leader$|^sent to 3: d-0: role$",
        "A new controller of Kafka takes dead replicas out of the ISRs, and then elects leaders. Ours first sends the "
        "leaders that there were, and then does both in one change. It may move d-0 before broker 3 gets a role in it.",
    ),
    Difference(
        "much changes meanwhile",
        r"^znodes: /brokers/topics/f/|^sent to .: f-",
        "As with topic y: a dead replica of a topic that is being deleted.",
    ),
    Difference(
        "broker 3 is gone after its shutdown",
        "^sent to 4: .*: role$",
        "Kafka repeats roles when a replica is gone that was not in the ISR. Broker 4, which shuts down, missed these.",
    ),
    Difference(
        "an old tool writes invalid JSON",
        "^result",
        "Kafka's controller fails on it and leaves the node, which keeps tools from asking for anything else.",
    ),
    Difference(
        "a deletion|its deletion waits",
        r"^znodes: /brokers/topics/[xgy]/|^rises of epochs: [xgy]-|^sent to .: y-0: leader$",
        "Kafka takes the replicas of a topic that is being deleted out of its ISRs. Ours writes no more states.",
    ),
    Difference(
        "a deletion fails",
        r"^sent to 3: g-\d: stop$",
        "Kafka stops a replica once more when its deletion has failed.",
    ),
    Difference(
        "without an id",
        "^metadata: of 1: topics: h: partitions: 0$",
        "The broker that becomes the controller shows partitions that never had a leader. Kafka shows none of them.",
    ),
    Difference(
        "the dead replica is back|the disk is replaced|the deletion continues",
        r"^sent to .: [xgy]-\d: role$",
        "Kafka gives a broker that is back roles in topics that are being deleted, and then stops them.",
    ),
    Difference(
        "the controller's term ends during the deletion|the deletion continues",
        "^sent to 4: y-0",
        "A new controller of Kafka waits until the dead replica is back. Ours deletes the others.",
    ),
    Difference(
        "a topic whose node is no JSON",
        "/brokers/topics/broken",
        "Kafka replaces it by the node of a topic without partitions. Ours leaves it alone, so that it can be mended.",
    ),
    Difference(
        "it is mended|drops its id|without an id",
        "/brokers/topics/(broken|old):|: old",
        "KAFKA-14190: Kafka leaves it without an id; its next controller gives it another one. Ours restores the id.",
    ),
    Difference(
        "with an invalid name",
        "bad name",
        "Kafka serves a topic whatever its name. Ours does not: the name is that of a directory, too.",
    ),
]
ABSENT = "absent"
STEP_S = 180  # the longest that a step may take, with both clusters
Found = tuple[str, Any, Any]  # where, Kafka's and kafkapy's


def differences(kafka: Any, ours: Any, where: str = "") -> Iterator[Found]:
    """Yield the differences of two values made of dicts, lists and plain values."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for key in [*kafka, *(key for key in ours if key not in kafka)]:
            yield from differences(kafka.get(key, ABSENT), ours.get(key, ABSENT), f"{where}{key}: ")
    elif kafka != ours:
        yield where.removesuffix(": "), kafka, ours


def all_differences(kafka: dict[str, Any], ours: dict[str, Any]) -> Iterator[Found]:
    for part in kafka:
        if part.startswith("sent to "):
            yield from ((f"{part}: {where}", theirs, mine) for where, theirs, mine in compare(kafka[part], ours[part]))
        else:
            yield from differences(kafka[part], ours[part], f"{part}: ")


def explains(reason: Difference, step: Step, found: Found) -> bool:
    return re.search(reason.step, step.text) is not None and re.search(reason.where, found[0]) is not None


def happen(stage: Stage, step: Step) -> dict[str, Any]:
    try:
        result = step.do(stage)
        stage.settle()
    except Exception as error:
        raise AssertionError(f"{stage.kind}: {step.text}: {error!r}") from error
    return {"result": result, **stage.look()}


def test_both_controllers_act_alike(tmp_path: Path) -> None:
    found: list[str] = []
    unused = list(DIFFERENCES)
    before: list[Found] = []
    with ThreadPoolExecutor(2) as both:
        stages: list[Stage] = list(both.map(lambda kind: Stage(tmp_path / kind, kind), ("kafka", "kafkapy")))
        try:
            for number, step in enumerate(STORY, 1):
                try:
                    kafka, ours = both.map(lambda stage, step=step: happen(stage, step), stages, timeout=STEP_S)
                except TooLate:
                    raise AssertionError(f"{step.text}: not over after {STEP_S} s\n{_stacks()}") from None
                now = list(all_differences(kafka, ours))
                for one in now:
                    if one in before:  # belongs to the step in which it first appeared
                        continue
                    reasons = [each for each in DIFFERENCES if explains(each, step, one)]
                    unused = [each for each in unused if each not in reasons]
                    if not reasons:
                        found.append(f"{number}. {step.text}: {_text(*one)}")
                before = now
        finally:
            print("\n".join(found))  # printed even if a step fails
            for stage in stages:
                stage.close()
    assert not found, "\n".join(found)
    assert not unused, f"these differences are no more: {unused}"


def _stacks() -> str:
    """Return the stack traces of all threads."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames().items()
    return "\n".join(f"{names.get(ident)}:\n{''.join(traceback.format_stack(frame))}" for ident, frame in frames)


def _text(where: str, kafka: Any, ours: Any) -> str:
    return f"{where}\n    kafka   {_value(kafka)}\n    kafkapy {_value(ours)}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "".join(f"\n      {_value(one)}" for one in value) or "[]"
    if isinstance(value, tuple):
        return " ".join(map(_value, value))
    if isinstance(value, dict) and "leader_epoch" in value:
        return ", ".join(f"{key} {one}" for key, one in value.items() if one not in ([], False, 0))
    return str(value)
