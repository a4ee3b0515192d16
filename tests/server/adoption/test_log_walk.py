"""The highest producer id and leader epoch are found in the headers of a segment's batches."""

import json

import pytest

from kafkapy.record.batch import build
from kafkapy.server.adoption.log_walk import Highest, walk_segment

from .conftest import GOLDEN


def walked(path, known=None, **options):
    return walk_segment(path, known or Highest(), lambda done: None, **options)


def batch(producer_id=-1, leader_epoch=0, value=b"x", **more):
    return build([(0, None, value, [])], producer_id=producer_id, producer_epoch=0, base_sequence=0,
                 leader_epoch=leader_epoch, **more)  # fmt: skip


def expected_of(name, partition):
    lines = (GOLDEN / name / "expected" / f"{partition}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("partition", ["v2-none-0", "v2-txn-0", "v2-compacted-empty-batch-0", "v2-plain-producer-0"])
def test_segments_of_kafka(partition):
    wanted = Highest()
    found = Highest()
    for one in expected_of("kafka-3.9.1-v2", partition):
        wanted = wanted.with_(Highest(one["producerId"], one["leaderEpoch"]))
    for path in (GOLDEN / "kafka-3.9.1-v2" / "data" / partition).glob("*.log"):
        found = walked(path, found)
    assert found == wanted


def test_older_formats_have_neither():
    for path in (GOLDEN / "kafka-0.10.2.2" / "data").glob("v*/*.log"):
        assert walked(path) == Highest(-1, -1)


def test_mixed_formats_are_walked_through():
    (path,) = (GOLDEN / "kafka-3.9.1-v0-v1" / "data" / "mixed-formats-none-0").glob("*.log")
    epochs = [one.get("leaderEpoch", -1) for one in expected_of("kafka-3.9.1-v0-v1", "mixed-formats-none-0")]
    assert walked(path).leader_epoch == max(epochs) >= 0


def test_batches_longer_than_one_read(tmp_path):
    path = tmp_path / "0.log"
    big = bytes(200_000)
    path.write_bytes(batch(7, value=big) + batch(3) + batch(9, 5, value=big) + batch(8))
    assert walked(path) == Highest(9, 5)


def test_transaction_state_names_producers_that_wrote_nothing():
    found = Highest()
    for path in (GOLDEN / "kafka-3.9.1-v2" / "data").glob("__transaction_state-*/*.log"):
        found = walked(path, found, of_transactions=True)
    assert found.producer_id > 0
    assert walked(path).producer_id == -1


def test_a_damaged_batch_does_not_raise_anything(tmp_path):
    bad = bytearray(batch(5, 3))
    bad[43] = 0x7F  # the highest byte of the producer id
    bad[12] = 0x7F  # the highest byte of the leader epoch, which the CRC does not cover
    path = tmp_path / "0.log"
    path.write_bytes(batch(4, 2) + bytes(bad) + batch(6, 2))
    assert walked(path) == Highest(6, 2)


@pytest.mark.parametrize("tail", [b"\0" * 100, b"\xff" * 100, b"\0" * 11, batch(9, 9)[:-1], batch(9, 9)[:40]])
def test_the_walk_ends_at_the_first_bytes_that_are_no_batch(tmp_path, tail):
    path = tmp_path / "0.log"
    path.write_bytes(batch(4, 2) + tail)
    assert walked(path) == Highest(4, 2)


def test_progress_ends_at_the_size(tmp_path):
    path = tmp_path / "0.log"
    path.write_bytes(b"".join(batch(n, value=bytes(1000)) for n in range(200)))
    seen = []
    walk_segment(path, Highest(), seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == path.stat().st_size
