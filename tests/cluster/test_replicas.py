"""The comparison of replicas finds each difference, in logs made by hand, and nothing in equal ones."""

import gzip
import struct
from pathlib import Path

import crc32c
import lz4.frame
import pytest
import snappy
import zstandard

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
from tests.harness.raw import varint


def record(delta: int, value: bytes, key: bytes | None = None) -> bytes:
    keyed = varint(-1) if key is None else varint(len(key)) + key
    body = b"\0" + varint(0) + varint(delta) + keyed + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(
    base: int, *values: bytes, epoch: int = 0, attributes: int = 0, producer: int = -1, key: bytes | None = None
) -> bytes:
    body = b"".join(record(number, value, key) for number, value in enumerate(values))
    pack = {0: bytes, 1: gzip.compress, 2: _snappy_of_java, 3: lz4.frame.compress, 4: zstandard.compress}
    body = pack[attributes & 7](body)
    header = struct.pack(">hiqqqhii", attributes, len(values) - 1, 0, 0, producer, 0, 0, len(values))
    crc = crc32c.crc32c(header + body)
    return struct.pack(">qiibI", base, 9 + len(header) + len(body), epoch, 2, crc) + header + body


def _snappy_of_java(data: bytes) -> bytes:
    block = snappy.compress(data)
    return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block


LOG = [batch(0, b"a", b"b"), batch(2, b"c", epoch=1), batch(5, b"d", b"e", epoch=3)]
EPOCHS = [(0, 0), (1, 2), (3, 5)]


class Replicas:
    """Three replicas of a partition in a directory each."""

    def __init__(self, directory: Path) -> None:
        self.directories = {broker: directory / str(broker) / "t-0" for broker in (1, 2, 3)}
        for broker in self.directories:
            self.write(broker, LOG, EPOCHS)

    def write(self, broker: int, log: list[bytes], epochs: list[tuple[int, int]], segment: int = 2) -> None:
        """Write a log in two segments, the first with `segment` batches."""
        directory = self.directories[broker]
        directory.mkdir(parents=True, exist_ok=True)
        for file in directory.iterdir():
            file.unlink()
        for name, batches in ((0, log[:segment]), (segment, log[segment:])):
            (directory / f"{name:020}.log").write_bytes(b"".join(batches))
        lines = ["0", str(len(epochs)), *(f"{epoch} {offset}" for epoch, offset in epochs)]
        (directory / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")

    def differences(self) -> list[str]:
        return differences(self.directories)


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    return Replicas(tmp_path)


def test_equal_replicas_may_differ_in_their_segments(replicas: Replicas) -> None:
    replicas.write(2, LOG, EPOCHS, segment=1)
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
