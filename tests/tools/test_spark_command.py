"""`kafkapy spark load`: errors that are reported before Spark starts, its summary, and its exit code."""

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import kafkapy.spark.load
from kafkapy import Broker
from kafkapy.spark import requirements
from kafkapy.spark.load import Summary
from kafkapy.spark.load.state import rejected_of
from kafkapy.tools import spark
from kafkapy.tools.main import main

CALL = ["spark", "load", "flights"]


def error_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*CALL, *words]) == 2
    text = capsys.readouterr().err
    assert text.startswith("kafkapy: ")
    assert text.count("\n") == 1
    return text


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "--to"),
        (["--from", "yesterday"], "--from 'yesterday' is no time"),
        (["--every", "x"], "--every 'x' is no duration"),
        (["--conf", "x"], "--conf 'x' is not KEY=VALUE"),
        (["--json", "a nothing"], "there is no type 'nothing'"),
        (["--json", "missing.ddl"], "--json: missing.ddl cannot be read: No such file or directory"),
        (["--avro", "missing.avsc"], "--avro: missing.avsc cannot be read: No such file or directory"),
        (["--avro", "x=missing.avsc"], "'x' is no id of a schema"),
        (["--avro", "a", "--avro", "b"], "--avro is given more than once, which needs ids"),
        (["--avro", "a", "--json", "b int"], "give one of --json and --avro"),
        (["--json", "topic int"], "a field 'topic', which is also the name of a column of the record; --prefix"),
        (["-b", "nowhere"], "--bootstrap-server: the address 'nowhere' is not HOST:PORT"),
        (["--batch-rows", "0"], "0"),
        (["--again"], "use --again with --from"),
        (["--from", "2024-02-01", "--until", "2024-01-01"], "--from is not before --until"),
        (["--follow", "--until", "2024-01-01"], "--follow loads until it is stopped"),
    ],
)
def test_wrong_arguments_are_reported_before_spark_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], what: str
) -> None:
    to = [] if what == "--to" else ["--to", str(tmp_path / "landed")]
    assert what in error_of(capsys, *to, *words)
    assert not (tmp_path / "landed").exists()


def test_a_missing_broker_or_topic_is_reported_before_spark_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafkapy_broker: Broker
) -> None:
    monkeypatch.setattr(spark, "_session", None)
    to = ["--to", str(tmp_path / "landed")]
    assert main([*CALL, *to, "-b", kafkapy_broker.bootstrap_servers]) == 1
    assert capsys.readouterr().err == "kafkapy: there is no topic 'flights'; see: kafkapy topics list.\n"
    assert main([*CALL, *to, "-b", "127.0.0.1:1"]) == 1
    assert "No connection to 127.0.0.1:1: connection refused" in capsys.readouterr().err


def test_columns_may_be_in_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "columns.ddl").write_text("a nothing")
    text = error_of(capsys, "--to", str(tmp_path / "landed"), "--json", str(tmp_path / "columns.ddl"))
    assert "there is no type 'nothing'" in text


def test_the_error_says_what_to_install(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = ["--to", str(tmp_path / "landed")]
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "Spark needs a Java runtime" in error_of(capsys, *to)
    monkeypatch.setattr(requirements, "PYSPARK", (99, 0))
    assert "pip install -e '.[spark]' in a checkout of kafkapy" in error_of(capsys, *to)


@pytest.mark.parametrize(("words", "code"), [([], 130), (["--follow"], 0)])
def test_an_interrupted_load_prints_its_summary_and_has_the_exit_code_of_an_interrupt_unless_it_follows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int
) -> None:
    def load(*args: Any, stopped: threading.Event, **more: Any) -> Summary:
        stopped.set()
        return Summary(rows=7)

    monkeypatch.setattr(kafkapy.spark.load, "load", load)
    monkeypatch.setattr(spark, "_require_java", lambda master: None)
    monkeypatch.setattr(spark, "_topics_are_there", lambda topics, settings: None)
    monkeypatch.setattr(spark, "_session", lambda master, conf: nullcontext())
    assert main([*CALL, "--to", str(tmp_path / "landed"), *words]) == code
    assert "7 rows in 0 files" in capsys.readouterr().out


def test_the_summary_names_the_file_of_values_that_did_not_fit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    spark._print(Summary(rejected=2), Path("landed"), rejected_of(Path("landed"), tmp_path))
    assert f"2 values did not fit and are kept aside in {tmp_path}/rejected:" in capsys.readouterr().out
