"""The commands with a running broker."""

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from kafkapy.tools.topics.kafka import KafkaTopics


@pytest.fixture
def run(kafkapy, kafkapy_broker, monkeypatch):
    """Return a function that runs a command that must succeed and returns its output."""
    monkeypatch.setenv("KAFKAPY_BOOTSTRAP_SERVER", kafkapy_broker.bootstrap_servers)

    def call(*words):
        code, out, err = kafkapy(*words)
        assert (code, err) == (0, "")
        return out

    return call


@pytest.fixture
def fails(kafkapy, run):
    """Return a function that runs a command that must fail and returns its error."""

    def call(*words):
        code, _, err = kafkapy(*words)
        assert code == 1
        assert err.count("\n") == 1
        return err

    return call


@pytest.fixture
def lines(tmp_path):
    """Return a function that writes a file with the given lines."""

    def write(*texts):
        path = tmp_path / "lines"
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_of_a_file_are_produced_and_consumed(run, lines, kafkapy_topic, codec):
    result = run("produce", kafkapy_topic, lines("one", "", "drei: ä"), "--codec", codec)
    assert result.startswith(f"3 records stored in {kafkapy_topic} in ")
    assert run("consume", kafkapy_topic) == "one\n\ndrei: ä\n"


def test_a_last_line_without_newline_and_windows_newlines_are_accepted(run, tmp_path, kafkapy_topic):
    (tmp_path / "lines").write_bytes(b"a\r\nb")
    run("produce", kafkapy_topic, tmp_path / "lines")
    assert run("consume", kafkapy_topic) == "a\nb\n"


def test_standard_input_is_read_if_no_file_is_given(run, kafkapy_broker, kafkapy_topic):
    done = subprocess.run(
        [sys.executable, "-m", "kafkapy", "produce", kafkapy_topic, "-b", kafkapy_broker.bootstrap_servers],
        input="a\nb\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("2 records stored")
    assert run("consume", kafkapy_topic) == "a\nb\n"


def test_keys_are_separated_from_values(run, lines, kafkapy_topic):
    run("produce", kafkapy_topic, lines("k:v:w", ":x"), "--key-separator", ":")
    assert run("consume", kafkapy_topic, "--format", "key-value") == "k\tv:w\n\tx\n"
    assert run("consume", kafkapy_topic, "--format", "key-value", "-K", "=") == "k=v:w\n=x\n"


def test_a_line_without_key_is_reported_and_the_lines_before_it_are_stored(run, fails, lines, kafkapy_topic):
    sentence = fails("produce", kafkapy_topic, lines("a:b", "none", "c:d"), "--key-separator", ":")
    assert sentence == "kafkapy: line 2 has no key: ':' is not in 'none' (the 1 record before it was sent).\n"
    assert run("consume", kafkapy_topic) == "b\n"


def test_a_record_that_the_topic_cannot_take_is_reported_and_those_before_it_are_stored(
    run, fails, lines, kafkapy_topic
):
    file = lines('{"value": "a"}', '{"value": "b", "partition": 7}', '{"value": "c"}')
    sentence = fails("produce", kafkapy_topic, file, "--json")
    assert sentence.startswith("kafkapy: line 2: topic ")
    assert sentence.endswith(" (the 1 record before it was sent).\n")
    assert run("consume", kafkapy_topic) == "a\n"


def test_json_lines_are_produced_and_consumed(run, lines, tmp_path, kafkapy_topic):
    record = {"key": "k", "value": {"base64": "AP8="}, "headers": [["h", "x"], ["h", None]], "timestamp": 1600000000000}
    run("produce", kafkapy_topic, lines(json.dumps(record), "", '{"value": {"a": 1}, "partition": 0}'), "--json")
    printed = run("consume", kafkapy_topic, "--json")
    first, second = (json.loads(line) for line in printed.splitlines())
    assert first == {"topic": kafkapy_topic, "partition": 0, "offset": 0, **record}
    assert (second["offset"], second["key"], second["value"]) == (1, None, '{"a":1}')
    (tmp_path / "again").write_text(printed)
    run("produce", kafkapy_topic, tmp_path / "again", "--json")
    again = [json.loads(line) for line in run("consume", kafkapy_topic, "--json", "--from", "2").splitlines()]
    assert [dict(one, offset=one["offset"] - 2) for one in again] == [first, second]


def test_consume_begins_and_ends_where_the_options_say(run, lines, kafkapy_topic):
    stamped = [json.dumps({"value": str(n), "timestamp": f"2024-01-0{n}T00:00:00Z"}) for n in range(1, 6)]
    run("produce", kafkapy_topic, lines(*stamped), "--json")

    def values(*options):
        return run("consume", kafkapy_topic, *options).split()

    assert values() == ["1", "2", "3", "4", "5"]
    assert values("--from", "3") == ["4", "5"]
    assert values("--from", "-1") == ["5"]
    assert values("--from", "-99", "--max", 2) == ["1", "2"]
    assert values("--from", "99") == []
    assert values("--from", "latest") == []
    assert values("--from", "2024-01-03T12:00:00") == ["4", "5"]
    assert values("--from", "@1704153600000", "-n", 1) == ["2"]
    assert values("--max", 0) == []
    assert values("--max", 2, "--follow") == ["1", "2"]


def test_followed_records_are_printed_as_they_arrive_until_ctrl_c(run, lines, kafkapy_topic, kafkapy_broker):
    run("produce", kafkapy_topic, lines("before"))
    command = [sys.executable, "-m", "kafkapy", "consume", kafkapy_topic, "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consuming:
        try:
            assert consuming.stdout is not None
            assert consuming.stdout.readline() == "before\n"
            run("produce", kafkapy_topic, lines("after"))
            assert consuming.stdout.readline() == "after\n"
            consuming.send_signal(signal.SIGINT)
            assert consuming.communicate(timeout=30) == ("", "")
            assert consuming.returncode == 130
        finally:
            consuming.kill()


def test_the_full_format_shows_place_time_and_headers(run, lines, kafkapy_topic):
    run(
        "produce",
        kafkapy_topic,
        lines('{"key": "k", "value": "v", "headers": {"a": "1"}, "timestamp": "2024-01-31T12:00:00+00:00"}'),
        "--json",
    )
    assert run("consume", kafkapy_topic, "--format", "full") == "0:0\t2024-01-31T12:00:00.000Z\tk\tv\ta=1\n"


def test_one_partition_can_be_read_alone(run, lines, kafkapy_topic):
    run("topics", "alter", kafkapy_topic, "--partitions", 2)
    run("produce", kafkapy_topic, lines("a"), "--partition", 0)
    run("produce", kafkapy_topic, lines("b"), "--partition", 1)
    assert run("consume", kafkapy_topic, "--partition", 1) == "b\n"


def test_topics_are_created_shown_changed_and_deleted(run, fails):
    assert (
        run("topics", "create", "made", "-p", 2, "-c", "retention.ms=60000")
        == "Created topic made with 2 partitions.\n"
    )
    assert "(TOPIC_ALREADY_EXISTS)" in fails("topics", "create", "made")
    assert run("topics", "create", "made", "--if-not-exists") == "Topic made is there already.\n"
    assert any(line.split()[:3] == ["made", "2", "1"] for line in run("topics", "list").splitlines())
    (listed,) = [one for one in json.loads(run("topics", "list", "--json")) if one["name"] == "made"]
    assert (listed["partitionCount"], listed["replicationFactor"], listed["internal"]) == (2, 1, False)
    assert run("topics", "alter", "made", "-p", 3, "-c", "cleanup.policy=compact", "--delete-config", "retention.ms")
    (described,) = json.loads(run("topics", "describe", "made", "--json"))
    assert described["configs"] == {"cleanup.policy": "compact"}
    assert [(p["partition"], p["start"], p["end"]) for p in described["partitions"]] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    assert "cleanup.policy=compact" in run("topics", "describe", "made")
    assert run("topics", "delete", "made") == "Deleted topic made.\n"
    assert run("topics", "delete", "made", "--if-exists") == "Topic made is not there.\n"
    assert "(UNKNOWN_TOPIC_OR_PARTITION)" in fails("topics", "delete", "made")


def test_only_partitions_with_replicas_that_are_not_in_sync_are_shown(run, kafkapy, kafkapy_topic, monkeypatch):
    words = ["topics", "describe", kafkapy_topic, "--under-replicated"]
    assert run(*words) == "All replicas are in sync.\n"
    assert json.loads(run(*words, "--json")) == []
    described = KafkaTopics.descriptions

    def with_a_lost_replica(self, names, *, with_offsets):
        (topic,) = described(self, names, with_offsets=with_offsets)
        (first,) = topic["partitions"]
        lost = {**first, "partition": 1, "replicas": [first["leader"], 77]}
        return [{**topic, "partitions": [first, lost]}]

    monkeypatch.setattr(KafkaTopics, "descriptions", with_a_lost_replica)
    code, out, _ = kafkapy(*words, "--json")
    assert code == 1
    assert [one["partition"] for one in json.loads(out)[0]["partitions"]] == [1]
    code, out, _ = kafkapy(*words)
    assert code == 1
    assert "end offset" not in out


def test_settings_are_shown_and_changed(run, fails, kafkapy_topic, tmp_path):
    of_topic = ["--topic", kafkapy_topic]
    assert run("configs", "alter", *of_topic, "--set", "retention.ms=5") == "Changed: retention.ms.\n"
    (entry,) = json.loads(run("configs", "describe", *of_topic, "--json"))
    assert (entry["name"], entry["value"], entry["source"]) == ("retention.ms", "5", "DYNAMIC_TOPIC_CONFIG")
    assert "cleanup.policy" in run("configs", "describe", *of_topic, "--all")
    assert "delete" in run("configs", "describe", *of_topic, "cleanup.policy")
    sentence = fails("configs", "alter", *of_topic, "--set", "retention.ms=banana")
    assert "retention.ms" in sentence
    assert "banana" in sentence
    assert "(INVALID_CONFIG)" in sentence
    (tmp_path / "value").write_text("6\n")
    run("configs", "alter", *of_topic, "--set", f"retention.ms=@{tmp_path / 'value'}")
    assert "6" in run("configs", "describe", *of_topic, "retention.ms").split()
    assert "retention.ms: the file" in fails("configs", "alter", *of_topic, "--set", f"retention.ms=@{tmp_path}")
    run("configs", "alter", *of_topic, "--append", "cleanup.policy=compact", "--delete", "retention.ms")
    (entry,) = json.loads(run("configs", "describe", *of_topic, "--json"))
    assert (entry["name"], entry["value"]) == ("cleanup.policy", "delete,compact")


def test_a_setting_that_does_not_exist_is_reported_after_those_that_do(kafkapy, run, fails, kafkapy_topic):
    words = ["configs", "describe", "--topic", kafkapy_topic]
    sentence = f"kafkapy: topic {kafkapy_topic!r} has no setting 'retention'; --all shows all settings.\n"
    assert fails(*words, "retention") == sentence
    code, out, err = kafkapy(*words, "retention", "retention.ms", "--json")
    assert (code, [entry["name"] for entry in json.loads(out)], err) == (1, ["retention.ms"], sentence)
    assert "Nothing is set" in run("configs", "describe", "--all-brokers", "log.retention.ms")


def test_without_settings_for_all_brokers_the_command_says_where_to_look(run):
    assert "Nothing is set for all brokers together; --broker ID " in run("configs", "describe", "--all-brokers")


def test_the_error_names_a_missing_topic_partition_or_file(fails, lines, kafkapy_topic):
    assert "topic 'nowhere'" in fails("consume", "nowhere")
    assert "topic 'nowhere'" in fails("topics", "describe", "nowhere")
    assert "no partition 7: it has 1" in fails("consume", kafkapy_topic, "--partition", 7)
    assert "no partition 7: it has 1" in fails("produce", kafkapy_topic, lines("a"), "--partition", 7)
    assert "/none cannot be read: No such file" in fails("produce", kafkapy_topic, "/none")
    assert "there is no broker '77'" in fails("configs", "describe", "--broker", 77)


@pytest.fixture
def on_terminal(kafkapy_broker):
    """Return a function that runs a command with standard error on a terminal, and standard output too unless `piped`,
    and returns what the terminal showed."""

    def call(*words, piped=False):
        master, slave = pty.openpty()
        child = subprocess.Popen(
            [sys.executable, "-m", "kafkapy", *map(str, words), "-b", kafkapy_broker.bootstrap_servers],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if piped else slave,
            stderr=slave,
        )
        os.close(slave)
        shown = b""
        try:
            while piece := os.read(master, 65536):
                shown += piece
        except OSError:  # a terminal ends like this when the last process on its other side is gone
            pass
        os.close(master)
        assert child.wait() == 0
        return shown.decode()

    return call


def test_long_work_shows_its_progress_on_a_terminal(on_terminal, lines, kafkapy_topic):
    assert "Sending to" in on_terminal("produce", kafkapy_topic, lines("a", "b"))
    assert "Reading" in on_terminal("consume", kafkapy_topic, piped=True)


def test_lines_on_a_terminal_are_not_mixed_with_progress(on_terminal, lines, kafkapy_topic):
    on_terminal("produce", kafkapy_topic, lines("a", "b"))
    assert on_terminal("consume", kafkapy_topic) == "a\r\nb\r\n"


def test_a_table_has_a_header_only_on_a_terminal(on_terminal, run, kafkapy_topic):
    assert "────" in on_terminal("topics", "list")
    assert "─" not in run("topics", "list")


def test_names_too_long_for_a_request_are_reported_in_a_sentence(fails):
    assert "topic 'a\\udcff': it is not in UTF-8" in fails("topics", "describe", "a\udcff")
    for words in (["topics", "create"], ["consume"], ["configs", "describe", "--topic"]):
        assert "a string of 40000 bytes is longer than 32767" in fails(*words, "x" * 40_000)


def test_topics_are_validated_without_creating_them(run, fails, kafkapy_topic):
    assert run("topics", "create", "only-checked", "-p", "2", "--validate-only") == (
        "Topic only-checked could be created.\n"
    )
    assert "only-checked" not in run("topics", "list")
    assert "TOPIC_ALREADY_EXISTS" in fails("topics", "create", kafkapy_topic, "--validate-only")
