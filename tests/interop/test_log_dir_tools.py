"""Kafka's own tools move partitions between the log directories of a broker, and show where they are."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import brokers
from tests.harness.brokers import Broker
from tests.harness.kafka_tools import KafkaTools, Said
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.requests import batch, produce

pytestmark = pytest.mark.other_runtime


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    return [str(tmp_path / "one"), str(tmp_path / "two")]


@pytest.fixture
def broker(tmp_path: Path, dirs: list[str]) -> Iterator[Broker]:
    running = brokers.start(tmp_path / "broker", {"log.dirs": ",".join(dirs), "broker.id": "0"})
    yield running
    running.stop()


class LogDirTools:
    """kafka-reassign-partitions with `log_dirs` in its JSON, and kafka-log-dirs, for one broker."""

    def __init__(self, tools: KafkaTools, broker: Broker, plan: Path) -> None:
        self._tools, self._plan = tools, plan
        self._where = ("--bootstrap-server", broker.bootstrap)

    def reassign(self, action: str, targets: dict[int, str], *options: str) -> Said:
        moves = [
            {"topic": "t", "partition": index, "replicas": [0], "log_dirs": [path]} for index, path in targets.items()
        ]
        self._plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        return self._tools.run(tool, *self._where, "--reassignment-json-file", self._plan, action, *options)

    def described(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the replicas that kafka-log-dirs shows, by directory and partition."""
        said = self._tools.run("org.apache.kafka.tools.LogDirsCommand", *self._where, "--describe", "--topic-list", "t")
        assert said.code == 0, said
        (found,) = (json.loads(line) for line in said.out.splitlines() if line.startswith("{"))
        assert [one["broker"] for one in found["brokers"]] == [0]
        return {
            (log_dir["logDir"], replica["partition"]): replica
            for log_dir in found["brokers"][0]["logDirs"]
            for replica in log_dir["partitions"]
        }


def test_kafkas_tools_move_partitions_and_show_them(
    tools: KafkaTools, broker: Broker, dirs: list[str], tmp_path: Path
) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("t", 2)
        for index in (0, 1):
            for number in range(30):
                produce(wire, "t", batch(bytes([number]) * 50_000), index=index)
        run = LogDirTools(tools, broker, tmp_path / "plan.json")
        before = {name: path for path, name in run.described()}
        targets = {index: next(path for path in dirs if path != before[f"t-{index}"]) for index in (0, 1)}

        said = run.reassign("--execute", targets, "--replica-alter-log-dirs-throttle", "1000")
        for index, path in targets.items():
            assert f"Successfully started moving log directory to {path} for replica t-{index}" in said.out, said
        found = run.described()
        assert len(found) == 4
        for index, path in targets.items():
            current, future = found[before[f"t-{index}"], f"t-{index}"], found[path, f"t-{index}"]
            assert (current["isFuture"], current["offsetLag"]) == (False, 0)
            assert future["isFuture"]
            assert 0 < future["offsetLag"] <= 30
            assert future["size"] < current["size"]
        said = run.reassign("--verify", targets, "--preserve-throttles")
        assert "Reassignment of replica t-0-0 is still in progress." in said.out, said

        said = run.reassign("--execute", targets, "--additional", "--replica-alter-log-dirs-throttle", "1000000000")
        assert said.code == 0, said
        eventually(lambda: {name: path for path, name in run.described()} == {f"t-{i}": targets[i] for i in targets})
        said = run.reassign("--verify", targets)
        for index in (0, 1):
            assert f"Reassignment of replica t-{index}-0 completed successfully." in said.out, said
        assert {(one["isFuture"], one["offsetLag"]) for one in run.described().values()} == {(False, 0)}
        assert produce(wire, "t", batch(b"more")).base_offset == 30


def test_kafkas_tool_names_a_directory_that_the_broker_does_not_have(
    tools: KafkaTools, broker: Broker, tmp_path: Path
) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("t", 1)
    said = LogDirTools(tools, broker, tmp_path / "plan.json").reassign("--execute", {0: str(tmp_path / "three")})
    assert "LogDirNotFoundException" in said.out + said.err
