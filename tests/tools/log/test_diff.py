"""`log diff`: equal replicas whose segments begin at different offsets, and each kind of difference."""

import json
import shutil
from pathlib import Path

import pytest

from kafkapy.record.batch import build
from kafkapy.record.legacy import build_set

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
V2 = GOLDEN / "kafka-3.9.1-v2" / "data"


def batch(offset, *values, **more):
    more = {"leader_epoch": 0, **more}
    return build(
        [(number, b"k", value.encode(), ()) for number, value in enumerate(values)], base_offset=offset, **more
    )


@pytest.fixture
def replicas(tmp_path):
    """Return a function that creates two partition directories from {segment base: batches} and compares them."""

    def make(name, segments, files):
        directory = tmp_path / name / "t-0"
        directory.mkdir(parents=True)
        for base, parts in segments.items():
            (directory / f"{base:020d}.log").write_bytes(b"".join(parts))
        for file, content in files.items():
            (directory / file).write_text(content)
        return directory

    def both(one, other, files=(), other_files=()):
        return make("one", one, dict(files)), make("other", other, dict(other_files))

    return both


def compared(kafkapy, one, other):
    code, out, err = kafkapy("log", "diff", "--json", one, other)
    assert err == ""
    found = json.loads(out)
    assert code == found["differ"]
    return found


BATCHES = [batch(0, "a", "b"), batch(2, "c"), batch(3, "d", "e")]


def test_segments_may_begin_anywhere(kafkapy, replicas):
    one, other = replicas({0: BATCHES}, {0: BATCHES[:1], 2: BATCHES[1:2], 3: BATCHES[2:]})
    found = compared(kafkapy, one, other)
    assert (found["differ"], found["same"], found["from"], found["to"]) == (False, 3, 0, 5)
    assert [replica["segments"] for replica in found["replicas"]] == [1, 3]


def test_different_starts_and_ends_are_no_difference(kafkapy, replicas):
    one, other = replicas({0: BATCHES[:2]}, {2: BATCHES[1:]})
    found = compared(kafkapy, one, other)
    assert (found["differ"], found["same"], found["from"], found["to"]) == (False, 1, 2, 3)
    _, out, _ = kafkapy("log", "diff", one, other)
    assert out.splitlines()[-3:] == [
        f"Compared offsets 2 to 2: 1 batch is the same ({len(BATCHES[1])} bytes).",
        "Only A has the offsets before 2: retention.",
        "Only B has the offsets from 3 on: the other lags behind.",
    ]


def test_the_log_start_offset_in_the_checkpoint_is_used(kafkapy, replicas):
    changed = batch(0, "a", "x")
    one, other = replicas({0: [changed, *BATCHES[1:]]}, {0: BATCHES})
    assert compared(kafkapy, one, other)["differ"]
    (other.parent / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    found = compared(kafkapy, one, other)
    assert (found["differ"], found["from"], found["same"]) == (False, 2, 2)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (batch(2, "x"), "differ in the value of the record at offset 2"),
        (batch(2, "c", leader_epoch=3), "hold the same records, and differ in leader epoch 0 and 3"),
        (batch(2, "c", producer_id=7), "differ in producer id -1 and 7, CRC"),
        (batch(2, "c", codec=1), "differ in size"),
        (build_set([(0, b"k", b"c")], 1, base_offset=2), "differ in message format 2 and 1"),
    ],
)
def test_the_first_difference_is_shown_with_its_batch(kafkapy, replicas, changed, words):
    one, other = replicas({0: BATCHES}, {0: [BATCHES[0], changed, BATCHES[2]]})
    found = compared(kafkapy, one, other)
    counts = [found[name] for name in ("same", "different", "onlyInFirst", "onlyInSecond")]
    assert (counts, found["firstDifferenceOffset"]) == ([2, 1, 0, 0], 2)
    assert words in found["firstDifference"]
    at = len(BATCHES[0])
    assert (
        f"(00000000000000000000.log position {at}, 00000000000000000000.log position {at})" in found["firstDifference"]
    )


def test_batches_that_only_one_replica_has_are_counted(kafkapy, replicas):
    """Compaction may have progressed differently on the replicas."""
    one, other = replicas({0: BATCHES}, {0: [BATCHES[0], BATCHES[2]]})
    found = compared(kafkapy, one, other)
    assert (found["same"], found["different"], found["onlyInFirst"], found["onlyInSecond"]) == (2, 0, 1, 0)
    assert found["firstDifference"].startswith(f"only {one} has the batch with offset 2 (")
    found = compared(kafkapy, other, one)
    assert (found["onlyInFirst"], found["onlyInSecond"]) == (0, 1)


def test_different_bounds_of_batches_are_reported(kafkapy, replicas):
    one, other = replicas({0: BATCHES}, {0: [batch(0, "a"), batch(1, "b", "c"), BATCHES[2]]})
    found = compared(kafkapy, one, other)
    assert (found["firstDifferenceOffset"], found["same"]) == (0, 1)


def test_records_that_compaction_has_removed_from_a_batch_are_reported(kafkapy, replicas):
    fewer = build([(0, b"k", b"d", ())], base_offset=3, leader_epoch=0)
    fewer = bytearray(fewer)
    fewer[23:27] = (1).to_bytes(4, "big")
    one, other = replicas({0: BATCHES}, {0: [*BATCHES[:2], bytes(fewer)]})
    assert "hold 2 and 1 records" in compared(kafkapy, one, other)["firstDifference"]


@pytest.mark.parametrize(
    ("epochs", "other_epochs", "words"),
    [
        ("0\n1\n0 0\n", "0\n1\n0 0\n", None),
        ("0\n2\n0 0\n1 9\n", "0\n1\n0 0\n", None),  # after the offsets that both have
        ("0\n2\n0 0\n1 3\n", "0\n1\n0 0\n", "the leader epochs differ: 0 from 0, 1 from 3 in"),
        ("0\n1\n0 0\n", None, None),
    ],
)
def test_leader_epochs_are_compared_for_offsets_that_both_have(kafkapy, replicas, epochs, other_epochs, words):
    name = "leader-epoch-checkpoint"
    files = ([(name, epochs)], [(name, other_epochs)] if other_epochs else [])
    one, other = replicas({0: BATCHES}, {0: BATCHES}, *files)
    besides = compared(kafkapy, one, other)["besides"]
    assert besides == [] if words is None else words in besides[0]


def test_topic_ids_are_compared(kafkapy, replicas):
    ids = ["Gb8uT694Qa6MioTHRpjuZw", "AAAAAAAAQa6MioTHRpjuZw"]
    files = ([("partition.metadata", f"version: 0\ntopic_id: {one}")] for one in ids)
    one, other = replicas({0: BATCHES}, {0: BATCHES}, *files)
    assert compared(kafkapy, one, other)["besides"] == [f"the topic ids differ: {ids[0]} and {ids[1]}"]


def test_replicas_without_common_offsets_do_not_differ(kafkapy, replicas):
    one, other = replicas({0: BATCHES[:1]}, {9: [batch(9, "z")]})
    code, out, _ = kafkapy("log", "diff", one, other)
    assert (code, "They have no offsets in common." in out) == (0, True)


def test_whole_log_directories_are_compared_partition_by_partition(kafkapy, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(V2, copy)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    shutil.rmtree(copy / "v2-txn-0")
    code, out, _ = kafkapy("log", "diff", "--json", V2, copy)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert lines[-1] == {"type": "alone", "message": f"only {V2} has v2-txn-0"}
    assert len(lines) - 1 == len([path for path in copy.iterdir() if path.is_dir()])
    assert sum(line.get("same", 0) for line in lines) > 300


def test_pairs_of_empty_replicas_get_no_line(kafkapy, tmp_path):
    """The offset at which empty replicas begin does not matter. If only one is empty, the other's records are shown."""
    for side, base, extra in (("one", 0, BATCHES), ("other", 7, [])):
        for name, begin, data in (("e-0", 0, []), ("e-1", base, []), ("h-0", base, extra), ("t-0", 0, BATCHES)):
            (tmp_path / side / name).mkdir(parents=True)
            (tmp_path / side / name / f"{begin:020d}.log").write_bytes(b"".join(data))
    sides = tmp_path / "one", tmp_path / "other"
    code, out, _ = kafkapy("log", "diff", *sides)
    assert code == 0
    assert out.splitlines() == [
        "h-0: They have no offsets in common. Only A has the offsets before 7: retention.",
        f"t-0: Compared offsets 0 to 4: 3 batches are the same ({len(b''.join(BATCHES))} bytes).",
        "Compared 4 partitions, 2 of them empty: none differs.",
    ]
    assert len(kafkapy("log", "diff", "--json", *sides).out.splitlines()) == 4
    alone = kafkapy("log", "diff", *(side / "e-1" for side in sides)).out
    assert alone.splitlines()[-1] == "They have no offsets in common."


def test_of_many_partitions_only_different_ones_are_shown_in_detail(kafkapy, tmp_path):
    for number in range(3):
        for name, value in (("one", "a"), ("other", "b" if number == 1 else "a")):
            directory = tmp_path / name / f"t-{number}"
            directory.mkdir(parents=True)
            (directory / f"{0:020d}.log").write_bytes(batch(0, value))
    code, out, _ = kafkapy("log", "diff", tmp_path / "one", tmp_path / "other")
    lines = out.splitlines()
    assert (code, lines[-1]) == (1, "Compared 3 partitions: 1 differs.")
    assert [line for line in lines if line.startswith("t-")] == [
        "t-0: Compared offsets 0 to 0: 1 batch is the same (70 bytes).",
        "t-1",
        "t-2: Compared offsets 0 to 0: 1 batch is the same (70 bytes).",
    ]
    assert "The first difference: the batches at offset 0 " in out


@pytest.mark.parametrize("folder", ["kafka-0.8.2.2/data/v0-gzip-0", "kafka-0.10.2.2/data/v1-gzip-0"])
def test_older_formats_are_compared(kafkapy, tmp_path, folder):
    copy = tmp_path / Path(folder).name
    shutil.copytree(GOLDEN / folder, copy)
    for path in (copy, *copy.iterdir()):
        path.chmod(0o755)
    assert not compared(kafkapy, GOLDEN / folder, copy)["differ"]
    log = sorted(copy.glob("*.log"))[-1]
    log.write_bytes(log.read_bytes()[:-1] + b"!")
    code, _, err = kafkapy("log", "diff", GOLDEN / folder, copy)
    assert (code, "is damaged: the records of the message at position" in err) == (1, True)


@pytest.mark.parametrize(
    ("one", "other", "code", "words"),
    [
        (V2 / "v2-none-0", "/nowhere/t-0", 1, "/nowhere/t-0 does not exist"),
        (V2, V2.parents[1] / "kafka-3.9.1-recovery" / "after" / "txn-0", 1, "have no partition in common"),
        (V2 / "v2-none-0" / "00000000000000000000.log", V2 / "v2-none-0", 2, "compares directories"),
        (GOLDEN / "kafka-0.7.2" / "data" / "none-0", V2 / "v2-none-0", 1, "is of Kafka 0.7"),
    ],
)
def test_paths_that_cannot_be_compared_are_reported_in_a_sentence(kafkapy, one, other, code, words):
    ended, _, err = kafkapy("log", "diff", one, other)
    assert (ended, words in err) == (code, True)


def test_the_error_names_a_segment_that_cannot_be_read(kafkapy, replicas):
    one, other = replicas({0: BATCHES}, {0: BATCHES, 5: [b""]})
    (other / f"{0:020d}.log").unlink()
    (other / f"{0:020d}.log").mkdir()
    code, _, err = kafkapy("log", "diff", one, other)
    assert (code, err.startswith(f"kafkapy: {other}/{0:020d}.log: Is a directory")) == (1, True)


def test_checkpoints_with_garbage_are_reported_in_a_sentence(kafkapy, replicas):
    one, other = replicas({0: BATCHES}, {0: BATCHES}, [("leader-epoch-checkpoint", "x")])
    code, _, err = kafkapy("log", "diff", one, other)
    assert (code, err.count("\n"), "where a number belongs" in err) == (1, 1, True)
