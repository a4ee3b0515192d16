"""`log tail`: the last records, and a log that meanwhile grows, rolls, is truncated, loses its start or is deleted."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.places import places_in
from kafkapy.record.batch import build
from kafkapy.record.control import encode_key
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.log.tail.follow import Follower
from tests.harness.markers import encode_marker

V2 = Path(__file__).parents[2] / "data" / "golden" / "kafka-3.9.1-v2" / "data"


def batch(offset, *values, **more):
    return build([(0, b"k", value.encode(), ()) for value in values], base_offset=offset, **more)


class Log:
    """A partition directory that a broker writes to, and the output of a Follower of it."""

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir()
        self.messages = []
        self.values = []
        self.follower = None

    def path(self, base):
        return self.directory / f"{base:020d}.log"

    def append(self, base, data):
        with self.path(base).open("ab") as file:
            file.write(data)

    def follow(self):
        (place,) = places_in([self.directory])
        self.follower = Follower(place, self.messages.append)
        return self

    def show(self, one):
        self.values.append(one.record.value.decode())

    def poll(self):
        """Poll until there is nothing more; return the values of the new records."""
        self.values = []
        while self.follower.poll(self.show):
            pass
        return self.values


@pytest.fixture
def log(tmp_path):
    new_log = Log(tmp_path / "t-0")
    new_log.append(0, batch(0, "a", "b"))
    yield new_log
    if new_log.follower:
        new_log.follower.close()


def test_appended_records_are_returned_once(log):
    log.follow()
    assert log.poll() == []
    log.append(0, batch(2, "c") + batch(3, "d", "e"))
    assert log.poll() == ["c", "d", "e"]
    assert log.poll() == []
    log.append(0, batch(5, "f", codec=1))
    assert (log.poll(), log.messages) == (["f"], [])


def test_a_batch_that_is_being_written_is_waited_for(log):
    log.follow()
    data = batch(2, "c")
    log.append(0, data[:30])
    assert log.poll() == []
    log.append(0, data[30:])
    assert (log.poll(), log.messages) == (["c"], [])


def test_the_follower_continues_in_the_next_segment(log):
    log.follow()
    log.append(0, batch(2, "c"))
    log.append(3, batch(3, "d"))
    log.append(4, b"")
    assert log.poll() == ["c", "d"]
    log.append(4, batch(4, "e"))
    assert (log.poll(), log.messages) == (["e"], [])


def test_a_truncation_is_reported_and_later_records_are_returned(log):
    log.append(0, batch(2, "c", "d"))
    log.follow()
    log.poll()
    os.truncate(log.path(0), len(batch(0, "a", "b")))
    assert log.poll() == []
    log.append(0, batch(2, "x"))
    assert log.poll() == ["x"]
    assert log.messages == ["t-0: the log was truncated to offset 2."]


def test_a_truncation_that_was_written_over_is_noticed(log):
    """At the next poll the file is longer than before, with other batches in it."""
    log.follow()
    log.append(0, batch(2, "c", "d"))
    assert log.poll() == ["c", "d"]
    os.truncate(log.path(0), len(batch(0, "a", "b")))
    log.append(0, batch(2, "x", "y") + batch(4, "z"))
    assert log.poll() == ["z"]


def test_a_deleted_start_is_reported(log):
    log.follow()
    log.poll()
    log.path(0).rename(log.path(0).with_suffix(".log.deleted"))
    log.append(9, batch(9, "j"))
    assert log.poll() == ["j"]
    assert log.messages == ["t-0: records before offset 9 have been deleted."]


def test_the_follower_ends_when_the_partition_is_removed(log):
    log.follow()
    log.poll()
    shutil.rmtree(log.directory)
    with pytest.raises(ToolError, match="t-0 is gone"):
        log.poll()


def test_damage_ends_the_follower_without_an_endless_loop(log):
    log.follow()
    log.poll()
    log.append(0, bytes(100))
    with pytest.raises(OfflineError, match="no batch at position"):
        log.poll()


def test_gaps_of_compaction_are_no_truncation(log):
    log.append(0, batch(9, "j"))
    log.follow()
    assert log.poll() == []
    log.append(0, batch(20, "k"))
    assert (log.poll(), log.messages) == (["k"], [])


def test_markers_are_shown_only_if_requested(kafkapy):
    _, out, _ = kafkapy("log", "tail", "-n", 3, V2 / "v2-txn-0")
    assert [line.split("\t")[0] for line in out.splitlines()] == ["0:46", "0:48", "0:50"]
    _, out, _ = kafkapy("log", "tail", "-n", 3, "--control", V2 / "v2-txn-0")
    assert [line.split("\t")[-1] for line in out.splitlines()] == [
        "(control record: ABORT)",
        "committed by the successor",
        "(control record: COMMIT)",
    ]


def test_an_appended_marker_is_skipped(log):
    log.follow()
    marker = [(0, encode_key(1), encode_marker(0), ())]
    log.append(0, build(marker, base_offset=2, producer_id=1, producer_epoch=0, transactional=True, control=True))
    log.append(0, batch(3, "d"))
    assert log.poll() == ["d"]


@pytest.mark.parametrize("count", [0, 1, 5, 60, 1000])
@pytest.mark.parametrize("partition", ["v2-none-0", "v2-compacted-none-0", "v2-deleted-records-0", "v2-txn-0"])
def test_the_last_records_equal_the_end_of_a_dump(kafkapy, partition, count):
    """The records span several segments, with gaps of compaction, after deleted records."""
    _, dumped, _ = kafkapy("log", "dump", "--deep-iteration", *sorted((V2 / partition).glob("*.log")))
    records = [line for line in dumped.splitlines() if line.startswith("| ") and "endTxnMarker" not in line]
    wanted = [line.split()[2] for line in records][-count or len(records) :]
    code, out, err = kafkapy("log", "tail", "-n", count, "--json", V2 / partition)
    found = [line.split('"offset":')[1].split(",")[0] for line in out.splitlines()]
    assert (code, err, found) == (0, "", wanted)


def test_internal_topics_are_decoded(kafkapy):
    _, out, _ = kafkapy("log", "tail", "-n", 1, "--transaction-log-decoder", V2 / "__transaction_state-1")
    assert "transactionalId=tx-open\tproducerId:1005," in out


def test_the_command_follows_until_it_is_interrupted(log):
    command = [sys.executable, "-m", "kafkapy", "log", "tail", "-f", "-n", "1", "--format", "value", log.directory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
        assert tail.stdout.readline() == b"b\n"
        log.append(0, batch(2, "c"))
        assert tail.stdout.readline() == b"c\n"
        tail.send_signal(signal.SIGINT)
        _, err = tail.communicate(timeout=30)
    assert (tail.returncode, err) == (130, b"")


def test_more_partitions_than_the_soft_limit_on_open_files_are_followed(tmp_path):
    logs = [Log(tmp_path / f"t-{number}") for number in range(80)]
    for one in logs:
        one.append(0, batch(0, "a"))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with subprocess.Popen(
        [sys.executable, "-m", "kafkapy", "log", "tail", "-f", "-n", "1", "--format", "value", tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard)),
    ) as tail:
        assert [tail.stdout.readline() for _ in logs] == [b"a\n"] * len(logs)
        logs[-1].append(0, batch(1, "b"))
        assert tail.stdout.readline() == b"b\n"
        tail.send_signal(signal.SIGINT)
        _, err = tail.communicate(timeout=30)
    assert (tail.returncode, err) == (130, b"")
