"""`log dump` against what Kafka 3.9.1's own DumpLogSegments printed for the same files (tests/data/golden)."""

import gzip
import json
import re
import shutil
import struct
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "kafka-3.9.1-v2"
PARTITIONS = sorted(path.name for path in (GOLDEN / "data").iterdir() if path.is_dir())

# Not as Kafka wrote it: the golden set has, in place of this file, the text of a hex listing of the first
# .txnindex of the partition. Kafka's own dump of the true file is there, and it holds every field of every entry.
LOST = ("v2-txn-0", "00000000000000000043.txnindex")


def kafkas_dump(partition: str) -> list[str]:
    packed = GOLDEN / "dump" / f"{partition}.txt.gz"
    data = gzip.decompress(packed.read_bytes()) if packed.exists() else packed.with_suffix("").read_bytes()
    return data.decode().split("\n")


def transaction_index(lines: list[str]) -> bytes:
    """The bytes of a .txnindex of which Kafka's dump says what is in it: version, then four int64."""
    return b"".join(struct.pack(">hqqqq", *map(int, re.findall(r": (-?\d+)", line))) for line in lines)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """The data directory as the working directory, because Kafka's dump has paths relative to it."""
    partition, name = LOST
    for path in (GOLDEN / "data").iterdir():
        if path.is_dir() and path.name != partition:
            (tmp_path / path.name).symlink_to(path)
    shutil.copytree(GOLDEN / "data" / partition, tmp_path / partition)
    lines = kafkas_dump(partition)
    begin = lines.index(f"Dumping {partition}/{name}") + 1
    (tmp_path / partition / name).unlink()
    (tmp_path / partition / name).write_bytes(transaction_index(lines[begin : begin + 3]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_transaction_index_of_kafka_is_what_its_dump_says():
    """What stands in for the lost file is made as Kafka makes them: shown on one that is there."""
    lines = kafkas_dump("v2-txn-0")
    begin = lines.index("Dumping v2-txn-0/00000000000000000025.txnindex") + 1
    made = transaction_index(lines[begin : begin + 1])
    assert made == (GOLDEN / "data" / "v2-txn-0" / "00000000000000000025.txnindex").read_bytes()


@pytest.mark.parametrize("partition", PARTITIONS)
def test_the_dump_is_kafkas_line_by_line(kafkapy, data, partition):
    code, out, err = kafkapy("log", "dump", "--deep-iteration", "--print-data-log", partition)
    assert code == 0
    assert (out + err).split("\n") == kafkas_dump(partition)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_the_json_has_every_stored_batch_and_record(kafkapy, data, partition):
    logs = sorted((GOLDEN / "data" / partition).glob("*.log"))
    code, out, _ = kafkapy("log", "dump", "--json", "--print-data-log", *logs)
    assert code == 0
    batches = [json.loads(line) for line in out.splitlines()]
    found = [one for one in batches if one.pop("type") == "batch" and one.pop("valid")]
    expected = (GOLDEN / "expected" / f"{partition}.jsonl").read_text(encoding="utf-8").splitlines()
    assert found == [json.loads(line) for line in expected]


def test_without_deep_iteration_only_batches_are_printed(kafkapy, data):
    _, out, _ = kafkapy("log", "dump", "v2-none-0")
    assert out.split("\n") == [line for line in kafkas_dump("v2-none-0") if not line.startswith("|")]


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


def test_an_empty_index_is_told(kafkapy, data):
    _, out, _ = kafkapy("log", "dump", "v2-txn-0/00000000000000000000.index")
    assert out.endswith("v2-txn-0/00000000000000000000.index is empty.\n")


def test_files_can_be_given_as_kafkas_tool_takes_them(kafkapy, data):
    names = ["v2-none-0/00000000000000000033.index", "v2-none-0/00000000000000000033.snapshot"]
    _, out, _ = kafkapy("log", "dump", "--files", ",".join(names))
    assert [line for line in out.splitlines() if line.startswith("Dumping")] == [f"Dumping {name}" for name in names]


def test_max_bytes_ends_after_the_last_batch_within_it(kafkapy, data):
    log = "v2-none-0/00000000000000000000.log"
    _, out, err = kafkapy("log", "dump", "--max-bytes", 210, log)
    assert (out.count("baseOffset:"), "invalid" in out, err) == (2, False, "")
