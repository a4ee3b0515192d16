"""`log dump` compared with the output of Kafka's DumpLogSegments for the same files (tests/data/golden)."""

import gzip
import json
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tests.harness.brokers import kafkapy_command

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
V2 = GOLDEN / "kafka-3.9.1-v2"
# Folders with files written and dumped by Kafka 3.9.1 and by older brokers, each with its log directory.
BY_3_9 = {"kafka-3.9.1-v2": "data", "kafka-3.9.1-v0-v1": "data", "kafka-3.9.1-recovery": "after"}
OLDER = {"kafka-0.10.2.2": "data", "kafka-0.8.2.2": "data"}

# This file is not as Kafka wrote it: in its place the golden set has a hex listing of the partition's first .txnindex.
# Kafka's dump of the original file is there, and has every field of every entry.
LOST = ("v2-txn-0", "00000000000000000043.txnindex")


def partitions(folders: dict[str, str]) -> list[tuple[str, str]]:
    """Return (folder, partition) of all partitions that are not empty."""
    return [
        (folder, path.name)
        for folder, data in folders.items()
        for path in sorted((GOLDEN / folder / data).iterdir())
        if path.is_dir() and any(file.stat().st_size for file in path.glob("*.log"))
    ]


def kafkas_dump(folder: str, partition: str, kind: str = "") -> list[str]:
    packed = GOLDEN / folder / "dump" / f"{partition}{kind}.txt.gz"
    data = gzip.decompress(packed.read_bytes()) if packed.exists() else packed.with_suffix("").read_bytes()
    return data.decode("utf-8", "replace").split("\n")


def transaction_index(lines: list[str]) -> bytes:
    """Return the bytes of a .txnindex with the entries in Kafka's dump: for each a version and four int64."""
    return b"".join(struct.pack(">hqqqq", *map(int, re.findall(r": (-?\d+)", line))) for line in lines)


@pytest.fixture(scope="module")
def mended(tmp_path_factory):
    """Return the data directory of kafka-3.9.1-v2, with the missing file rebuilt from Kafka's dump of it."""
    directory = tmp_path_factory.mktemp("mended")
    partition, name = LOST
    for path in (V2 / "data").iterdir():
        if path.is_dir() and path.name != partition:
            (directory / path.name).symlink_to(path)
    shutil.copytree(V2 / "data" / partition, directory / partition)
    lines = kafkas_dump("kafka-3.9.1-v2", partition)
    begin = lines.index(f"Dumping {partition}/{name}") + 1
    (directory / partition).chmod(0o755)
    (directory / partition / name).unlink()
    (directory / partition / name).write_bytes(transaction_index(lines[begin : begin + 3]))
    return directory


@pytest.fixture
def go_to(mended, monkeypatch):
    """Return a function that changes to a folder's data directory: paths in Kafka's dump are relative to it."""

    def go(folder: str) -> None:
        monkeypatch.chdir(mended if folder == "kafka-3.9.1-v2" else GOLDEN / folder / (BY_3_9 | OLDER)[folder])

    return go


@pytest.fixture
def data(go_to):
    go_to("kafka-3.9.1-v2")


def test_a_transaction_index_rebuilt_from_its_dump_equals_kafkas():
    """The missing file is rebuilt from its dump. For a file that exists, this gives the bytes that Kafka wrote."""
    lines = kafkas_dump("kafka-3.9.1-v2", "v2-txn-0")
    begin = lines.index("Dumping v2-txn-0/00000000000000000025.txnindex") + 1
    printed = transaction_index(lines[begin : begin + 1])
    assert printed == (V2 / "data" / "v2-txn-0" / "00000000000000000025.txnindex").read_bytes()


@pytest.mark.parametrize(("folder", "partition"), partitions(BY_3_9))
def test_the_dump_equals_kafkas_line_by_line(kafkapy, go_to, folder, partition):
    go_to(folder)
    code, out, err = kafkapy("log", "dump", "--deep-iteration", "--print-data-log", partition)
    assert code == 0
    assert (out + err).split("\n") == kafkas_dump(folder, partition)


DECODED = [
    (folder, path.name.partition(".")[0], kind)
    for folder, kind in [
        *((folder, ".decoded") for folder in BY_3_9),
        ("kafka-0.10.2.2", ".decoded-by-3.9.1"),
        ("kafka-0.8.2.2", ".decoded"),
    ]
    for path in sorted((GOLDEN / folder / "dump").glob(f"*{kind}.txt*"))
]


@pytest.mark.parametrize(("folder", "partition", "kind"), DECODED)
def test_internal_topics_are_decoded_as_by_kafka(kafkapy, go_to, folder, partition, kind):
    go_to(folder)
    option = "--offsets-decoder" if partition.startswith("__consumer_offsets") else "--transaction-log-decoder"
    wanted = kafkas_dump(folder, partition, kind)
    logs = [line.removeprefix("Dumping ") for line in wanted if line.startswith("Dumping ")]
    code, out, err = kafkapy("log", "dump", option, *logs)
    assert code == 0
    assert (out + err).split("\n") == wanted


@pytest.mark.parametrize(("folder", "partition"), partitions(BY_3_9 | OLDER))
def test_the_json_has_every_stored_batch_and_record(kafkapy, go_to, folder, partition):
    go_to(folder)
    logs = sorted(Path(partition).glob("*.log"))
    code, out, _ = kafkapy("log", "dump", "--json", "--print-data-log", *logs)
    assert code == 0
    batches = [json.loads(line) for line in out.splitlines()]
    found = [one for one in batches if one.pop("type") == "batch" and one.pop("valid")]
    expected = (GOLDEN / folder / "expected" / f"{partition}.jsonl").read_text(encoding="utf-8").splitlines()
    assert found == [json.loads(line) for line in expected]


@pytest.mark.parametrize(("folder", "partition"), partitions(OLDER))
def test_offsets_positions_and_contents_equal_those_of_older_tools(kafkapy, go_to, folder, partition):
    """The older tools print one line for each message, with other words, and for a message in a wrapper the wrapper's
    position."""
    go_to(folder)
    _, out, _ = kafkapy("log", "dump", "--print-data-log", *sorted(Path(partition).glob("*.log")))
    found, position = [], 0
    for line in out.split("\n"):
        if match := re.match(r"offset: \d+ position: (\d+) ", line):
            position = int(match[1])
        elif match := re.match(r"\| offset: (\d+) .* valueSize: (-?\d+) isValid: true crc: (\d+)}", line):
            found.append((int(match[1]), position, int(match[2]), int(match[3])))
    pattern = r"offset: (\d+) position: (\d+) .*?payloadsize: (-?\d+) .*? crc: (\d+)"
    wanted = [
        tuple(map(int, match.groups())) for line in kafkas_dump(folder, partition) if (match := re.match(pattern, line))
    ]
    assert [(offset, value, crc) for offset, _, value, crc in found] == [
        (offset, value, crc) for offset, _, value, crc in wanted
    ]
    assert [one[1] for one in found] == [one[1] for one in wanted]


@pytest.mark.parametrize(("folder", "partition"), partitions(OLDER))
def test_indexes_by_the_rules_of_older_brokers_are_no_damage(kafkapy, go_to, folder, partition):
    go_to(folder)
    code, _, err = kafkapy("log", "dump", "--verify-index-only", partition)
    assert code == 0
    assert not [line for line in err.splitlines() if "damaged" in line]


@pytest.mark.parametrize("path", sorted((GOLDEN / "kafka-0.7.2" / "data").iterdir()), ids=lambda path: path.name)
def test_segments_of_0_7_have_the_messages_that_0_7_read(kafkapy, monkeypatch, path):
    if not path.is_dir():
        return
    code, out, err = kafkapy("log", "dump", "--json", "--print-data-log", path)
    assert (code, err) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    for message in found:
        assert message.pop("type") == "message"
    expected = (GOLDEN / "kafka-0.7.2" / "expected" / f"{path.name}.jsonl").read_text(encoding="utf-8").splitlines()
    wanted = [json.loads(line) for line in expected]
    for message in wanted:
        for inner in message["messages"]:
            del inner["reportedOffset"]
    assert found == wanted


def test_a_segment_of_0_7_is_shown_like_one_of_later_formats(kafkapy, monkeypatch):
    monkeypatch.chdir(GOLDEN / "kafka-0.7.2" / "data")
    code, out, err = kafkapy("log", "dump", "--print-data-log", "mixed-0")
    assert (code, err) == (0, "")
    assert out.splitlines()[:9] == [
        "Dumping mixed-0/00000000000000000000.kafka",
        "Log starting offset: 0",
        "offset: 0 nextOffset: 16 position: 0 size: 16 magic: 0 compresscodec: none crc: 542465031 isvalid: true",
        "| offset: 0 magic: 0 payloadSize: 7 payload: magic 0",
        "offset: 16 nextOffset: 33 position: 16 size: 17 magic: 1 compresscodec: none crc: 1465019537 isvalid: true",
        "| offset: 16 magic: 1 payloadSize: 7 payload: magic 1",
        "offset: 33 nextOffset: 55 position: 33 size: 22 magic: 0 compresscodec: none crc: 3348472694 isvalid: true",
        "| offset: 33 magic: 0 payloadSize: 13 payload: magic 0 again",
        "offset: 55 nextOffset: 114 position: 55 size: 59 magic: 1 compresscodec: gzip crc: 1553781120 isvalid: true",
    ]
    assert "| offset: 55 magic: 1 payloadSize: 9 payload: in gzip 2" in out.splitlines()


def test_checkpoints_of_kafka_are_shown_as_text_and_as_json(kafkapy, monkeypatch):
    monkeypatch.chdir(V2 / "data")
    names = ["log-start-offset-checkpoint", "cleaner-offset-checkpoint", "v2-none-0/leader-epoch-checkpoint"]
    names += ["v2-none-0/partition.metadata", "meta.properties", ".kafka_cleanshutdown"]
    code, out, err = kafkapy("log", "dump", *names)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "Dumping log-start-offset-checkpoint",
        "version: 0 entries: 1",
        "topic: v2-deleted-records partition: 0 offset: 40",
        "Dumping cleaner-offset-checkpoint",
        "version: 0 entries: 4",
        "topic: v2-compacted-txn partition: 0 offset: 28",
        "topic: v2-compacted-empty-batch partition: 0 offset: 23",
        "topic: v2-compacted-zstd partition: 0 offset: 147",
        "topic: v2-compacted-none partition: 0 offset: 139",
        "Dumping v2-none-0/leader-epoch-checkpoint",
        "version: 0 entries: 3",
        "leaderEpoch: 0 startOffset: 0",
        "leaderEpoch: 2 startOffset: 178",
        "leaderEpoch: 4 startOffset: 184",
        "Dumping v2-none-0/partition.metadata",
        "version: 0 topicId: Gb8uT694Qa6MioTHRpjuZw",
        "Dumping meta.properties",
        "broker.id: 1 version: 0 cluster.id: 8NMnlg0uR4-nhWypwK598w",
        "Dumping .kafka_cleanshutdown",
        "stopped cleanly, broker epoch: -1",
    ]
    _, out, _ = kafkapy("log", "dump", "--json", *names)
    assert [json.loads(line)["type"] for line in out.splitlines()] == [
        *["checkpoint"] * 5,
        *["leaderEpoch"] * 3,
        "partitionMetadata",
        "metaProperties",
        "cleanShutdown",
    ]


@pytest.mark.parametrize("folder", ["kafka-3.9.1-v0-v1", "kafka-0.8.2.2", "kafka-0.7.2"])
def test_a_log_directory_stands_for_all_its_partitions(kafkapy, folder):
    directory = GOLDEN / folder / "data"
    _, out, _ = kafkapy("log", "dump", directory)
    dumped = {line.removeprefix("Dumping ") for line in out.splitlines() if line.startswith("Dumping ")}
    wanted = {path for path in directory.rglob("*") if path.is_file() and path.stat().st_size}
    empty = {str(directory / ".kafka_cleanshutdown")}
    assert dumped | empty == {str(path) for path in wanted} | empty


def test_without_deep_iteration_only_batches_are_printed(kafkapy, data):
    _, out, _ = kafkapy("log", "dump", "v2-none-0")
    wanted = [line for line in kafkas_dump("kafka-3.9.1-v2", "v2-none-0") if not line.startswith("|")]
    assert out.split("\n") == wanted


def test_records_without_their_content_end_after_the_header_keys(kafkapy, data):
    _, out, _ = kafkapy("log", "dump", "--deep-iteration", "v2-zstd-0/00000000000000000000.log")
    records = [line for line in out.splitlines() if line.startswith("|")]
    assert records[6].endswith("sequence: 6 headerKeys: [a,null-value,,a,empty,bin]")
    assert all(line.endswith("]") for line in records)


def test_without_record_metadata_only_keys_and_values_are_left(kafkapy, data):
    _, out, _ = kafkapy(
        "log", "dump", "--print-data-log", "--skip-record-metadata", "v2-none-0/00000000000000000000.log"
    )
    lines = out.split("\n")
    assert lines[3] == "| key: key-0 payload: value-0"
    assert lines[5:8] == [" payload: null key", "| key: tombstone", ""]


def test_verifying_indexes_prints_no_entries(kafkapy, data):
    code, out, err = kafkapy("log", "dump", "--verify-index-only", "v2-none-0")
    assert (code, err) == (0, "")
    assert not [line for line in out.splitlines() if line.startswith(("offset:", "timestamp:"))]
    assert out.count("index\n") == 11


def test_a_sanity_check_says_which_index_passed(kafkapy, data):
    index = "v2-none-0/00000000000000000000.index"
    code, out, _ = kafkapy("log", "dump", "--index-sanity-check", index, Path(index).with_suffix(".timeindex"))
    assert (code, out.count(" passed sanity check.")) == (0, 2)


def test_an_empty_index_is_reported(kafkapy, data):
    _, out, _ = kafkapy("log", "dump", "v2-txn-0/00000000000000000000.index")
    assert out.endswith("v2-txn-0/00000000000000000000.index is empty.\n")


def test_files_can_be_given_as_for_kafkas_tool(kafkapy, data):
    names = ["v2-none-0/00000000000000000033.index", "v2-none-0/00000000000000000033.snapshot"]
    _, out, _ = kafkapy("log", "dump", "--files", ",".join(names))
    assert [line for line in out.splitlines() if line.startswith("Dumping")] == [f"Dumping {name}" for name in names]


def test_max_bytes_ends_after_the_last_batch_within_it(kafkapy, data):
    log = "v2-none-0/00000000000000000000.log"
    _, out, err = kafkapy("log", "dump", "--max-bytes", 210, log)
    assert (out.count("baseOffset:"), "invalid" in out, err) == (2, False, "")


def test_log_dump_ends_quietly_when_its_reader_closes_the_pipe() -> None:
    logs = sorted(str(path) for path in (V2 / "data").glob("*/*.log"))
    command = [*kafkapy_command(), "log", "dump", "--deep-iteration", "--print-data-log", *logs]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as dump:
        assert dump.stdout is not None
        assert dump.stderr is not None
        assert dump.stdout.readline().startswith(b"Dumping ")
        dump.stdout.close()
        assert dump.stderr.read() == b""
        dump.wait(30)
