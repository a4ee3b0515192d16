"""The comparison of replicas finds each difference in logs made by hand, and none in equal logs."""

import struct
from pathlib import Path

import pytest

from tests.cluster.logs_by_hand import batch, write_log
from tests.cluster.replicas import differences
from tests.cluster.segments import (
    CONTROL,
    TRANSACTIONAL,
    BadLog,
    committed_only,
    read_batches,
    read_epochs,
    records_of,
)

LOG = [batch(0, b"a", b"b"), batch(2, b"c", epoch=1), batch(5, b"d", b"e", epoch=3)]
EPOCHS = [(0, 0), (1, 2), (3, 5)]


class Replicas:
    """Three replicas of a partition, each in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directories = {broker: directory / str(broker) / "t-0" for broker in (1, 2, 3)}
        for broker in self.directories:
            self.write(broker, LOG, EPOCHS)

    def write(self, broker: int, log: list[bytes], epochs: list[tuple[int, int]], segment: int = 1) -> None:
        """Write a log in two segments, the first with `segment` batches."""
        write_log(self.directories[broker], log, epochs, first_segment=segment if len(log) > segment else None)

    def differences(self) -> list[str]:
        return differences(self.directories)


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    return Replicas(tmp_path)


def test_equal_replicas_may_differ_in_their_segments(replicas: Replicas) -> None:
    replicas.write(2, LOG, EPOCHS, segment=2)
    assert replicas.differences() == []


def test_replicas_may_begin_at_different_offsets(replicas: Replicas) -> None:
    replicas.write(3, LOG[1:], [(1, 2), (3, 5)])
    assert replicas.differences() == []


def test_an_epoch_without_records_may_be_known_to_its_leader_only(replicas: Replicas) -> None:
    replicas.write(1, LOG, [*EPOCHS, (4, 7)])
    assert replicas.differences() == []


def test_a_log_that_ends_earlier(replicas: Replicas) -> None:
    replicas.write(2, LOG[:2], EPOCHS[:2])
    assert replicas.differences() == ["t-0: the logs end at {1: 7, 2: 3, 3: 7}"]


def test_a_record_that_differs(replicas: Replicas) -> None:
    replicas.write(3, [LOG[0], batch(2, b"x", epoch=1), LOG[2]], EPOCHS)
    assert replicas.differences() == ["t-0 differs on brokers 1 and 3 at 2"]


def test_a_record_that_is_missing_in_the_middle(replicas: Replicas) -> None:
    replicas.write(3, [LOG[0], LOG[2]], EPOCHS)
    assert replicas.differences() == ["t-0 differs on brokers 1 and 3 at 2"]


def test_leader_epochs_that_differ(replicas: Replicas) -> None:
    replicas.write(2, LOG, [(0, 0), (3, 5)])
    (problem,) = replicas.differences()
    assert problem.startswith("t-0: the leader epochs differ")


def test_a_wrong_crc(replicas: Replicas) -> None:
    bad = bytearray(LOG[1])
    bad[-2] ^= 1
    replicas.write(2, [LOG[0], bytes(bad), LOG[2]], EPOCHS)
    (problem,) = replicas.differences()
    assert "the CRC of the batch at offset 2 is wrong" in problem


def test_offsets_that_go_back(replicas: Replicas) -> None:
    replicas.write(2, [LOG[0], batch(1, b"c", epoch=1)], EPOCHS)
    with pytest.raises(BadLog, match="offset 1 follows 1"):
        read_batches(replicas.directories[2])


def test_a_batch_that_is_cut_off(replicas: Replicas) -> None:
    replicas.write(2, [LOG[0], LOG[1][:-1]], EPOCHS)
    with pytest.raises(BadLog):
        read_batches(replicas.directories[2])


def test_an_epoch_file_that_is_empty_or_missing(replicas: Replicas) -> None:
    (replicas.directories[1] / "leader-epoch-checkpoint").write_text("")
    (replicas.directories[2] / "leader-epoch-checkpoint").unlink()
    assert read_epochs(replicas.directories[1]) == read_epochs(replicas.directories[2]) == []


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4], ids=["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec(replicas: Replicas, codec: int) -> None:
    replicas.write(1, [batch(0, b"a" * 100, b"b", attributes=codec)], [(0, 0)])
    (read,) = read_batches(replicas.directories[1])
    assert [(record.offset, record.value) for record in records_of(read)] == [(0, b"a" * 100), (1, b"b")]


def test_batches_of_transactions_by_their_outcome(replicas: Replicas) -> None:
    def data(base: int, producer: int) -> bytes:
        return batch(base, b"x", attributes=TRANSACTIONAL, producer=producer)

    def marker(base: int, producer: int, *, commit: bool) -> bytes:
        key = struct.pack(">hh", 0, int(commit))
        return batch(base, b"\0" * 6, attributes=TRANSACTIONAL | CONTROL, producer=producer, key=key)

    log = [
        *(data(0, 7), data(1, 8), batch(2, b"y"), data(3, 7), marker(4, 7, commit=True), data(5, 7)),
        *(marker(6, 8, commit=False), marker(7, 7, commit=False), data(8, 8)),
    ]
    replicas.write(1, log, [(0, 0)])
    committed, aborted, still_open = committed_only(read_batches(replicas.directories[1]))
    offsets = [[each.base_offset for each in batches] for batches in (committed, aborted, still_open)]
    assert offsets == [[0, 2, 3], [1, 5], [8]]
