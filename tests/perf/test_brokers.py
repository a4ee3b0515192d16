"""How Apache Kafka 4 is started, without starting it."""

import subprocess
from pathlib import Path

import pytest

from perf import brokers, jars


def test_apache_kafka_4_is_formatted_once_as_one_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    formatted: list[list[str]] = []
    started: list[list[str]] = []

    def format_directory(command: list[str], **_: object) -> None:
        formatted.append(command)
        (tmp_path / "logs").mkdir()
        (tmp_path / "logs" / "meta.properties").touch()

    monkeypatch.setattr(subprocess, "run", format_directory)
    monkeypatch.setattr(jars, "class_path", lambda version: f"jars of {version}")
    monkeypatch.setattr(brokers, "Child", lambda command, _: started.append(command))
    monkeypatch.setattr(brokers, "wait_until", lambda *_: None)
    for _ in range(2):
        broker = brokers.Kafka4(tmp_path, {"message.max.bytes": "7", "offsets.topic.replication.factor": "1"})
    (command,) = formatted
    assert command[-6:-3] == ["kafka.tools.StorageTool", "format", "--cluster-id"]
    assert len(brokers.CLUSTER_ID) == 22
    assert len(started) == 2
    assert f"jars of {jars.KAFKA_4_VERSION}" in started[0]
    lines = (tmp_path / "server.properties").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    assert settings["process.roles"] == "broker,controller"
    assert settings["message.max.bytes"] == "7"
    assert f"PLAINTEXT://127.0.0.1:{broker.port}," in settings["listeners"]
    assert settings["controller.quorum.voters"].partition("@")[2] in settings["listeners"]
    assert settings["log.dirs"] == str(broker.log_directory)
