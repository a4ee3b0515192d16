"""With a full or broken disk at any operation, acknowledged records stay and the other directory is not affected."""

from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kafkapy.log.environment import Environment
from kafkapy.log.failures import Shortage
from kafkapy.log.flushing.flushing import Flusher
from kafkapy.log.storage.files import Buffer, Files
from kafkapy.record.file_region import FileHandle
from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.broker_config import BrokerConfig
from tests.faults.failing_disk import FailingDisk, Pair, faults
from tests.harness.power_cut import UnsyncedFiles
from tests.harness.raw import Connection, values

pytestmark = pytest.mark.not_quick

SHORTAGES = (errno.ENOSPC, errno.EMFILE)
NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR = 6, 56


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("fault", faults())
def test_acknowledged_records_stay_whichever_operation_fails(scratch: Path, fault: str) -> None:
    error, kinds, how = faults()[fault]
    step = 0
    while True:
        step += 1
        directory = scratch / str(step)
        disk = FailingDisk(directory / "bad", error, kinds, **how)
        pair = Pair(directory, disk)
        disk.count, disk.fail_at = 0, step
        pair.live()
        if disk.failed is None and disk.count < step:
            break
        where = f"{fault}: {disk.failed}"
        assert pair.is_online("good"), where
        assert pair.found("good") == pair.expected("good"), where
        if pair.is_online("bad"):
            _went_on(pair, disk, where)
        else:
            _went_offline(pair, disk, where)
        pair.restart_on_good_disks()
        for topic in ("bad", "good"):
            found = dict(pair.found(topic))
            lost = [offset for offset, value in pair.expected(topic) if found.get(offset) != value]
            assert not lost, f"{where}: {topic} has lost {lost}"
        pair.manager.close()
        shutil.rmtree(directory)
    assert step > 10


def _went_on(pair: Pair, disk: FailingDisk, where: str) -> None:
    """Check that a log that stayed online after a shortage has no refused record."""
    assert disk.error is None or disk.error in SHORTAGES, where
    found = pair.found("bad")
    if disk.failed is not None and disk.failed.startswith("open"):
        # If a flush could not open the file, the records are there once, although they were not acknowledged.
        assert set(found) >= set(pair.expected("bad")), where
        assert len({value for _, value in found}) == len(found), where
    else:
        assert found == pair.expected("bad"), where


def _went_offline(pair: Pair, disk: FailingDisk, where: str) -> None:
    assert disk.failed is not None
    broken = disk.error not in SHORTAGES
    cannot_be_undone = disk.failed.startswith(("sync", "truncate", "rename"))
    assert broken or cannot_be_undone, where
    undoing = {"truncate"} if disk.failed.startswith("write") else set()
    assert not ({"write", "sync", "truncate"} - undoing) & set(disk.after), f"{where}: then {disk.after}"
    assert not (pair.directory / "bad" / ".kafka_cleanshutdown").exists(), where


# --- the checks find broken code


def failed_syncs_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Flusher, "_failed", lambda self, doing, error, taken: None)


def every_failure_a_shortage(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Environment, "disk_error", lambda self, doing, error: Shortage(doing, error))


def short_writes_taken_for_whole(patch: pytest.MonkeyPatch) -> None:
    def write_all(self: Files, file: FileHandle, buffers: Sequence[Buffer], position: int) -> int:
        self.pwritev(file, buffers, position)
        return sum(map(len, buffers))

    patch.setattr(Files, "write_all", write_all)


@pytest.mark.parametrize(
    ("break_it", "fault"),
    [
        (failed_syncs_forgotten, "failed syncs for want of room"),
        (every_failure_a_shortage, "failed writes"),
        (every_failure_a_shortage, "failed reads"),
        (short_writes_taken_for_whole, "short writes"),
    ],
)
def test_the_checks_fail_for_a_broken_log(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, break_it: Callable[[pytest.MonkeyPatch], None], fault: str
) -> None:
    break_it(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        test_acknowledged_records_stay_whichever_operation_fails(scratch, fault)


# --- a whole broker


def start(directory: Path, files: Files) -> BrokerServer:
    """Start a broker with two log directories that acknowledges only synced records. The first has the metadata."""
    settings = {
        "log.dirs": f"{directory / 'good'},{directory / 'bad'}",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.flush.interval.messages": "1",
    }
    server = BrokerServer(BrokerConfig(settings), files=files)
    server.start()
    server.wait_until_loaded()
    return server


@pytest.mark.parametrize("kind", ["sync", "write"])
def test_a_broker_takes_a_broken_directory_offline_and_continues_with_the_others(scratch: Path, kind: str) -> None:
    disk = FailingDisk(scratch / "bad", errno.EIO, {kind})
    server = start(scratch, disk)
    topics = [f"t{number}" for number in range(4)]
    acknowledged: dict[str, int] = {}
    with Connection(server.bootstrap_servers) as connection:
        for topic in topics:
            assert connection.create_topic(topic) == 0
            assert connection.produce(topic, 0, values(b"0"), version=7) == (0, 0)
            acknowledged[topic] = 1
        lost = [topic for topic in topics if (scratch / "bad" / f"{topic}-0").is_dir()]
        assert 0 < len(lost) < len(topics)
        disk.count, disk.fail_at = 0, 5
        for number in range(1, 8):
            for topic in topics:
                code, base = connection.produce(topic, 0, values(b"%d" % number), version=7)
                if code:
                    assert (topic in lost, code, base) == (True, KAFKA_STORAGE_ERROR, -1)
                else:
                    assert base == acknowledged[topic]
                    acknowledged[topic] += 1
        assert disk.failed is not None
        assert disk.failed.startswith(kind)
        for topic in topics:
            code, high, _ = connection.fetch(topic, 0, 0)
            assert (code, high) == ((NOT_LEADER_OR_FOLLOWER, -1) if topic in lost else (0, 8))  # as in Fetch before v6
        assert connection.create_topic("new") == 0
        assert connection.produce("new", 0, values(b"x"), version=7) == (0, 0)
    server.stop()
    assert "sync" not in disk.after

    again = start(scratch, UnsyncedFiles())
    try:
        with Connection(again.bootstrap_servers) as connection:
            for topic in topics:
                code, end = connection.end_offset(topic, 0)
                assert code == 0
                # The record whose sync failed was not acknowledged, but is in the file.
                more = 1 if topic in lost and kind == "sync" else 0
                assert acknowledged[topic] <= end <= acknowledged[topic] + more
                code, _, records = connection.fetch(topic, 0, 0)
                assert code == 0
                assert all(b"\x02%d\x00" % number in records for number in range(acknowledged[topic]))
    finally:
        again.stop()
