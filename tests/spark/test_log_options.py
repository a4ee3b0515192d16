"""The options of `kafkapy-log`, read without Spark, and how files are divided into tasks."""

import pickle
from pathlib import Path

import pytest

from kafkapy.log.offline.bounds import EARLIEST, LATEST, Bounds, Time
from kafkapy.log.offline.errors import OfflineError
from kafkapy.record.batch import build
from kafkapy.spark.log_reader import SegmentReader, task_bytes
from kafkapy.spark.options.given import BadOption
from kafkapy.spark.options.log_options import LEAST_BYTES, MAX_BYTES, TASKS, log_options

NOW = 1_700_000_000_000
BOTH = '{"orders":{"0":3,"1":-2}}'


@pytest.fixture
def log_dir(tmp_path):
    """Create orders-0, orders-1 and payments-0, each with two segments of five batches of two records."""
    for name in ("orders-0", "orders-1", "payments-0"):
        directory = tmp_path / name
        directory.mkdir()
        for base in (0, 10):
            batches = (
                build([(NOW + offset + at, None, b"v%d" % (offset + at), ()) for at in (0, 1)], base_offset=offset)
                for offset in range(base, base + 10, 2)
            )
            (directory / f"{base:020d}.log").write_bytes(b"".join(batches))
    return tmp_path


def sentence(*, path="/nowhere", **given):
    def planned():
        options = log_options({"path": str(path), **given})
        options.bounds(options.places())

    with pytest.raises((BadOption, OfflineError)) as caught:
        planned()
    return str(caught.value)


def read(path, **given):
    """Return (topic, partition, offset) of all rows, task by task."""
    reader = SegmentReader(log_options({"path": str(path), **given}))
    reader, tasks = pickle.loads(pickle.dumps((reader, reader.partitions())))
    return [
        [
            (row["topic"], row["partition"], row["offset"])
            for batch in reader.read(task)
            for row in batch.select(["topic", "partition", "offset"]).to_pylist()
        ]
        for task in tasks
    ]


def rows(tasks):
    return [row for task in tasks for row in task]


def everything(of):
    return [(topic, part, at) for topic, part in of for at in range(20)]


ORDERS = [("orders", 0), ("orders", 1)]


@pytest.mark.parametrize(
    ("given", "of"),
    [
        ({}, [*ORDERS, ("payments", 0)]),
        ({"subscribe": "orders"}, ORDERS),
        ({"subscribe": " payments , orders"}, [*ORDERS, ("payments", 0)]),
        ({"subscribePattern": "ay"}, [("payments", 0)]),
        ({"assign": '{"orders":[1],"payments":[0]}'}, [("orders", 1), ("payments", 0)]),
    ],
)
def test_topics_and_partitions_are_chosen_as_in_the_source_kafkapy(log_dir, given, of):
    assert rows(read(log_dir, **given)) == everything(of)


@pytest.mark.parametrize(
    ("size", "tasks"), [("1", 30), ("200b", 15), ("1k", 3), ("1m", 1)], ids=["a-batch", "two", "a-partition", "all"]
)
def test_tasks_have_about_one_size_large_segments_cut_and_small_ones_together(log_dir, size, tasks):
    found = read(log_dir, maxPartitionBytes=size)
    assert len(found) == pytest.approx(tasks, abs=3)
    assert rows(found) == everything([*ORDERS, ("payments", 0)])
    assert len(read(log_dir, minPartitions="7")) >= 7


def test_a_small_log_has_small_tasks_and_a_large_one_not_too_large_ones():
    chosen = log_options({"path": "/"})
    assert task_bytes(chosen, 1000) == 1000
    assert task_bytes(chosen, 32 << 20) == LEAST_BYTES
    assert task_bytes(chosen, TASKS * (64 << 20)) == 64 << 20
    assert task_bytes(chosen, 1 << 40) == MAX_BYTES
    assert task_bytes(log_options({"path": "/", "maxPartitionBytes": "2G"}), 1 << 40) == 2 << 30
    assert task_bytes(log_options({"path": "/", "minPartitions": "1000"}), 1 << 30) == -(-(1 << 30) // 1000)


def test_start_and_end_are_given_as_in_the_source_kafkapy(log_dir):
    def bounds(**given):
        options = log_options({"path": str(log_dir), "subscribe": "orders", **given})
        return options.bounds(options.places())

    assert bounds() == Bounds(EARLIEST, LATEST)
    assert bounds(startingOffsets="EARLIEST", endingOffsets="latest") == Bounds(EARLIEST, LATEST)
    assert bounds(startingOffsets=BOTH).starts == {("orders", 0): 3, ("orders", 1): EARLIEST}
    assert bounds(startingTimestamp="17", endingTimestamp="18") == Bounds(Time(17, or_end=False), Time(18))
    given = {"startingOffsetsByTimestamp": BOTH.replace("-2", "9"), "startingOffsetsByTimestampStrategy": "latest"}
    assert bounds(**given).starts == {("orders", 0): Time(3), ("orders", 1): Time(9)}
    found = read(log_dir, subscribe="orders", startingOffsets=BOTH, endingTimestamp=str(NOW + 6))
    assert [(part, at) for _, part, at in rows(found)] == [(0, 3), (0, 4), (0, 5), *((1, at) for at in range(6))]


def test_paths_come_as_one_or_as_json_and_are_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert log_options({"path": "a b"}).paths == (tmp_path / "a b",)
    assert log_options({"paths": '["/x","file:///y/z"]'}).paths == (Path("/x"), Path("/y/z"))
    assert log_options({"path": "file:/x/y"}).paths == (Path("/x/y"),)


def test_wrong_options_are_reported_in_a_sentence(log_dir):
    assert sentence(subscribe="refunds", path=log_dir) == (
        f"{log_dir} has no partition of topic 'refunds'; the topics there are: orders, payments."
    )
    assert "assign names orders-7, but there is no such partition in" in sentence(
        assign='{"orders":[0,7]}', path=log_dir
    )
    assert "startingOffsets has nothing for payments-0: name each partition" in sentence(
        startingOffsets=BOTH, path=log_dir
    )
    assert sentence(maxPartitionBytes="lots") == "maxPartitionBytes is 'lots': write a size, as in 64m or 1g"
    assert sentence(path="s3://bucket/x") == (
        "the path 's3://bucket/x' is in s3, but the source kafkapy-log reads files: mount it on every worker"
    )
    assert sentence(paths="/x") == "paths is '/x': write a JSON list, or load([...])"
    assert "kafka.bootstrap.servers is for the source kafkapy" in sentence(**{"kafka.bootstrap.servers": "x"})
    assert "has no option 'maxpartitionbyte'; did you mean 'maxPartitionBytes'?" in sentence(maxPartitionByte="1")
    assert "which say what to read: assign and subscribe are given" in sentence(subscribe="x", assign='{"x":[0]}')
    assert "a batch query would read nothing" in sentence(endingOffsets="earliest")
    assert "/nowhere does not exist" in sentence()
    assert "is not a segment file" in sentence(path=__file__)
    with pytest.raises(BadOption, match="a path is needed"):
        log_options({})
    with pytest.raises(BadOption, match=r"kafka\.isolation\.level is 'serializable'"):
        log_options({"path": "/", "kafka.isolation.level": "serializable"})
