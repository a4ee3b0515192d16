"""The command `kafkapy log adopt`."""

import json
import shutil
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "data" / "golden"


@pytest.fixture
def kafka(tmp_path):
    """Return a copy of a log directory of Kafka 3.9.1."""
    shutil.copytree(GOLDEN / "kafka-3.9.1-v2" / "data", tmp_path / "kafka")
    return tmp_path / "kafka"


def test_the_summary_says_what_was_done_and_what_to_do_next(kafkapy, kafka):
    result = kafkapy("log", "adopt", kafka)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0].split() == ["topic", "partitions", "segments", "bytes", "from", "settings"]
    assert "v2-none" in result.out
    assert "Broker 1 of cluster 8NMnlg0uR4-nhWypwK598w; stopped cleanly." in lines
    assert "New producer ids begin at 1000000000." in lines
    assert "no settings are known of v2-compacted-empty-batch and 18 more." in result.out
    assert f"kafkapy start -o log.dirs={kafka}" in result.out
    assert (kafka / "kafkapy-metadata.db").exists()


def test_a_second_time(kafkapy, kafka):
    kafkapy("log", "adopt", kafka)
    code, out, err = kafkapy("log", "adopt", kafka)
    assert (code, out) == (1, "")
    assert err == f"kafkapy: Not adopted: {kafka} is adopted already: it holds kafkapy-metadata.db.\n"


def test_a_dry_run(kafkapy, kafka):
    result = kafkapy("log", "adopt", "--dry-run", kafka)
    assert result.code == 0
    assert "Nothing was changed." in result.out
    assert not (kafka / "kafkapy-metadata.db").exists()
    assert not (kafka / ".lock").exists()


def test_json(kafkapy, kafka):
    result = json.loads(kafkapy("log", "adopt", "--dry-run", "--json", kafka).out)
    assert (result["adopted"], result["brokerId"], result["firstProducerId"]) == (False, 1, 1_000_000_000)
    topics = {topic["topic"]: topic for topic in result["topics"]}
    assert topics["v2-none"]["leaderEpochs"] == {"0": 4}
    assert topics["v2-none"]["settingsFrom"] == "not known"
    assert len(topics) == 21


def test_settings_from_a_file(kafkapy, kafka, tmp_path):
    file = tmp_path / "topics.txt"
    file.write_text("Dynamic configs for topic v2-none are:\n")
    result = kafkapy("log", "adopt", kafka, "--topic-configs", file)
    line = next(line for line in result.out.splitlines() if line.startswith("v2-none "))
    assert line.split()[-2:] == [str(file), "defaults"]
    assert "where a topic has no setting of its own, the broker's setting holds" in result.out


@pytest.mark.parametrize(
    ("text", "message"), [("what is this", "is not TOPIC/KEY"), ('{"v2-none": {"retention.ms": "long"}}', "long")]
)
def test_a_file_that_is_wrong(kafkapy, kafka, tmp_path, text, message):
    file = tmp_path / "topics.txt"
    file.write_text(text)
    code, out, err = kafkapy("log", "adopt", kafka, "--topic-configs", file)
    assert (code, out) == (1, "")
    assert str(file) in err
    assert message in err


def test_a_file_that_is_not_there(kafkapy, kafka, tmp_path):
    code, _, err = kafkapy("log", "adopt", kafka, "--topic-configs", tmp_path / "nowhere")
    assert code == 1
    assert err == f"kafkapy: {tmp_path}/nowhere: No such file or directory.\n"


def test_a_zookeeper_that_does_not_answer(kafkapy, kafka, monkeypatch, caplog):
    monkeypatch.setattr("kafkapy.server.adoption.zookeeper.CONNECT_TIMEOUT_S", 0.3)
    code, _, err = kafkapy("log", "adopt", kafka, "--zookeeper", "127.0.0.1:1/kafka")
    assert code == 1
    assert "ZooKeeper at 127.0.0.1:1/kafka does not answer within" in err
    assert err.count("\n") == 1
    assert not caplog.records  # warnings of the ZooKeeper client would be shown too


def test_a_directory_of_kafka_0_7_is_referred_to_log_import(kafkapy):
    code, _, err = kafkapy("log", "adopt", GOLDEN / "kafka-0.7.2" / "data", "--dry-run")
    assert code == 1
    assert "kafkapy log import" in err


def test_without_a_directory(kafkapy):
    code, _, err = kafkapy("log", "adopt")
    assert code == 2
    assert "DIRECTORY" in err
