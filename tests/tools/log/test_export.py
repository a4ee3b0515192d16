"""`kafkapy log export` on the files of real brokers and on damaged ones, and refused calls."""

import base64
import errno
import gc
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafkapy.record import control
from kafkapy.record.batch import build
from kafkapy.record.legacy import build_set
from kafkapy.tools.log.export import sinks as export_sinks
from tests.harness.markers import encode_marker

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
FOLDERS = {"kafka-3.9.1-v2": "data", "kafka-3.9.1-v0-v1": "data", "kafka-0.10.2.2": "data", "kafka-0.8.2.2": "data",
           "kafka-3.9.1-recovery": "after"}  # fmt: skip


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def content(value):
    """Return the bytes of a key or value in JSON: both kinds of files write bytes that are not UTF-8 as base64."""
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return None if value is None else value.encode()


def shown(record):
    """Return the fields that must be equal in `expected` and in the export."""
    headers = [(name, content(value)) for name, value in record.get("headers", ())]
    timestamp = -1 if record["timestamp"] is None else record["timestamp"]
    return record["offset"], timestamp, content(record["key"]), content(record["value"]), headers


def expected(folder, partition):
    for line in (GOLDEN / folder / "expected" / f"{partition}.jsonl").read_text().splitlines():
        batch = json.loads(line)
        if not batch.get("control"):
            yield from map(shown, batch["records"])


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_exported_log_directory_has_the_records_that_kafka_lists(kafkapy, folder):
    result = kafkapy("log", "export", "--json", GOLDEN / folder / FOLDERS[folder])
    assert (result.code, result.err) == (0, "")
    found = {}
    for line in lines(result.out):
        found.setdefault(f"{line['topic']}-{line['partition']}", []).append(shown(line))
    assert len(found) > 5
    assert list(found) == sorted(found, key=lambda name: (name.rpartition("-")[0], int(name.rpartition("-")[2])))
    for partition, records in found.items():
        assert records == list(expected(folder, partition)), partition


def test_committed_records_equal_those_that_a_consumer_got(kafkapy):
    folder = GOLDEN / "kafka-3.9.1-v2"
    seen = 0
    for view in lines((folder / "consumer-view.jsonl").read_text()):
        name = f"{view['topic']}-0"
        begin = ["--from", view["beginningOffset"]] if view["beginningOffset"] else []
        for isolation, option in (("read_committed", ["--read-committed"]), ("read_uncommitted", [])):
            result = kafkapy("log", "export", "--json", *option, *begin, folder / "data" / name)
            assert [line["offset"] for line in lines(result.out)] == view[isolation]["offsets"], (name, isolation)
            seen += len(view[isolation]["offsets"])
    assert seen > 500


def test_for_one_segment_transactions_are_looked_up_in_the_segments_around_it(kafkapy):
    partition = GOLDEN / "kafka-3.9.1-v2" / "data" / "v2-txn-0"
    whole = lines(kafkapy("log", "export", "--json", "--read-committed", partition).out)
    apart = [
        line
        for path in sorted(partition.glob("*.log"))
        for line in lines(kafkapy("log", "export", "--json", "--read-committed", path).out)
    ]
    assert [line["offset"] for line in apart] == [line["offset"] for line in whole]


@pytest.mark.parametrize(
    "partition", ["none-0", "gzip-0", "snappy-0", "mixed-0", "gzip-segments-0", "small-segments-0"]
)
def test_messages_of_kafka_07_have_the_offset_to_fetch_them_by(kafkapy, partition):
    result = kafkapy("log", "export", "--json", GOLDEN / "kafka-0.7.2" / "data" / partition)
    wanted = [
        (stored["offset"], content(message["payload"]))
        for stored in lines((GOLDEN / "kafka-0.7.2" / "expected" / f"{partition}.jsonl").read_text())
        for message in stored["messages"]
    ]
    assert [(line["offset"], content(line["value"])) for line in lines(result.out)] == wanted
    assert {(line["timestamp"], line["key"]) for line in lines(result.out)} == {(-1, None)}


def test_a_topic_is_named_without_the_numbers_of_its_partitions(kafkapy):
    folder = GOLDEN / "kafka-0.8.2.2" / "data"
    result = kafkapy("log", "export", "--json", folder / "v0-four")
    assert {line["topic"] for line in lines(result.out)} == {"v0-four"}
    assert sorted({line["partition"] for line in lines(result.out)}) == [0, 1, 2, 3]


@pytest.mark.parametrize("folder", ["kafka-3.9.1-v2", "kafka-3.9.1-v0-v1"])
def test_parquet_holds_the_same_as_json(kafkapy, folder, tmp_path):
    file = tmp_path / "all.parquet"
    data = GOLDEN / folder / "data"
    result = kafkapy("log", "export", "--parquet", file, data)
    wanted = lines(kafkapy("log", "export", "--json", data).out)
    assert result.code == 0
    assert result.err == f"{len(wanted):,} records are in {file} ({file.stat().st_size:,} bytes).\n"
    found = pq.read_table(file).to_pylist()
    assert [
        (
            row["topic"],
            row["partition"],
            row["offset"],
            -1 if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"]],
        )
        for row in found
    ] == [(line["topic"], line["partition"], *shown(line)) for line in wanted]
    assert {kind for row in found for kind in [row["timestamp_type"]]} == (
        {0, 1} if folder.endswith("v2") else {-1, 0, 1}
    )
    assert pq.ParquetFile(file).metadata.num_row_groups == 1
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def segment(directory, *batches, offset=0):
    directory.mkdir(exist_ok=True)
    path = directory / f"{offset:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def numbered(count, base_offset=0, **more):
    records = [(1_700_000_000_000 + base_offset + n, b"k", b"%d" % (base_offset + n), ()) for n in range(count)]
    return build(records, base_offset=base_offset, **more)


@pytest.fixture
def topic(tmp_path):
    """Create flights-0 with offsets 0 to 29 in three segments."""
    for offset in (0, 10, 20):
        segment(tmp_path / "flights-0", numbered(5, offset), numbered(5, offset + 5, codec=4), offset=offset)
    return tmp_path / "flights"


def offsets(result):
    return [line["offset"] for line in lines(result.out)]


@pytest.mark.parametrize(
    ("bounds", "wanted"),
    [
        (["--from", "12"], range(12, 30)),
        (["--to", "12"], range(12)),
        (["--from", "8", "--to", "21"], range(8, 21)),
        (["--from", "@1700000000011"], range(11, 30)),
        (["--to", "2023-11-14T22:13:20.004Z"], range(4)),
        (["--from", "5", "--to", "@1700000000010"], range(5, 10)),
        (["--from", "99"], []),
    ],
)
def test_offsets_and_times_bound_the_export(kafkapy, topic, bounds, wanted):
    assert offsets(kafkapy("log", "export", "--json", *bounds, topic)) == list(wanted)


@pytest.mark.parametrize("bound", ["-5", "soon", "2024-13-01"])
def test_an_invalid_bound_is_refused(kafkapy, topic, bound):
    result = kafkapy("log", "export", "--json", f"--from={bound}", topic)
    assert (result.code, result.out) == (2, "")
    assert result.err == f"kafkapy: --from '{bound}' is neither an offset nor a time as in 2024-01-31T12:00:00Z.\n"


def test_columns_of_the_parquet_file_are_chosen(kafkapy, topic, tmp_path):
    file = tmp_path / "some.parquet"
    assert kafkapy("log", "export", "--parquet", file, "--columns", "value,offset", topic).code == 0
    assert pq.read_table(file).to_pylist()[:2] == [{"offset": 0, "value": b"0"}, {"offset": 1, "value": b"1"}]
    file.unlink()
    assert kafkapy("log", "export", "--parquet", file, "--columns", "topic", topic).code == 0
    assert pq.read_table(file).to_pylist() == [{"topic": "flights"}] * 30
    file.unlink()
    result = kafkapy("log", "export", "--parquet", file, "--columns", "offsets", topic)
    assert result.code == 2
    assert result.err.startswith(
        "kafkapy: --columns: there is no column 'offsets'; there are topic, partition, offset,"
    )


def test_many_small_partitions_take_little_memory(kafkapy, tmp_path, monkeypatch):
    monkeypatch.setattr(export_sinks, "MOST_WAITING", 3)
    waiting = []
    real = export_sinks.ParquetSink.write

    def write(self, columns, place):
        real(self, columns, place)
        waiting.append(len(self._waiting))

    monkeypatch.setattr(export_sinks.ParquetSink, "write", write)
    for number in range(20):
        directory = tmp_path / "data" / f"t{number % 3}-{number}"
        directory.mkdir(parents=True)
        (directory / f"{0:020d}.log").write_bytes(build([(5, b"k", b"%d" % number, ())]))
    assert kafkapy("log", "export", "--parquet", tmp_path / "x.parquet", tmp_path / "data").code == 0
    assert max(waiting) < 3
    table = pq.read_table(tmp_path / "x.parquet")
    found = zip(*(table.column(name).to_pylist() for name in ("topic", "partition", "value")), strict=True)
    assert sorted(found) == sorted((f"t{n % 3}", n, b"%d" % n) for n in range(20))


def test_an_empty_export_is_a_valid_file(kafkapy, tmp_path):
    segment(tmp_path / "empty-0")
    file = tmp_path / "empty.parquet"
    assert kafkapy("log", "export", "--parquet", file, tmp_path / "empty").code == 0
    assert pq.read_table(file).num_rows == 0
    assert "headers" in pq.read_table(file).schema.names


def test_records_of_a_file_outside_a_partition_directory_have_no_topic(kafkapy, tmp_path):
    path = segment(tmp_path / "somewhere", numbered(1))
    (line,) = lines(kafkapy("log", "export", "--json", path).out)
    assert (line["topic"], line["partition"]) == (None, None)
    file = tmp_path / "x.parquet"
    kafkapy("log", "export", "--parquet", file, path)
    assert [(row["topic"], row["partition"]) for row in pq.read_table(file).to_pylist()] == [(None, -1)]


def test_an_existing_file_is_replaced_only_with_force(kafkapy, topic, tmp_path):
    file = tmp_path / "out.json"
    file.write_text("mine")
    result = kafkapy("log", "export", "--json", "--output", file, topic)
    assert (result.code, result.err) == (2, f"kafkapy: {file} exists already; --force replaces it.\n")
    assert file.read_text() == "mine"
    assert kafkapy("log", "export", "--json", "--output", file, "--force", topic).code == 0
    assert len(lines(file.read_text())) == 30


def test_the_error_names_a_path_that_cannot_be_written(kafkapy, topic, tmp_path):
    nowhere = tmp_path / "nowhere" / "out.parquet"
    result = kafkapy("log", "export", "--parquet", nowhere, topic)
    assert (result.code, result.err) == (
        2,
        f"kafkapy: {nowhere} cannot be written: there is no directory {nowhere.parent}.\n",
    )
    result = kafkapy("log", "export", "--parquet", tmp_path, topic)
    assert result.code == 2
    assert result.err.startswith(f"kafkapy: {tmp_path} is a directory; a file's name is needed")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_export_leaves_no_file(kafkapy, topic, tmp_path, monkeypatch, number, code):
    def ended(self, columns, place):
        assert list(tmp_path.glob(".*.part"))
        signal.raise_signal(number)

    monkeypatch.setattr(export_sinks.JsonSink, "write", ended)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as in a process of its own
    try:
        result = kafkapy("log", "export", "--json", "--output", tmp_path / "x.json", topic)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (result.code, result.err) == (code, "")
    assert not list(tmp_path.glob("*x.json*"))


def test_a_disk_that_gets_full_leaves_no_file(kafkapy, topic, tmp_path, monkeypatch):
    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    file = tmp_path / "out.parquet"
    result = kafkapy("log", "export", "--parquet", file, topic)
    assert (result.code, result.err) == (1, f"kafkapy: {file} could not be written: No space left on device.\n")
    assert not list(tmp_path.glob("*out.parquet*"))


def test_a_file_that_takes_no_byte_is_removed_and_named(topic, tmp_path):
    file = tmp_path / "out.json"
    words = ["log", "export", "--json", "--output", str(file), str(topic)]
    done = subprocess.run(
        [sys.executable, "-m", "kafkapy", *words],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),  # as a full disk, but EFBIG
    )
    assert (done.returncode, done.stderr) == (1, f"kafkapy: {file} could not be written: File too large.\n")
    assert not list(tmp_path.glob("*out.json*"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["DIR"], "log export needs either --json or --parquet FILE, as in: kafkapy log export --json flights-0."),
        (["--json", "--parquet", "x", "DIR"], "log export needs either --json or --parquet FILE"),
        (["--parquet", "x", "--output", "y", "DIR"], "--output is where JSON lines go"),
        (["--json", "--columns", "key", "DIR"], "--columns is for --parquet"),
        (["--parquet", "x", "--columns", ",", "DIR"], "--columns needs the name of a column"),
    ],
)
def test_contradicting_options_are_refused_with_the_reason(kafkapy, topic, words, reason):
    result = kafkapy("log", "export", *(topic if word == "DIR" else word for word in words))
    assert result.code == 2
    assert result.err.startswith(f"kafkapy: {reason}")


def test_a_path_that_is_no_segment_is_reported_in_a_sentence(kafkapy, tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    result = kafkapy("log", "export", "--json", text)
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        f"kafkapy: {text} is not a segment file: its name is not an offset and .log, as in 00000000000000000042.log.\n"
    )
    for path in (tmp_path, tmp_path / "missing"):
        result = kafkapy("log", "export", "--json", path)
        assert result.code == 1
        assert "a segment file, a partition's directory (flights-0), a topic (flights) or a log directory" in result.err
    nonsense = segment(tmp_path / "n-0", os.urandom(8) + b"\x00\x00\x10\x00" + os.urandom(5000))
    result = kafkapy("log", "export", "--json", nonsense)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(f"kafkapy: {nonsense} is damaged: the batch at position 0 ")


def test_damage_is_reported_and_the_rest_is_written(kafkapy, topic, tmp_path):
    middle = tmp_path / "flights-0" / f"{10:020d}.log"
    data = bytearray(middle.read_bytes())
    start = len(numbered(5, 10))
    data[start + 70] ^= 1
    middle.write_bytes(data)
    last = tmp_path / "flights-0" / f"{20:020d}.log"
    os.truncate(last, last.stat().st_size - 3)
    left = last.stat().st_size - start
    result = kafkapy("log", "export", "--json", topic)
    assert offsets(result) == [*range(15), *range(20, 25)]
    assert result.code == 1
    assert result.err.splitlines() == [
        f"kafkapy: {middle} is damaged: the batch at position {start} (base offset 15, {len(data) - start} bytes) "
        "has a wrong CRC. The rest of the file is left out.",
        f"kafkapy: {last} has no whole batch from position {start} on: {left} bytes are left over.",
    ]
    file = tmp_path / "x.parquet"
    assert kafkapy("log", "export", "--parquet", file, topic).code == 1
    assert pq.read_table(file).num_rows == 20


@pytest.mark.parametrize("command", [["export", "--json"], ["export", "--json", "--read-committed"], ["stats"]])
def test_a_read_error_is_reported_and_not_taken_for_the_end_of_the_file(kafkapy, topic, tmp_path, monkeypatch, command):
    def failing(fd, buffers, position):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", failing)
    result = kafkapy("log", *command, topic)
    assert (result.code, result.out) == (1, "")
    path = tmp_path / "flights-0" / f"{0:020d}.log"
    assert result.err == f"kafkapy: {path} could not be read: Input/output error.\n"


def test_a_failed_parquet_file_is_removed_without_a_second_error(kafkapy, topic, tmp_path, monkeypatch):
    def failing(fd, buffers, position):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    monkeypatch.setattr(os, "preadv", failing)
    result = kafkapy("log", "export", "--parquet", tmp_path / "x.parquet", topic)
    gc.collect()
    assert (result.code, result.err.count("\n"), unraisable) == (1, 1, [])
    assert not list(tmp_path.glob("*parquet*"))


@pytest.mark.parametrize("command", [["export", "--json"], ["stats"]])
def test_the_error_names_a_file_that_may_not_be_read(kafkapy, topic, tmp_path, monkeypatch, command):
    path = tmp_path / "flights-0" / f"{0:020d}.log"
    real = os.open

    def refusing(name, *more, **named):
        if str(name) == str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(name))
        return real(name, *more, **named)

    monkeypatch.setattr(os, "open", refusing)
    result = kafkapy("log", *command, topic)
    assert (result.code, result.err) == (1, f"kafkapy: {path} could not be read: Permission denied.\n")


def test_damage_in_a_file_of_kafka_07_is_reported(kafkapy, tmp_path):
    source = GOLDEN / "kafka-0.7.2" / "data" / "none-0"
    shutil.copytree(source, tmp_path / "none-0")
    path = tmp_path / "none-0" / f"{0:020d}.kafka"
    data = path.read_bytes()
    path.write_bytes(data[:-3])
    result = kafkapy("log", "export", "--json", path)
    assert result.code == 1
    assert f"{path} has no whole message from position" in result.err
    path.write_bytes(data[:12] + b"\xff" + data[13:])
    result = kafkapy("log", "export", "--json", path)
    assert (result.code, result.err.startswith(f"kafkapy: {path} is damaged: the message at position 0 ")) == (1, True)


def test_without_pyarrow_the_error_says_what_to_install(kafkapy, topic, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = kafkapy("log", "export", "--parquet", tmp_path / "x.parquet", topic)
    assert result.code == 2
    assert result.err.startswith("kafkapy: --parquet needs pyarrow, which is not installed (")
    assert result.err.endswith("): run pip install -e '.[parquet]' in a checkout of kafkapy.\n")
    assert not list(tmp_path.glob("*x.parquet*"))


def sent(offset, producer):
    fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    return numbered(2, offset, **fields)


def marker(kind, offset, producer):
    fields = {"producer_id": producer, "producer_epoch": 0, "transactional": True, "control": True}
    record = (5, control.encode_key(kind), encode_marker(0), ())
    return build([record], base_offset=offset, **fields)


def test_a_transaction_aborted_before_the_first_exported_record_is_over(kafkapy, tmp_path):
    aborted = sent(0, 1) + marker(control.ABORT, 2, 1)
    path = segment(tmp_path / "t-0", aborted, sent(3, 1), marker(control.COMMIT, 5, 1))
    path.with_suffix(".index").write_bytes(struct.pack(">ii", 3, len(aborted)))
    assert offsets(kafkapy("log", "export", "--json", "--read-committed", "--from", "3", path)) == [3, 4]
    assert offsets(kafkapy("log", "export", "--json", "--from", "3", path)) == [3, 4]


def test_aborted_and_open_transactions_are_left_out_without_any_index(kafkapy, tmp_path):
    segment(tmp_path / "t-0", sent(0, 1), sent(2, 2), marker(control.ABORT, 4, 1))
    segment(tmp_path / "t-0", marker(control.COMMIT, 5, 2), sent(6, 3), numbered(1, 8), offset=5)
    assert offsets(kafkapy("log", "export", "--json", "--read-committed", tmp_path / "t-0")) == [2, 3]
    assert offsets(kafkapy("log", "export", "--json", tmp_path / "t-0")) == [0, 1, 2, 3, 6, 7, 8]


def test_a_transactional_batch_without_a_producer_is_in_no_transaction(kafkapy, tmp_path):
    """A broker stores such a batch. Consumers with read_committed get it and the records after it."""
    segment(tmp_path / "t-0", numbered(1), numbered(1, 1, transactional=True), numbered(1, 2))
    segment(tmp_path / "t-0", numbered(1, 3), offset=3)
    assert offsets(kafkapy("log", "export", "--json", "--read-committed", tmp_path / "t-0")) == [0, 1, 2, 3]


def test_formats_may_change_within_a_segment(kafkapy, tmp_path):
    old = build_set([(7, b"k", b"0"), (8, b"k", b"1")], 1, 1) + build_set([(-1, None, b"2")], 0, base_offset=2)
    path = segment(tmp_path / "t-0", old, numbered(2, 3))
    assert offsets(kafkapy("log", "export", "--json", path)) == [0, 1, 2, 3, 4]
