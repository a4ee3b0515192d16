"""`log verify` on logs of every Kafka version, on one damage of each kind, and on files that are no log."""

import json
import shutil
import struct
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkapy._ext.crc32c import crc32c
from kafkapy.log.offline.stored_batches import LogReader
from kafkapy.record.batch import build
from kafkapy.record.control import encode_key
from kafkapy.record.kafka07 import build_message
from kafkapy.tools.log.verify import report, segment
from kafkapy.tools.log.verify.paths import check_path
from tests.harness.markers import encode_marker

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
NAME = "00000000000000000000"


def copy_of(path, to):
    shutil.copytree(path, to)
    for one in (to, *to.rglob("*")):
        one.chmod(0o755 if one.is_dir() else 0o644)
    return to


def change(path, position, data, *, mend=False):
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    if mend:
        content[17:21] = crc32c(content[21:]).to_bytes(4, "big")
    path.write_bytes(content)


@pytest.fixture
def partition(tmp_path):
    """Return a copy of a partition of Kafka, for a test to damage: segments 0, 33, 68, 94, 123, 155, two producers."""
    return copy_of(GOLDEN / "kafka-3.9.1-v2" / "data" / "v2-none-0", tmp_path / "v2-none-0")


@pytest.fixture
def transactions(tmp_path):
    """Return a log with an aborted transaction of producer 7 at offsets 0 to 1, and a committed one after it."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    own = {"producer_id": 7, "producer_epoch": 0, "leader_epoch": 0}

    def marker(kind, offset):
        record = (0, encode_key(kind), encode_marker(3), ())
        return build([record], base_offset=offset, transactional=True, control=True, **own)

    def data(offset, sequence, count=1):
        values = [(0, b"k", b"v", ())] * count
        return build(values, base_offset=offset, base_sequence=sequence, transactional=True, **own)

    (directory / f"{NAME}.log").write_bytes(data(0, 0, 2) + marker(0, 2) + data(3, 2) + marker(1, 4))
    (directory / f"{NAME}.index").write_bytes(b"")
    (directory / f"{NAME}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 0, 2, 3))
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return directory


SOUND = ["kafka-3.9.1-v0-v1/data", "kafka-3.9.1-recovery/after", "kafka-0.10.2.2/data", "kafka-0.8.2.2/data"]


@pytest.mark.parametrize("folder", [*SOUND, "kafka-0.7.2/data"])
def test_logs_of_kafka_have_no_problem(kafkapy, folder):
    code, out, err = kafkapy("log", "verify", GOLDEN / folder)
    assert (code, err) == (0, "")
    assert out.startswith("Checked ")
    assert out.endswith(": no problem found.\n")


def test_logs_of_3_9_have_no_problem_except_the_file_missing_from_the_golden_set(kafkapy):
    """The logs have transactions, compaction, empty batches, deleted records and several leader epochs."""
    lost = GOLDEN / "kafka-3.9.1-v2" / "data" / "v2-txn-0" / "00000000000000000043.txnindex"
    code, out, _ = kafkapy("log", "verify", "--json", GOLDEN / "kafka-3.9.1-v2" / "data")
    *problems, summary = map(json.loads, out.splitlines())
    assert code == 1
    assert {one["file"] for one in problems} == {str(lost)}
    assert (summary["type"], summary["problems"]) == ("summary", len(problems))


def test_every_damage_of_the_recovery_set_is_reported_with_its_place(kafkapy):
    before = GOLDEN / "kafka-3.9.1-recovery" / "before"
    code, out, _ = kafkapy("log", "verify", before)
    last = "00000000000000000042.log"
    assert code == 1
    assert [line.removeprefix(f"{before}/") for line in out.splitlines()[:-1]] == [
        f"bad-crc-last-0/{last}: the batch at position 0 (offset 42) has a wrong CRC.",
        "bad-crc-middle-0/00000000000000000016.log: the batch at position 0 (offset 16) has a wrong CRC.",
        f"bad-index-0/{NAME}.index: the entry at position 0 has relative offset -1 and position -1.",
        f"bad-index-0/{NAME}.index: the entry at position 8 has relative offset -1 and position -1.",
        "bad-index-0/00000000000000000024.timeindex: has 13 bytes, which are not whole entries of 12 bytes.",
        f"no-index-0/{NAME}.index: is missing, {NAME}.log exists.",
        "no-index-0/00000000000000000016.index: is missing, 00000000000000000016.log exists.",
        f"torn-tail-0/{last}: 915 bytes at position 0 are no whole batch.",
        f"zero-tail-0/{last}: the batch at position 922 has a length of 0 bytes, which is not valid for an entry: "
        "the rest of the file cannot be read.",
    ]


def problems(kafkapy, path):
    """Return (file name, position, offset, sentence) of each problem that `log verify` reports."""
    code, out, _ = kafkapy("log", "verify", "--json", path)
    found = [json.loads(line) for line in out.splitlines()]
    assert code == (1 if len(found) > 1 else 0)
    return [(Path(one["file"]).name, one["position"], one["offset"], one["message"]) for one in found[:-1]]


def test_a_flipped_bit_is_reported_with_its_batch(kafkapy, partition):
    change(partition / f"{NAME}.log", 90 + 61, b"\xff")
    assert problems(kafkapy, partition) == [
        (f"{NAME}.log", 80, 1, "the batch at position 80 (offset 1) has a wrong CRC")
    ]


def test_problems_in_other_files_than_a_damaged_segment_are_reported_too(kafkapy, partition):
    change(partition / f"{NAME}.log", 90 + 61, b"\xff")
    change(partition / "00000000000000000070.snapshot", 12, b"\xff")
    change(partition / "leader-epoch-checkpoint", 0, b"1")
    assert [one[0] for one in problems(kafkapy, partition)] == [
        f"{NAME}.log",
        "00000000000000000070.snapshot",
        "leader-epoch-checkpoint",
    ]


@pytest.mark.parametrize(
    ("suffix", "at", "data", "words"),
    [
        ("index", 0, (22).to_bytes(4, "big"), None),  # the first offset of the append, as old brokers write it
        ("index", 0, (5).to_bytes(4, "big"), "but that offset lies before it: the batches there reach up to"),
        ("index", 4, (5).to_bytes(4, "big"), "points to position 5, where no batch is"),
        ("index", 8, (1).to_bytes(4, "big"), "does not come after the previous one"),
        ("index", 16, (500).to_bytes(4, "big"), "where a batch has offsets"),
        ("index", 24, b"\0\0\0", "which are not whole entries of 8 bytes"),
        ("index", 24, bytes(800), None),  # preallocated space
        ("index", 24, bytes(8) + b"\1" * 8, "has entries after an entry of zeros at position 24"),
        ("timeindex", 0, (1).to_bytes(8, "big"), "but a batch before it has timestamp"),
        ("timeindex", 12, (1).to_bytes(8, "big"), "does not come after the previous one"),
        ("timeindex", 24, (1 << 60).to_bytes(8, "big"), "but the largest timestamp of its batch is"),
        ("timeindex", 32, (999).to_bytes(4, "big"), "but the segment ends before it"),
        ("timeindex", 32, (0x80000000).to_bytes(4, "big"), "has relative offset -2147483648"),
    ],
)
def test_index_entries_that_mislead_a_search_are_reported(kafkapy, partition, suffix, at, data, words):
    path = partition / f"{NAME}.{suffix}"
    change(path, at, data)
    for place in (partition, path):
        found = problems(kafkapy, place)
        assert [one[0] for one in found] == [] if words is None else [f"{NAME}.{suffix}"]
        assert words is None or words in found[0][3], found


def test_an_index_is_not_compared_with_a_damaged_log(kafkapy, partition):
    change(partition / f"{NAME}.log", 90 + 61, b"\xff")
    code, _, err = kafkapy("log", "verify", partition / f"{NAME}.index")
    assert (code, "cannot be checked against a damaged log" in err) == (1, True)


def test_a_segment_that_overlaps_the_next_is_reported(kafkapy, partition):
    segments = sorted(partition.glob("*.log"))
    segments[0].write_bytes(segments[0].read_bytes() + segments[1].read_bytes())
    found = problems(kafkapy, partition)
    assert (f"{NAME}.log", "but the next segment begins at 33") in [(one[0], one[3][-33:]) for one in found]


def test_an_index_without_its_segment_is_reported(kafkapy, partition):
    (partition / "00000000000000000033.log").unlink()
    found = problems(kafkapy, partition)
    assert [one[0] for one in found if "belongs to no segment" in one[3]] == [
        "00000000000000000033.index",
        "00000000000000000033.timeindex",
    ]


def test_an_out_of_order_sequence_is_reported(kafkapy, tmp_path):
    own = {"producer_id": 7, "producer_epoch": 0}
    values = [(0, None, b"v", ())]
    log = tmp_path / f"{NAME}.log"
    log.write_bytes(
        build(values, base_sequence=0, **own)
        + build(values, base_offset=1, base_sequence=5, **own)
        + build(values, base_offset=9, base_sequence=8, **own)  # offsets are missing: compaction
        + build(values, base_offset=10, base_sequence=8, **own)
        + build(values, base_offset=11, base_sequence=4, producer_id=7, producer_epoch=1)
    )
    assert [one[2:] for one in problems(kafkapy, log)] == [
        (1, "producer 7 has sequence 5 where 1 had to follow, at offset 1"),
        (10, "producer 7 has sequence 8 where 9 had to follow, at offset 10"),
        (11, "producer 7 has sequence 4 at the start of producer epoch 1, at offset 11"),
    ]


def test_sequences_wrap_and_continue_in_the_next_segment(kafkapy, tmp_path):
    own = {"producer_id": 7, "producer_epoch": 0}
    values = [(0, None, b"v", ())]
    (tmp_path / f"{NAME}.log").write_bytes(build(values, base_sequence=(1 << 31) - 1, **own))
    (tmp_path / "00000000000000000001.log").write_bytes(build(values, base_offset=1, base_sequence=0, **own))
    assert [one for one in problems(kafkapy, tmp_path) if "sequence" in one[3]] == []


def test_a_correct_transaction_has_no_problem(kafkapy, transactions):
    assert problems(kafkapy, transactions) == []


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ([], "has no entry for the transaction of producer 7 that was aborted at offset 2"),
        ([(0, 7, 1, 2, 3)], "offsets 1 to 2"),
        ([(0, 7, 0, 2, 2)], "last stable offset 2, the log producer 7"),
        ([(0, 8, 0, 2, 3)], "names a marker that is of another producer or a commit"),
        ([(0, 7, 0, 2, 3), (0, 7, 3, 4, 5)], "names a marker that is of another producer or a commit"),
        ([(0, 7, 0, 2, 3), (0, 7, 3, 9, 5)], "belongs to another segment"),
        ([(1, 7, 0, 2, 3)], "has an aborted transaction of version 1"),
    ],
)
def test_a_transaction_index_that_does_not_match_the_markers_is_reported(kafkapy, transactions, index, words):
    path = transactions / f"{NAME}.txnindex"
    path.write_bytes(b"".join(struct.pack(">hqqqq", *entry) for entry in index))
    for place in (transactions, path):
        found = problems(kafkapy, place)
        assert any(words in one[3] for one in found), found
        assert {one[0] for one in found} == {path.name}


def snapshot(*producers):
    body = struct.pack(">i", len(producers)) + b"".join(struct.pack(">qhiqiqiq", *one) for one in producers)
    return struct.pack(">hI", 1, crc32c(body)) + body


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (snapshot((7, 0, 2, 3, 0, 0, 3, -1)), None),
        (snapshot(), None),  # the producer may have expired
        (snapshot((7, 0, 1, 1, 1, 0, 3, -1)), "last offset 1, but the log 3"),
        (snapshot((7, 1, 2, 3, 0, 0, 3, -1)), "producer epoch 1, but the log 0"),
        (snapshot((7, 0, 2, 3, 0, 9, 3, -1)), "timestamp 9, but the log 0"),
        (snapshot((7, 0, 2, 3, 0, 0, 3, 3)), "first offset of its transaction 3, but the log -1"),
        (snapshot((9, 0, 2, 3, 0, 0, 3, -1)), "last offset 3, but the log has nothing of it"),
        (snapshot((7, 0, 2, 8, 0, 0, 3, -1)), "last offset 8, but the snapshot is of 5"),
        (snapshot()[:-1], "it has 9 bytes"),
        (b"\0\1" + bytes(8), "its CRC is 0"),
    ],
)
def test_a_snapshot_is_compared_with_the_log(kafkapy, transactions, content, words):
    path = transactions / "00000000000000000005.snapshot"
    path.write_bytes(content)
    for place in (transactions, path):
        found = problems(kafkapy, place)
        assert [one[0] for one in found] == ([] if words is None else [path.name])
        assert words is None or words in found[0][3]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("0\n1\n0 0\n", None),
        ("0\n2\n0 0\n1 3\n", "has epoch 1 for offset 4, its batch has epoch 0"),
        ("0\n1\n1 0\n", "has epoch 1 for offset 0, its batch has epoch 0"),
        ("0\n1\n0 3\n", None),  # the log start offset was moved
        ("0\n2\n0 0\n1 9\n", "has epoch 1 from offset 9, but the log ends at 5"),
        ("0\n2\n1 0\n0 3\n", "has epoch 0 from offset 3 after epoch 1 from 0"),
        ("0\n1\n0 -1\n", "neither can be negative"),
        ("0\n2\n0 0\n", "announces 2 entries and holds 1"),
        ("hello", "has 'hello' where a number belongs"),
        (None, "is missing, and batches from offset 0 on have epoch 0"),
    ],
)
def test_leader_epochs_are_compared_with_the_batches(kafkapy, transactions, content, words):
    path = transactions / "leader-epoch-checkpoint"
    path.unlink() if content is None else path.write_text(content)
    found = problems(kafkapy, transactions)
    assert [one[0] for one in found] == ([] if words is None else [path.name])
    assert words is None or words in found[0][3]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("recovery-point-offset-checkpoint", "0\n2\nt 0 5\ngone 1 99\n", None),
        ("recovery-point-offset-checkpoint", "0\n1\nt 0 6\n", "has 6 as the recovery point of t-0, but that log ends"),
        ("replication-offset-checkpoint", "0\n1\nt 0 -1\n", "has -1 as the high watermark of t-0"),
        ("log-start-offset-checkpoint", "0\n2\nt 0 1\nt 0 1\n", "has t 0 twice"),
        ("cleaner-offset-checkpoint", "0\n1\nt 0\n", "has a line that is not 2 numbers"),
        ("cleaner-offset-checkpoint", "7\n0\n", "has version 7, expected 0"),
        ("meta.properties", "hello", "has version=None"),
    ],
)
def test_files_of_the_log_directory_are_checked(kafkapy, transactions, name, content, words):
    (transactions.parent / name).write_text(content)
    found = problems(kafkapy, transactions.parent)
    assert [one[0] for one in found] == ([] if words is None else [name])
    assert words is None or words in found[0][3]


def test_a_log_that_ends_beyond_the_recovery_point_of_a_clean_stop_is_reported(kafkapy, transactions):
    (transactions.parent / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    assert problems(kafkapy, transactions.parent) == []  # as after a crash
    (transactions.parent / ".kafka_cleanshutdown").touch()
    ((name, _, offset, sentence),) = problems(kafkapy, transactions.parent)
    assert (name, offset) == ("recovery-point-offset-checkpoint", 4)
    assert sentence == "has 4 as the recovery point of t-0, written by a clean stop, but that log ends at 5"


def test_partitions_of_a_topic_with_different_ids_are_reported(kafkapy, transactions):
    for number, letter in enumerate("BBC"):
        directory = transactions.with_name(f"t-{number}")
        if number:
            shutil.copytree(transactions, directory)
        (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {letter}{'A' * 21}")
    assert [one[::3] for one in problems(kafkapy, transactions.parent)] == [
        ("partition.metadata", "has another topic id than t-0, which is of the same topic")
    ]


def test_every_flipped_bit_of_a_log_is_found(transactions):
    """Flip all bits of base offsets, lengths and leader epochs, which no checksum covers, and some other bits."""
    log_dir = transactions.parent
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    (log_dir / ".kafka_cleanshutdown").touch()
    assert found_in(log_dir) == 0
    path = transactions / f"{NAME}.log"
    begins = [batch.position for batch in LogReader(path).batches()]
    bits = {8 * (begin + byte) + bit for begin in begins for byte in range(16) for bit in range(8)}
    for bit in sorted(bits | set(range(0, 8 * path.stat().st_size, 33))):
        with flipped(path, bit):
            assert found_in(log_dir), f"bit {bit % 8} of byte {bit // 8}"


def test_flipped_bits_of_leader_epochs_are_found_unless_the_result_is_valid(transactions):
    path = transactions / "leader-epoch-checkpoint"
    missed = []
    for bit in range(8 * path.stat().st_size):
        with flipped(path, bit):
            if not found_in(transactions):
                missed.append(path.read_bytes())
    # The file does not keep epochs before the log start offset, so an epoch may begin later than in the log; and Kafka
    # ignores white space at the end of a line.
    assert missed == [b"0\n1\n0 1\n", b"0\n1\n0 2\n", b"0\n1\n0 4\n", b"0\n1\n0 0\v"]


@contextmanager
def flipped(path, bit):
    content = path.read_bytes()
    change(path, bit // 8, bytes([content[bit // 8] ^ 1 << bit % 8]))
    yield
    path.write_bytes(content)


def found_in(path):
    """Return the number of problems found."""
    found = report.Report()
    check_path(path, found)
    return found.problems


def test_an_invalid_topic_id_is_reported(kafkapy, transactions):
    (transactions / "partition.metadata").write_text("version: 0\ntopic_id: ?")
    assert [one[3] for one in problems(kafkapy, transactions)] == [
        "has the topic id '?', which is not 16 bytes in base64"
    ]


def test_a_damaged_segment_of_0_7_is_reported(kafkapy, tmp_path):
    path = tmp_path / "t-0" / f"{NAME}.kafka"
    path.parent.mkdir()
    good = build_message(b"good")
    path.write_bytes(good + build_message(b"wrong")[:-1] + b"!" + good + good[:-1])
    (path.parent / "00000000000000000099.kafka").write_bytes(good + bytes(9))
    found = problems(kafkapy, path.parent)
    assert [(one[0], one[1]) for one in found] == [
        (f"{NAME}.kafka", 14),
        (f"{NAME}.kafka", 43),
        ("00000000000000000099.kafka", 14),
        ("t-0", None),
    ]
    assert problems(kafkapy, path) == found[:2]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "does not exist."),
        (lambda path: path.write_text("hello"), "is neither a file of a log (names end in"),
        (lambda path: path.mkdir(), "is neither a partition's directory (it has no .log files) nor a log directory"),
    ],
)
def test_a_path_that_is_no_log_is_reported_in_a_sentence(kafkapy, tmp_path, make, words):
    make(tmp_path / "notes")
    code, out, err = kafkapy("log", "verify", tmp_path / "notes")
    assert (code, out, words in err, err.count("\n")) == (1, "", True, 1)


@pytest.mark.parametrize("command", [["verify"], ["tail"], ["stats"], ["find", "--offset", "1"], ["dump"]])
def test_a_file_named_by_an_impossible_offset_is_no_segment(kafkapy, transactions, command):
    path = transactions / f"{'9' * 20}.log"
    path.touch()
    assert kafkapy("log", *command, transactions)[::2] == (0, "")
    code, _, err = kafkapy("log", *command, path)
    assert (code, f"{path} is not a segment file" in err) == (1, True)


@pytest.mark.parametrize("suffix", ["index", "snapshot"])
def test_an_index_or_snapshot_needs_its_log_in_the_same_directory(kafkapy, tmp_path, suffix):
    path = tmp_path / f"{NAME}.{suffix}"
    path.write_bytes(bytes(24))
    code, _, err = kafkapy("log", "verify", path)
    assert (code, "cannot be checked: " in err) == (1, True)


def test_a_text_file_named_as_a_segment_is_reported_in_a_sentence(kafkapy, tmp_path):
    path = tmp_path / f"{NAME}.log"
    path.write_bytes(b"This is a letter to my aunt, and no segment of Kafka. " * 10)
    ((_, position, _, sentence),) = problems(kafkapy, path)
    assert (position, "cannot be read" in sentence) == (0, True)


def test_a_partition_that_cannot_be_read_does_not_end_the_check(kafkapy, transactions, monkeypatch):
    other = transactions.parent / "u-0"
    shutil.copytree(transactions, other)
    (transactions / f"{NAME}.index").unlink()
    (transactions / f"{NAME}.index").mkdir()  # reading it fails even for the superuser
    found = problems(kafkapy, transactions.parent)
    assert found == [(f"{NAME}.index", None, None, "could not be read: Is a directory")]


def test_a_file_with_very_many_problems_does_not_flood_the_screen(kafkapy, tmp_path):
    one = bytearray(build([(0, None, b"v", ())]))
    one[-2] ^= 0xFF
    path = tmp_path / f"{NAME}.log"
    path.write_bytes(bytes(one) * 3000)
    code, out, _ = kafkapy("log", "verify", path)
    assert (code, len(out.splitlines())) == (1, report.MOST_PER_FILE + 2)
    assert out.splitlines()[-2] == f"{path}: {3000 - report.MOST_PER_FILE} problems more."
    assert out.endswith(": 3000 problems.\n")


def test_a_length_of_gigabytes_takes_no_memory(kafkapy, tmp_path, monkeypatch):
    monkeypatch.setattr(segment, "LARGE", 1 << 16)
    path = tmp_path / f"{NAME}.log"
    sound = build([(0, None, bytes(3 << 20), ())])
    path.write_bytes(sound)
    assert problems(kafkapy, path) == []
    change(path, 1 << 20, b"x")
    assert (
        "a batch of 3145802 bytes is said to begin at position 0, and its CRC is wrong" in problems(kafkapy, path)[0][3]
    )


def test_a_tail_that_is_just_being_written_is_no_problem(kafkapy, partition, monkeypatch):
    path = partition / f"{NAME}.log"
    path.write_bytes(path.read_bytes()[:-5])
    assert len(problems(kafkapy, path)) == 1
    monkeypatch.setattr(segment.Windows, "has_grown", lambda self: True)
    assert problems(kafkapy, path) == []


def test_an_index_that_is_cut_while_it_is_read_is_read_again(kafkapy, partition, monkeypatch):
    real, seen = Path.read_bytes, set()

    def read_bytes(path):
        first = path.suffix == ".timeindex" and path not in seen
        seen.add(path)
        return real(path) + bytes(5) if first else real(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert problems(kafkapy, partition) == []
