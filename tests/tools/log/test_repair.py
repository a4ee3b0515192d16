"""`log verify --repair`: the broker's recovery, after a confirmation, never while a broker runs."""

import io
import os
import shutil
import sys
from pathlib import Path

import pytest

from kafkapy.log.directories.dir_lock import DirLock
from kafkapy.record.batch import build
from kafkapy.tools.log.verify import repair

BEFORE = Path(__file__).parents[2] / "data" / "golden" / "kafka-3.9.1-recovery" / "before"
AFTER = BEFORE.parent / "after"
LAST = "00000000000000000042.log"


@pytest.fixture
def log_dir(tmp_path):
    """Return a writable copy of the damaged log directory."""
    copy = tmp_path / "data"
    shutil.copytree(BEFORE, copy)
    for one in (copy, *copy.rglob("*")):
        one.chmod(0o755 if one.is_dir() else 0o644)
    return copy


def logs_of(directory):
    return {path.name: path.read_bytes() for path in directory.glob("*.log")}


def test_every_damaged_log_is_recovered_as_by_kafka(kafkapy, log_dir):
    code, out, err = kafkapy("log", "verify", "--repair", "--yes", log_dir)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].endswith(": no problem found.")
    for partition in sorted(path.name for path in AFTER.iterdir() if path.is_dir()):
        assert logs_of(log_dir / partition) == logs_of(AFTER / partition), partition
    assert not list(log_dir.rglob("*.deleted"))
    lines = [line for line in out.splitlines() if line.startswith(f"{log_dir}/torn-tail-0: ")]
    assert lines == [
        f"{log_dir}/torn-tail-0: {LAST} was cut from 915 to 0 bytes, its indexes and snapshots were rebuilt from the "
        "first damage on; the log ends at offset 42."
    ]


def test_undamaged_files_are_left_alone(kafkapy, log_dir):
    kafkapy("log", "verify", "--repair", "--yes", log_dir)
    for partition in ("untouched-0", "txn-0", "no-snapshot-0"):
        found = {path.name: path.read_bytes() for path in (log_dir / partition).iterdir()}
        assert found == {path.name: path.read_bytes() for path in (BEFORE / partition).iterdir()}
    kept = "bad-crc-last-0/00000000000000000016.index"  # the index before the damage
    assert (log_dir / kept).read_bytes() == (BEFORE / kept).read_bytes()


def test_one_partition_can_be_repaired_by_itself(kafkapy, log_dir):
    code, _, _ = kafkapy("log", "verify", "--repair", "--yes", log_dir / "torn-tail-0")
    assert code == 0
    assert logs_of(log_dir / "torn-tail-0") == logs_of(AFTER / "torn-tail-0")
    assert logs_of(log_dir / "zero-tail-0") == logs_of(BEFORE / "zero-tail-0")
    assert not (log_dir / ".lock").exists()


def test_nothing_is_changed_while_a_broker_has_the_directory(kafkapy, log_dir):
    lock = DirLock(str(log_dir))
    try:
        code, _, err = kafkapy("log", "verify", "--repair", "--yes", log_dir / "torn-tail-0")
    finally:
        lock.release()
    assert (code, err) == (1, f"kafkapy: {log_dir} is in use by a broker: stop it before a repair.\n")
    assert logs_of(log_dir / "torn-tail-0") == logs_of(BEFORE / "torn-tail-0")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_repair_asks_for_confirmation(kafkapy, log_dir, monkeypatch, answer, code):
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    ended, _, err = kafkapy("log", "verify", "--repair", log_dir / "torn-tail-0")
    assert ended == code
    assert f"  {log_dir}/torn-tail-0\n" in err
    wanted = AFTER if code == 0 else BEFORE
    assert logs_of(log_dir / "torn-tail-0") == logs_of(wanted / "torn-tail-0")
    assert ("Nothing was changed." in err) == (code == 1)


def test_without_a_terminal_repair_needs_the_option_yes(kafkapy, log_dir):
    code, out, err = kafkapy("log", "verify", "--repair", log_dir / "torn-tail-0")
    assert (code, out, "say --yes" in err) == (2, "", True)


def test_wrong_snapshots_and_leader_epochs_are_rebuilt(kafkapy, log_dir):
    directory = log_dir / "untouched-0"
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 20\n")
    snapshot = directory / "00000000000000000033.snapshot"
    shutil.copy(log_dir / "untouched-0" / "00000000000000000016.snapshot", snapshot)
    code, out, _ = kafkapy("log", "verify", "--repair", "--yes", directory)
    assert (code, out.splitlines()[-1].endswith(": no problem found.")) == (0, True)
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    assert snapshot.read_bytes() == (AFTER / "untouched-0" / snapshot.name).read_bytes()


def test_checkpoints_are_not_beyond_the_end_of_a_truncated_log(kafkapy, log_dir):
    checkpoint = log_dir / "replication-offset-checkpoint"
    checkpoint.write_text("0\n2\ntorn-tail 0 50\nuntouched 0 50\n")
    code, _, _ = kafkapy("log", "verify", "--repair", "--yes", log_dir)
    assert code == 0
    assert checkpoint.read_text() == "0\n2\ntorn-tail 0 42\nuntouched 0 50\n"


def test_what_is_written_anew_is_given_to_the_owner_of_the_directory(kafkapy, log_dir, monkeypatch):
    given = set()
    monkeypatch.setattr(repair, "give_to_owner", lambda path, directory: given.add((path, directory)))
    checkpoint = log_dir / "replication-offset-checkpoint"
    checkpoint.write_text("0\n1\ntorn-tail 0 50\n")
    for name in ("no-index-0", "torn-tail-0"):
        assert kafkapy("log", "verify", "--repair", "--yes", log_dir / name).code == 0
    directory = log_dir / "no-index-0"
    assert {(path, directory) for path in directory.glob("*.index")} <= given
    assert (checkpoint, log_dir) in given


def test_a_partition_that_cannot_be_repaired_does_not_keep_others_from_it(kafkapy, log_dir):
    stray = (log_dir / "bad-crc-last-0").rename(log_dir / "bad-crc-last-0.1-stray")
    code, _, err = kafkapy("log", "verify", "--repair", "--yes", log_dir)
    assert (code, err) == (1, f"kafkapy: {stray} cannot be repaired: it is not named TOPIC-PARTITION.\n")
    assert logs_of(log_dir / "torn-tail-0") == logs_of(AFTER / "torn-tail-0")


def test_problems_that_recovery_cannot_repair_are_still_reported(kafkapy, tmp_path):
    directory = tmp_path / "t-0"
    directory.mkdir()
    own = {"producer_id": 7, "producer_epoch": 0, "leader_epoch": 0}
    values = [(0, None, b"v", ())]
    data = build(values, base_sequence=0, **own) + build(values, base_offset=1, base_sequence=9, **own)
    (directory / "00000000000000000000.log").write_bytes(data)
    code, out, _ = kafkapy("log", "verify", "--repair", "--yes", directory)
    assert code == 1
    assert out.splitlines()[-1].endswith(": 1 problem.")
    assert (directory / "00000000000000000000.log").read_bytes() == data


@pytest.mark.parametrize("name", ["copy-of-a-partition", "t-0.abc-delete"])
def test_a_directory_that_is_not_named_as_a_partition_is_refused(kafkapy, tmp_path, name):
    directory = tmp_path / name
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(bytes(50))
    code, _, err = kafkapy("log", "verify", "--repair", "--yes", directory)
    assert (code, err) == (1, f"kafkapy: {directory} cannot be repaired: it is not named TOPIC-PARTITION.\n")


def test_a_path_without_a_directory_before_it(kafkapy, log_dir, monkeypatch):
    monkeypatch.chdir(log_dir)
    code, _, _ = kafkapy("log", "verify", "--repair", "--yes", "torn-tail-0")
    assert code == 0
    assert os.listdir(".").count(".lock") == 0


def test_leader_epochs_beyond_the_truncation_are_removed(kafkapy, tmp_path):
    directory = tmp_path / "v2-none-0"
    shutil.copytree(BEFORE.parents[1] / "kafka-3.9.1-v2" / "data" / "v2-none-0", directory)
    for one in (directory, *directory.iterdir()):
        one.chmod(0o755)
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n2 178\n4 184\n"
    path = directory / "00000000000000000182.log"
    os.truncate(path, path.stat().st_size - 1 - 119 * 3)  # the end is now in the segment's first batch
    code, out, err = kafkapy("log", "verify", "--repair", "--yes", directory)
    assert (code, err) == (0, "")
    assert "the log ends at offset 182." in out
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n2 178\n"
