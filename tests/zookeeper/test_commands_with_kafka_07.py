"""`kafkapy groups` and `kafkapy consume --zookeeper` on a cluster of Kafka 0.7, with byte offsets and partitions named
BROKER-PARTITION."""

import json
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kafkapy.tools.main import main
from tests.harness.golden_07 import expected

TOPIC = "two-partitions"


@pytest.mark.usefixtures("broker_07")
def test_a_group_of_kafka_07(
    connect: str, zk: KazooClient, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    def run(*words: object) -> tuple[int, str, str]:
        capfdbinary.readouterr()
        code = main([*map(str, words), "--zookeeper", connect])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    messages = [message for partition in (0, 1) for message in expected(f"{TOPIC}-{partition}")]
    ends = {f"8-{partition}": expected(f"{TOPIC}-{partition}")[-1][1] for partition in (0, 1)}
    code, out, err = run("consume", TOPIC, "--group", "old")
    assert (code, err) == (0, "")
    assert sorted(out.encode().splitlines()) == sorted(payload for _, _, payload in messages)
    assert run("consume", TOPIC, "--group", "old") == (0, "", "")

    file = tmp_path / "offsets"
    assert run("groups", "export-offsets", "old", "--output", file)[0] == 0
    lines = [f"/consumers/old/offsets/{TOPIC}/{name}:{end}\n" for name, end in ends.items()]
    assert file.read_text() == "".join(lines)
    file.write_text(lines[0].rpartition(":")[0] + ":0\n")
    assert run("groups", "import-offsets", file, "--execute")[0] == 0
    code, out, err = run("groups", "describe", "old", "--json")
    assert (code, err) == (0, "")
    assert [(row["partition"], row["committed"], row["end"], row["lag"]) for row in json.loads(out)[0]["offsets"]] == [
        ("8-0", 0, ends["8-0"], ends["8-0"]),
        ("8-1", ends["8-1"], ends["8-1"], 0),
    ]
    code, out, err = run("groups", "reset-offsets", "old", "--topic", TOPIC, "--to-latest")
    assert (code, out) == (1, "")
    assert "are of Kafka 0.7, which lack the requests that a reset needs" in err
    assert run("groups", "delete", "old")[0] == 0
    assert zk.exists("/consumers/old") is None
