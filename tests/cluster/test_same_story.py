"""The same story happens in two clusters, one with Apache Kafka's controller and one with kafkapy's.

After each step both are looked at, when nothing changes there any more: all nodes in ZooKeeper (without times and
versions), what the controller has told three recording brokers, Metadata, and the reassignments in progress. Each
difference is in DIFFERENCES, with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster.story import STORY, Step
from tests.cluster.story_stage import Stage
from tests.cluster.told import compare


class Difference(NamedTuple):
    """Differences that are right: in which step (part of its text), where (part of the place), and why."""

    step: str
    where: str
    why: str


DIFFERENCES = [
    Difference("", "/latest_producer_id_block", "A kafkapy broker takes its first block when it starts."),
    Difference(
        "term ends",
        ": order",
        "Kafka first sends the live brokers only. Ours sends all leaders at once, before any role: a transaction "
        "coordinator takes a partition that it does not know for deleted.",
    ),
]
ABSENT = "absent"
Found = tuple[str, Any, Any]  # where, Kafka's and ours


def differences(kafka: Any, ours: Any, where: str = "") -> Iterator[Found]:
    """Yield what differs in two values made of dicts, lists and plain values."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for key in [*kafka, *(key for key in ours if key not in kafka)]:
            yield from differences(kafka.get(key, ABSENT), ours.get(key, ABSENT), f"{where}{key}: ")
    elif kafka != ours:
        yield where, kafka, ours


def all_differences(kafka: dict[str, Any], ours: dict[str, Any]) -> Iterator[Found]:
    for part in kafka:
        if part.startswith("sent to "):
            yield from ((f"{part}: {where}", theirs, mine) for where, theirs, mine in compare(kafka[part], ours[part]))
        else:
            yield from differences(kafka[part], ours[part], f"{part}: ")


def happen(stage: Stage, step: Step) -> dict[str, Any]:
    try:
        result = step.do(stage)
        stage.settle()
    except Exception as error:
        raise AssertionError(f"{stage.kind}: {step.text}: {error!r}") from error
    return {"result": result, **stage.look()}


def test_both_controllers_tell_the_same_story(tmp_path: Path) -> None:
    found: list[str] = []
    unused = list(DIFFERENCES)
    before: list[Found] = []
    with ThreadPoolExecutor(2) as both:
        stages: list[Stage] = list(both.map(lambda kind: Stage(tmp_path / kind, kind), ("kafka", "kafkapy")))
        try:
            for number, step in enumerate(STORY, 1):
                kafka, ours = both.map(lambda stage, step=step: happen(stage, step), stages)
                now = list(all_differences(kafka, ours))
                for one in now:
                    if one in before:  # what a step leaves behind is a difference of that step
                        continue
                    reasons = [each for each in DIFFERENCES if each.step in step.text and each.where in one[0]]
                    unused = [each for each in unused if each not in reasons]
                    if not reasons:
                        found.append(f"{number}. {step.text}: {_text(*one)}")
                before = now
        finally:
            print("\n".join(found))  # also if a step fails
            for stage in stages:
                stage.close()
    assert not found, "\n".join(found)
    assert not unused, "these differences are no more"


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
