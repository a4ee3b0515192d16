"""`log dump` on files that are damaged, truncated, of another format, or no segments at all."""

import json
import shutil
import tracemalloc
from pathlib import Path

import pytest

from kafkapy.log.offline import stored_batches
from kafkapy.record.batch import build
from kafkapy.tools.log.decoders.values import text
from kafkapy.tools.log.dump.files import Dump, DumpOptions

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "kafka-3.9.1-v2" / "data" / "v2-none-0"
NAME = "00000000000000000000"


@pytest.fixture
def partition(tmp_path):
    """Return a copy of a partition that Kafka wrote, for a test to damage."""
    copy = tmp_path / "v2-none-0"
    shutil.copytree(GOLDEN, copy)
    for path in copy.iterdir():
        path.chmod(0o644)
    return copy


def change(path, position, data):
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def test_a_wrong_crc_is_shown_and_is_a_failure(kafkapy, partition):
    log = partition / f"{NAME}.log"
    change(log, 79, b"\xff")
    code, out, err = kafkapy("log", "dump", log)
    assert code == 1
    assert out.splitlines()[2].endswith("isvalid: false")
    assert out.count("isvalid: true") == 6
    assert err == f"{log} is damaged: the batch at position 0 (base offset 0) has a wrong CRC.\n"


def test_a_batch_cut_off_at_the_end_is_counted_as_invalid_bytes(kafkapy, partition):
    log = partition / f"{NAME}.log"
    log.write_bytes(log.read_bytes()[:-5])
    code, out, err = kafkapy("log", "dump", log)
    assert code == 1
    assert out.endswith(f"Found 239 invalid bytes at the end of {NAME}.log\n")
    assert "no whole batch from position 2849 on: 239 bytes are left over" in err


def test_zeros_at_the_end_are_reported_with_their_position(kafkapy, partition):
    log = partition / f"{NAME}.log"
    log.write_bytes(log.read_bytes() + bytes(100))
    code, out, err = kafkapy("log", "dump", log)
    assert code == 1
    assert out.endswith(f"Found 100 invalid bytes at the end of {NAME}.log\n")
    assert (
        err == f"{log} has no batch at position 3093: the length there is 0, and the smallest message has 14 bytes.\n"
    )


@pytest.mark.parametrize("magic", [0, 1])
def test_a_flipped_magic_is_found_by_the_checksum(kafkapy, partition, magic):
    log = partition / f"{NAME}.log"
    change(log, 80 + 16, bytes([magic]))
    code, out, err = kafkapy("log", "dump", log)
    assert (code, out.count("baseOffset:"), out.count("isvalid: false")) == (1, 6, 1)
    assert "the message at position 80 (offset 1) has a wrong CRC" in err


def test_an_unknown_magic_ends_the_file(kafkapy, partition):
    log = partition / f"{NAME}.log"
    change(log, 80 + 16, b"\7")
    code, out, err = kafkapy("log", "dump", log)
    assert (code, out.count("baseOffset:")) == (1, 1)
    assert "no batch at position 80: magic 7 and" in err


def test_bytes_that_are_no_segment_are_reported_in_a_sentence(kafkapy, tmp_path):
    path = tmp_path / f"{NAME}.log"
    path.write_bytes(b"This is a letter to my aunt, and no segment of Kafka. " * 10)
    code, _, err = kafkapy("log", "dump", path)
    assert code == 1
    assert err.startswith(f"{path} has no ")
    assert "Traceback" not in err


@pytest.mark.parametrize("name", ["notes.txt", "notes.log", "meta.properties.bak"])
def test_a_file_without_the_name_of_a_segment_is_reported_in_a_sentence(kafkapy, tmp_path, name):
    (tmp_path / name).write_bytes(b"x" * 100)
    code, out, err = kafkapy("log", "dump", tmp_path / name)
    assert (code, out) == (1, "")
    assert err.startswith(f"{tmp_path / name} is not a segment file")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n", "announces 2 entries and holds 1"),
        ("recovery-point-offset-checkpoint", b"0\n1\nt 0 x\n", "has 'x' where a number belongs"),
        ("cleaner-offset-checkpoint", b"hello", "has 'hello' where a number belongs"),
        ("partition.metadata", b"version: 0\ntopic_id: ?", "has the topic id '?'"),
        ("meta.properties", b"x" * 100, "has no version"),
        (".kafka_cleanshutdown", b"no json", "Expecting value"),
    ],
)
def test_a_small_file_with_nonsense_is_reported_in_a_sentence(kafkapy, tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    code, _, err = kafkapy("log", "dump", tmp_path / name)
    assert (code, words in err, err.count("\n")) == (1, True, 1)


def test_a_file_that_cannot_be_dumped_does_not_stop_the_next_one(kafkapy, partition):
    bad = partition / "notes.txt"
    bad.write_bytes(b"x")
    code, out, _ = kafkapy("log", "dump", bad, partition / f"{NAME}.timeindex")
    assert (code, out.count("timestamp: ")) == (1, 3)


def test_the_error_names_a_file_that_does_not_exist(kafkapy, tmp_path):
    code, _, err = kafkapy("log", "dump", tmp_path / "nothing.log")
    assert (code, err) == (1, f"kafkapy: {tmp_path}/nothing.log does not exist.\n")


def test_a_directory_without_segments_is_reported(kafkapy, tmp_path):
    code, _, err = kafkapy("log", "dump", tmp_path)
    assert (code, f"{tmp_path} has no segment files" in err) == (1, True)


def test_wrong_index_entries_are_reported_newest_first(kafkapy, partition):
    index = partition / f"{NAME}.index"
    change(index, 0, (22).to_bytes(4, "big"))
    change(index, 20, (5).to_bytes(4, "big"))  # no batch can begin there
    code, out, err = kafkapy("log", "dump", index)
    assert (code, out.count("position:")) == (1, 3)
    assert err.splitlines() == [
        f"Mismatches in :{index}",
        "  Index offset: 32, log offset: -1",
        "  Index offset: 22, log offset: 23",
    ]


def test_an_index_that_was_not_trimmed_ends_at_its_zeros(kafkapy, partition):
    index = partition / f"{NAME}.index"
    index.write_bytes(index.read_bytes() + bytes(4096))
    time_index = partition / f"{NAME}.timeindex"
    time_index.write_bytes(time_index.read_bytes() + bytes(4096 * 12))
    code, out, err = kafkapy("log", "dump", index, time_index)
    assert (code, out.count("position:"), out.count("timestamp:"), err) == (0, 3, 3, "")


def test_time_index_entries_are_checked_against_the_batches(kafkapy, partition):
    path = partition / f"{NAME}.timeindex"
    change(path, 0, (1600000002685).to_bytes(8, "big"))
    change(path, 12, (1600000002600).to_bytes(8, "big"))
    change(path, 32, (31).to_bytes(4, "big"))
    code, _, err = kafkapy("log", "dump", path)
    assert code == 1
    assert err.splitlines() == [
        f"Found timestamp mismatch in :{path}",
        "  Index timestamp: 1600000002685, log timestamp: 1600000002684",
        "  Index timestamp: 1600000002600, log timestamp: 1600000003865",
        f"Found out of order timestamp in :{path}",
        "  Index timestamp: 1600000002600, Previously indexed timestamp: 1600000002685",
        "The following indexed offsets are not found in the log.",
        "Indexed offset: 31, found log offset: 32",
    ]


@pytest.mark.parametrize("position", [-7, 5, 1 << 30])
def test_a_time_index_is_read_though_the_offset_index_is_damaged(kafkapy, partition, position):
    path = partition / f"{NAME}.timeindex"
    (partition / f"{NAME}.index").write_bytes(bytes(4) + position.to_bytes(4, "big", signed=True))
    code, _, err = kafkapy("log", "dump", path)
    assert (code, err) == (0, "")


def test_an_index_needs_its_log_in_the_same_directory(kafkapy, partition):
    (partition / f"{NAME}.log").unlink()
    code, _, err = kafkapy("log", "dump", partition / f"{NAME}.index")
    assert (code, f"{NAME}.log is not in the same directory" in err) == (1, True)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_sanity_check_finds_a_torn_index(kafkapy, partition, suffix):
    path = partition / f"{NAME}{suffix}"
    path.write_bytes(path.read_bytes() + b"x")
    code, _, err = kafkapy("log", "dump", "--index-sanity-check", path)
    assert (code, "are not whole entries" in err) == (1, True)


def test_a_sanity_check_finds_an_offset_below_the_segment(kafkapy, partition):
    index = partition / f"{NAME}.index"
    change(index, 16, (-1).to_bytes(4, "big", signed=True))
    code, _, err = kafkapy("log", "dump", "--index-sanity-check", index)
    assert (code, "its last offset -1 is below 0" in err) == (1, True)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data[:9], "it has 9 bytes, the header alone has 10"),
        (lambda data: b"\0\2" + data[2:], "a producer snapshot of version 2"),
        (lambda data: data[:-1] + b"\7", "its CRC is"),
        (lambda data: data[:20], "its CRC is"),
    ],
)
def test_a_damaged_snapshot_is_reported(kafkapy, partition, damage, words):
    path = partition / "00000000000000000033.snapshot"
    path.write_bytes(damage(path.read_bytes()))
    code, _, err = kafkapy("log", "dump", path)
    assert (code, words in err) == (1, True)


def test_a_transaction_index_of_a_later_version_is_reported(kafkapy, tmp_path):
    path = tmp_path / f"{NAME}.txnindex"
    path.write_bytes(b"\0\1" + bytes(32))
    code, _, err = kafkapy("log", "dump", path)
    assert (code, "version 1; only version 0 is known" in err) == (1, True)


def test_records_that_cannot_be_read_do_not_end_the_dump(kafkapy, tmp_path):
    first = bytearray(build([(0, b"k", b"v" * 100, ())], codec=4))
    first[70:] = bytes(len(first) - 70)
    log = tmp_path / f"{NAME}.log"
    log.write_bytes(first + build([(0, b"k", b"after", ())], base_offset=1))
    code, out, err = kafkapy("log", "dump", "--print-data-log", log)
    assert code == 1
    assert out.endswith("payload: after\n")
    assert "the records of the batch at position 0 (base offset 0) cannot be read: " in err


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ((), 'key: \x01k payload: {"b": [1, 2]}'),
        (("--key-decoder", "hex"), 'key: 016b payload: {"b": [1, 2]}'),
        (("--value-decoder", "json", "--key-decoder", "hex"), 'key: 016b payload: {"b":[1,2]}'),
        (("--value-decoder", "json:loads"), "key: \x01k payload: {'b': [1, 2]}"),
        (("--key-decoder", "builtins:len", "--value-decoder", "utf-8"), 'key: 2 payload: {"b": [1, 2]}'),
    ],
)
def test_decoders_say_how_keys_and_values_are_shown(kafkapy, tmp_path, options, shown):
    log = tmp_path / f"{NAME}.log"
    log.write_bytes(build([(0, b"\1k", b'{"b": [1, 2]}', ())]))
    code, out, err = kafkapy("log", "dump", *(options or ("--print-data-log",)), log)
    assert (code, err) == (0, "")
    assert out.endswith(f"headerKeys: [] {shown}\n")


def test_decoded_values_are_json_in_json(kafkapy, tmp_path):
    log = tmp_path / f"{NAME}.log"
    log.write_bytes(build([(0, b"\1k", b'{"b": [1, 2]}', ()), (0, None, None, ())]))
    _, out, _ = kafkapy("log", "dump", "--json", "--key-decoder", "hex", "--value-decoder", "json", log)
    records = json.loads(out)["records"]
    assert [(one["key"], one["value"]) for one in records] == [("016b", {"b": [1, 2]}), (None, None)]


def test_records_that_a_decoder_cannot_read_are_shown_undecoded(kafkapy, tmp_path):
    log = tmp_path / f"{NAME}.log"
    log.write_bytes(build([(0, b"k", b"{", ()), (0, b"k", b"1", ())]))
    code, out, err = kafkapy("log", "dump", "--value-decoder", "json", log)
    assert (code, out.count("payload: {\n"), out.count("payload: 1\n")) == (0, 1, 1)
    assert err.startswith(f"{log}: records that were not decoded: 1; at offset 0: ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--value-decoder", "avro"), "--value-decoder 'avro' is none of utf-8, json, hex, and not MODULE:FUNCTION"),
        (("--key-decoder", "no_such_module:f"), "No module named 'no_such_module'"),
        (("--key-decoder", "json:nothing"), "has no attribute 'nothing'"),
        (("--key-decoder", "json:__name__"), "is a str, not a function that takes bytes"),
        (("--offsets-decoder", "--value-decoder", "hex"), "use one of --offsets-decoder"),
    ],
)
def test_an_unknown_decoder_is_a_usage_error(kafkapy, options, words):
    code, _, err = kafkapy("log", "dump", *options, GOLDEN)
    assert (code, words in err) == (2, True)


@pytest.mark.parametrize("option", ["--offsets-decoder", "--transaction-log-decoder"])
def test_a_decoder_of_an_internal_topic_reports_records_of_another_topic(kafkapy, option):
    code, out, err = kafkapy("log", "dump", option, GOLDEN / f"{NAME}.log")
    assert (code, err) == (0, "")
    assert "Traceback" not in out
    assert out.count("skipping.") + out.count("unknown::version") == out.count("| offset:")


def test_findings_are_objects_for_programs(kafkapy, partition):
    log = partition / f"{NAME}.log"
    data = log.read_bytes()
    log.write_bytes(data[:80] + data[209:])
    code, out, err = kafkapy("log", "dump", "--json", "--deep-iteration", log)
    assert (code, err) == (0, "")
    assert json.loads(out.splitlines()[-1]) == {
        "type": "finding",
        "kind": "gap",
        "file": str(log),
        "offset": 0,
        "nextOffset": 6,
    }


def test_gaps_between_offsets_are_reported_newest_first(kafkapy, partition):
    log = partition / f"{NAME}.log"
    data = log.read_bytes()
    log.write_bytes(data[:80] + data[209:357] + data[1197:])
    code, _, err = kafkapy("log", "dump", "--deep-iteration", log)
    assert code == 0
    assert err.splitlines() == [f"Non-consecutive offsets in {log}", "  7 is followed by 16", "  0 is followed by 6"]


def test_a_large_segment_is_read_in_little_memory(tmp_path):
    batch = build([(0, None, b"x" * 9900, ())])
    log = tmp_path / f"{NAME}.log"
    log.write_bytes(batch * (64 * 1024 * 1024 // len(batch)))
    lines = 0

    def count(line):
        nonlocal lines
        lines += 1

    tracemalloc.start()
    try:
        Dump(DumpOptions(deep_iteration=True), count).run([log])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert lines > 2 * 6000
    assert peak < 8 * 1024 * 1024


def test_a_length_of_gigabytes_takes_no_memory(kafkapy, tmp_path, monkeypatch):
    """A batch with an implausible length is loaded only if its checksum, computed in pieces, is right."""
    monkeypatch.setattr(stored_batches, "LARGE", 1 << 16)
    log = tmp_path / f"{NAME}.log"
    log.write_bytes(build([(0, None, bytes(3 << 20), ())]))
    code, out, err = kafkapy("log", "dump", log)
    assert (code, out.count("isvalid: true"), err) == (0, 1, "")
    change(log, 1 << 20, b"x")
    code, _, err = kafkapy("log", "dump", log)
    assert (code, "a batch of 3145802 bytes is said to begin there, and its CRC is wrong" in err) == (1, True)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        # The result of `new String(bytes, UTF_8)` on OpenJDK 17.
        (b"a\xed\xa0\x80b", "a\ufffdb"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xf0\x90A", "\ufffdA"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
        (b"\xe2\x82", "\ufffd"),
        ("日本\0\n".encode(), "日本\0\n"),
    ],
)
def test_invalid_utf8_is_shown_as_by_java(data, shown):
    assert text(data) == shown
