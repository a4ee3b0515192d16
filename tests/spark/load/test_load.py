"""The load with a broker in this process. Its tasks run in this process too, without a JVM."""

import json
import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from kafkapy.client import Admin, Cluster, RecordProducer, TransactionalProducer
from kafkapy.client.administration.admin import SET, TOPIC
from kafkapy.client.connection import Connection
from kafkapy.client.errors import ConnectionFailed
from kafkapy.spark.load import JsonValues, LoadError, Settings, WrongOption, load
from kafkapy.spark.load.state import State
from kafkapy.testing.broker import Broker
from tests.spark.load.rows import DAY_MS, seen

DAY = 20_000  # days since 1970, in 2024: 2024-10-04
RETAINED = {"retention.ms": "-1"}  # otherwise the broker deletes records with such times


@pytest.fixture
def settings(kafkapy_broker: Broker) -> Settings:
    return Settings(kafkapy_broker.bootstrap_servers)


@pytest.fixture
def topic(kafkapy_broker: Broker, kafkapy_topic: str) -> str:
    with Admin(kafkapy_broker.bootstrap_servers) as admin:
        admin.alter_configs(TOPIC, kafkapy_topic, [("retention.ms", SET, "-1")])
    return kafkapy_topic


def produce(servers: str, topic: str, values: Sequence[bytes | None], *, first_day: int = DAY, **more: Any) -> None:
    """Produce the values, one record a day."""
    with RecordProducer(servers) as producer:
        for number, value in enumerate(values):
            stamp = (first_day + number) * DAY_MS
            producer.send(topic, value, b"key", timestamp=stamp, **{"partition": 0, **more})


def delete_before(servers: str, topic: str, offset: int) -> None:
    with Admin(servers) as admin:
        admin.delete_records({(topic, 0): offset})


def rows_of(directory: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ds.dataset(directory, partitioning="hive").to_table().to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_path_that_is_not_a_directory_is_reported(settings: Settings, topic: str, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(LoadError, match=rf"{name} cannot be loaded into: .*: Not a directory; name a directory"):
        load([topic], tmp_path / name, settings)


def test_each_run_loads_the_new_records(settings: Settings, topic: str, tmp_path: Path) -> None:
    produce(settings.servers, topic, [b"a", b"b"])
    first = load([topic], tmp_path / "landed", settings)
    produce(settings.servers, topic, [None], first_day=DAY + 1)
    second = load([topic], tmp_path / "landed", settings)
    third = load([topic], tmp_path / "landed", settings)
    assert (first.rows, second.rows, third.rows) == (2, 1, 0)
    rows = rows_of(tmp_path / "landed")
    assert [(row["offset"], row["key"], row["value"], str(row["date"])) for row in rows] == [
        (0, b"key", b"a", "2024-10-04"),
        (1, b"key", b"b", "2024-10-05"),
        (2, b"key", None, "2024-10-05"),
    ]
    where = third.partitions[topic, 0]
    assert (where.reached, where.end, where.lag) == (3, 3, 0)


def test_connections_that_the_broker_closes_during_a_long_batch_do_not_fail_the_load(
    settings: Settings, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(settings.servers, topic, [b"a", b"b"])
    opened: list[Connection] = []
    connect_to = Cluster.connect_to

    def recorded(cluster: Cluster, host: str, port: int) -> Connection:
        opened.append(connect_to(cluster, host, port))
        return opened[-1]

    def hang_up(_: Any) -> None:
        for connection in opened:
            if not connection.closed:
                connection._socket.shutdown(socket.SHUT_RDWR)  # as a broker does after connections.max.idle.ms

    monkeypatch.setattr(Cluster, "connect_to", recorded)
    done = load([topic], tmp_path / "landed", settings, on_progress=hang_up)
    assert (done.rows, done.partitions[topic, 0].lag) == (2, 0)
    assert opened


def test_a_broker_that_is_away_for_a_moment_does_not_end_a_load(
    settings: Settings, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(settings.servers, topic, [b"a"])
    offsets, failures = Admin.offsets, [ConnectionFailed("it restarts")]

    def failing_once(admin: Admin, *args: Any, **more: Any) -> Any:
        if failures:
            raise failures.pop()
        return offsets(admin, *args, **more)

    monkeypatch.setattr(Admin, "offsets", failing_once)
    assert load([topic], tmp_path / "landed", settings).rows == 1
    assert not failures


def test_columns_may_be_corrected_until_something_is_loaded(settings: Settings, topic: str, tmp_path: Path) -> None:
    produce(settings.servers, topic, [b'{"n": "one"}'])
    strict = replace(settings, values=JsonValues("n int"), strict=True)
    with pytest.raises(LoadError, match="does not fit the schema"):
        load([topic], tmp_path / "landed", strict)
    load([topic], tmp_path / "landed", replace(strict, values=JsonValues("n string")))
    assert [row["n"] for row in rows_of(tmp_path / "landed")] == ["one"]


def test_values_become_columns_and_those_that_do_not_fit_are_kept_aside(
    settings: Settings, topic: str, tmp_path: Path
) -> None:
    produce(settings.servers, topic, [b'{"n": 1}', b"no", b'{"n": "2"}', b'{"n": 4}', None])
    done = load([topic], tmp_path / "landed", replace(settings, values=JsonValues("n int")))
    assert [(row["offset"], row["n"]) for row in rows_of(tmp_path / "landed")] == [(0, 1), (3, 4), (4, None)]
    rejected = rows_of(tmp_path / "landed.kafkapy" / "rejected")
    assert [(row["offset"], row["value"]) for row in rejected] == [(1, b"no"), (2, b'{"n": "2"}')]
    assert rejected[1]["reason"] == "field 'n' is string, not number"
    assert (done.rows, done.rejected, sum(done.reasons.values())) == (3, 2, 2)


def test_strict_names_the_value_and_loads_nothing(settings: Settings, topic: str, tmp_path: Path) -> None:
    produce(settings.servers, topic, [b'{"n": 1}', b"no"])
    strict = replace(settings, values=JsonValues("n int"), strict=True)
    with pytest.raises(LoadError, match=r"partition 0 offset 1 does not fit the schema: it is not JSON"):
        load([topic], tmp_path / "landed", strict)
    assert not seen(tmp_path / "landed")


def test_the_error_for_fields_named_like_a_column_suggests_a_prefix(
    settings: Settings, topic: str, tmp_path: Path
) -> None:
    produce(settings.servers, topic, [b'{"key": 1, "topic": "x"}'])
    values = JsonValues("key int, topic string")
    with pytest.raises(WrongOption, match="a field 'key', which is also the name of a column of the record; --prefix"):
        load([topic], tmp_path / "landed", replace(settings, values=values))
    load([topic], tmp_path / "landed", replace(settings, values=values, prefix="kafka_"))
    (row,) = ds.dataset(tmp_path / "landed", partitioning="hive").to_table().to_pylist()
    assert (row["key"], row["topic"], row["kafka_key"], row["kafka_topic"]) == (1, "x", b"key", topic)


def test_headers_are_loaded_when_requested(settings: Settings, topic: str, tmp_path: Path) -> None:
    produce(settings.servers, topic, [b"a"], headers=[("source", b"x"), ("none", None)])
    load([topic], tmp_path / "landed", replace(settings, headers=True))
    (row,) = rows_of(tmp_path / "landed")
    assert row["headers"] == [{"key": "source", "value": b"x"}, {"key": "none", "value": None}]


def test_a_load_between_two_times_and_then_of_the_earlier_records(
    settings: Settings, topic: str, tmp_path: Path
) -> None:
    produce(settings.servers, topic, [b"%d" % day for day in range(10)])
    load([topic], tmp_path / "landed", settings, start_ms=(DAY + 3) * DAY_MS, end_ms=(DAY + 5) * DAY_MS)
    assert seen(tmp_path / "landed") == [(0, 3), (0, 4)]
    load([topic], tmp_path / "landed", settings, start_ms=0, end_ms=(DAY + 7) * DAY_MS)
    assert seen(tmp_path / "landed") == [(0, offset) for offset in range(7)]
    load([topic], tmp_path / "landed", settings)
    assert seen(tmp_path / "landed") == [(0, offset) for offset in range(10)]


def test_a_load_after_one_from_a_time_leaves_out_what_is_before_that_time_in_every_partition(
    settings: Settings, topic: str, tmp_path: Path
) -> None:
    with Admin(settings.servers) as admin:
        admin.create_partitions(topic, 2)
    for partition in (0, 1):
        produce(settings.servers, topic, [b"old"], partition=partition)
    produce(settings.servers, topic, [b"new"], first_day=DAY + 5, partition=0)
    done = load([topic], tmp_path / "landed", settings, start_ms=(DAY + 5) * DAY_MS)
    assert (done.rows, done.partitions[topic, 1].reached, done.partitions[topic, 1].lag) == (1, 1, 0)
    produce(settings.servers, topic, [b"newer"], first_day=DAY + 6, partition=1)
    load([topic], tmp_path / "landed", settings)
    assert [row["value"] for row in rows_of(tmp_path / "landed")] == [b"new", b"newer"]
    load([topic], tmp_path / "landed", settings, start_ms=0)
    assert seen(tmp_path / "landed") == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_load_of_older_records_does_not_change_where_later_loads_begin(
    settings: Settings, topic: str, tmp_path: Path
) -> None:
    produce(settings.servers, topic, [b"a", b"b"])
    load([topic], tmp_path / "landed", settings, start_ms=(DAY + 5) * DAY_MS)
    load([topic], tmp_path / "landed", settings, start_ms=0, end_ms=(DAY + 1) * DAY_MS)
    assert load([topic], tmp_path / "landed", settings).rows == 0
    assert seen(tmp_path / "landed") == [(0, 0)]


def test_a_load_from_a_time_without_records_since_leaves_the_columns_open(
    settings: Settings, topic: str, tmp_path: Path
) -> None:
    produce(settings.servers, topic, [b"{}"])
    load([topic], tmp_path / "landed", settings, start_ms=(DAY + 5) * DAY_MS)
    produce(settings.servers, topic, [b'{"n": 1}'], first_day=DAY + 5)
    load([topic], tmp_path / "landed", replace(settings, values=JsonValues("n int")))
    assert [row["n"] for row in rows_of(tmp_path / "landed")] == [1]


def test_a_reload_replaces_exactly_its_own_rows(settings: Settings, topic: str, tmp_path: Path) -> None:
    with Admin(settings.servers) as admin:
        admin.create_partitions(topic, 2)
    for partition in (0, 1):
        produce(settings.servers, topic, [b'{"n": %d}' % n for n in range(6)] + [b"no"], partition=partition)
    json_values = replace(settings, values=JsonValues("n int"))
    landed = tmp_path / "landed"
    load([topic], landed, json_values, compact_files=2)
    before = {path: path.stat().st_ino for path in landed.rglob("*.parquet")}
    rows, rejected = rows_of(landed), rows_of(tmp_path / "landed.kafkapy" / "rejected")
    done = load([topic], landed, json_values, start_ms=(DAY + 4) * DAY_MS, again=True)
    assert (done.rows, done.rejected) == (4, 2)
    assert rows_of(landed) == rows
    assert rows_of(tmp_path / "landed.kafkapy" / "rejected") == rejected
    kept = [path for path in before if path.exists() and path.stat().st_ino == before[path]]
    assert len(kept) == 4  # days 0 to 3, a merged file each


def test_records_of_aborted_transactions_are_no_rows(settings: Settings, topic: str, tmp_path: Path) -> None:
    producer = TransactionalProducer(settings.servers, f"{topic}-writer")
    with producer:
        for value, commit in ((b"no", False), (b"yes", True)):
            producer.begin()
            producer.send(topic, value)
            if commit:
                producer.commit()
            else:
                producer.flush()
                producer.abort()
        load([topic], tmp_path / "landed", settings)
        load([topic], tmp_path / "all", replace(settings, isolation="read_uncommitted"))
    assert [row["value"] for row in rows_of(tmp_path / "landed")] == [b"yes"]
    assert [row["value"] for row in rows_of(tmp_path / "all")] == [b"no", b"yes"]


def test_new_partitions_and_further_topics_join(settings: Settings, topic: str, tmp_path: Path) -> None:
    produce(settings.servers, topic, [b"a"])
    load([topic], tmp_path / "landed", settings)
    with Admin(settings.servers) as admin:
        admin.create_partitions(topic, 2)
        admin.create_topic(f"{topic}-more", 1, configs=RETAINED)
    produce(settings.servers, topic, [b"b"], partition=1)
    produce(settings.servers, f"{topic}-more", [b"c"])
    load([topic, f"{topic}-more"], tmp_path / "landed", settings)
    assert [row["value"] for row in rows_of(tmp_path / "landed")] == [b"a", b"b", b"c"]


def test_deleted_records_are_reported(settings: Settings, topic: str, tmp_path: Path) -> None:
    produce(settings.servers, topic, [b"a", b"b", b"c"])
    load([topic], tmp_path / "landed", settings, end_ms=(DAY + 1) * DAY_MS)
    delete_before(settings.servers, topic, 2)
    with pytest.raises(LoadError, match="begins at offset 2, but 1 was to be loaded next: 1 offsets were deleted"):
        load([topic], tmp_path / "landed", settings)
    done = load([topic], tmp_path / "landed", settings, accept_loss=True)
    assert done.lost == {(topic, 0): 1}
    assert seen(tmp_path / "landed") == [(0, 0), (0, 2)]


def test_a_loss_that_was_accepted_is_not_reported_again(settings: Settings, topic: str, tmp_path: Path) -> None:
    produce(settings.servers, topic, [b"a", b"b", b"c"])
    load([topic], tmp_path / "landed", settings, end_ms=(DAY + 1) * DAY_MS)
    delete_before(settings.servers, topic, 3)
    assert load([topic], tmp_path / "landed", settings, accept_loss=True).lost == {(topic, 0): 2}
    done = load([topic], tmp_path / "landed", settings)
    assert (done.rows, done.lost, done.partitions[topic, 0].reached) == (0, {}, 3)


def test_records_that_are_deleted_during_a_load_end_it_unless_that_is_accepted(
    settings: Settings, topic: str, tmp_path: Path
) -> None:
    small = replace(settings, batch_rows=2)
    produce(settings.servers, topic, [b"value"] * 6)
    done = load(
        [topic],
        tmp_path / "landed",
        small,
        accept_loss=True,
        on_progress=lambda now: delete_before(settings.servers, topic, 5),
    )
    assert (done.rows, done.lost, done.partitions[topic, 0].lag) == (3, {(topic, 0): 3}, 0)
    assert seen(tmp_path / "landed") == [(0, 0), (0, 1), (0, 5)]
    assert load([topic], tmp_path / "landed", small).lost == {}
    produce(settings.servers, topic, [b"value"] * 4)
    with pytest.raises(LoadError, match=r"from offset 7 to 9 could not be read: .* does not have offset 7"):
        load([topic], tmp_path / "other", small, on_progress=lambda now: delete_before(settings.servers, topic, 9))


def test_a_reload_whose_records_are_deleted_meanwhile_replaces_nothing(
    settings: Settings, topic: str, tmp_path: Path
) -> None:
    produce(settings.servers, topic, [b"a", b"b", b"c"])
    load([topic], tmp_path / "landed", settings)
    with pytest.raises(LoadError, match="from offset 1 to 2 could not be read"):
        load(
            [topic],
            tmp_path / "landed",
            replace(settings, batch_rows=1),
            start_ms=0,
            again=True,
            accept_loss=True,
            on_progress=lambda now: delete_before(settings.servers, topic, 3),
        )
    assert seen(tmp_path / "landed") == [(0, 0), (0, 1), (0, 2)]


def test_a_topic_that_was_created_again_is_another_topic(settings: Settings, topic: str, tmp_path: Path) -> None:
    name = f"{topic}-again"
    with Admin(settings.servers) as admin:
        admin.create_topic(name, 1, configs=RETAINED)
        produce(settings.servers, name, [b"a"])
        load([name], tmp_path / "landed", settings)
        admin.delete_topics([name])
        admin.create_topic(name, 1, configs=RETAINED)
    produce(settings.servers, name, [b"b", b"c"])
    with pytest.raises(LoadError, match="was deleted and recreated since it was loaded"):
        load([name], tmp_path / "landed", settings)


def test_a_directory_keeps_its_columns(settings: Settings, topic: str, tmp_path: Path) -> None:
    produce(settings.servers, topic, [b"{}"])
    load([topic], tmp_path / "landed", settings)
    message = r"was loaded with other columns \(.*value binary\) than requested now \(.*n int32\)"
    with pytest.raises(LoadError, match=message):
        load([topic], tmp_path / "landed", replace(settings, values=JsonValues("n int")))


def test_small_batches_and_compaction_give_the_same_rows(settings: Settings, topic: str, tmp_path: Path) -> None:
    produce(settings.servers, topic, [b"%d" % n for n in range(40)], first_day=DAY)
    ranges: list[tuple[int, int]] = []
    done = load(
        [topic],
        tmp_path / "landed",
        replace(settings, batch_rows=3),
        on_progress=lambda now: ranges.append((now.done, now.total)),
    )
    assert done.batches == 14
    assert ranges[-1] == (40, 40)
    assert seen(tmp_path / "landed") == [(0, offset) for offset in range(40)]


def test_following_continues_until_it_is_stopped(settings: Settings, topic: str, tmp_path: Path) -> None:
    produce(settings.servers, topic, [b"a"])
    stopped = threading.Event()

    def on_progress(now: Any) -> None:
        if now.summary.rows == 1:
            produce(settings.servers, topic, [b"b"])
        else:
            stopped.set()

    done = load([topic], tmp_path / "landed", settings, follow_s=0.01, stopped=stopped, on_progress=on_progress)
    assert done.rows == 2


def test_following_from_a_time_leaves_out_the_records_before_it(settings: Settings, topic: str, tmp_path: Path) -> None:
    produce(settings.servers, topic, [b"old"])

    class Stopped(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            produce(settings.servers, topic, [b"new"], first_day=DAY + 5)
            return self.is_set()

    stopped = Stopped()
    load(
        [topic],
        tmp_path / "landed",
        settings,
        start_ms=(DAY + 5) * DAY_MS,
        follow_s=0.0,
        stopped=stopped,
        on_progress=lambda now: stopped.set(),
    )
    assert [row["value"] for row in rows_of(tmp_path / "landed")] == [b"new"]


def test_a_stopped_load_ends_after_its_batch_and_resumes_later(settings: Settings, topic: str, tmp_path: Path) -> None:
    produce(settings.servers, topic, [b"a", b"b", b"c"])
    stopped = threading.Event()
    stopped.set()
    small = replace(settings, batch_rows=1)
    done = load([topic], tmp_path / "landed", small, stopped=stopped)
    assert (done.rows, done.partitions[topic, 0].lag) == (1, 2)
    assert load([topic], tmp_path / "landed", small).rows == 2


def test_a_missing_topic_or_broker_is_reported(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="there is no topic 'nowhere'"):
        load(["nowhere"], tmp_path / "landed", settings)
    with pytest.raises(WrongOption, match="no topic is named"):
        load([], tmp_path / "landed", settings)
    with pytest.raises(WrongOption, match="--from is not before --until"):
        load(["t"], tmp_path / "landed", settings, start_ms=2, end_ms=2)
    with pytest.raises(WrongOption, match="use --again with --from"):
        load(["t"], tmp_path / "landed", settings, again=True)
    with pytest.raises(WrongOption, match="--follow loads until it is stopped"):
        load(["t"], tmp_path / "landed", settings, follow_s=1.0, end_ms=1)


def test_the_state_is_readable(settings: Settings, topic: str, tmp_path: Path) -> None:
    produce(settings.servers, topic, [b"a"])
    load([topic], tmp_path / "landed", settings)
    document = json.loads((tmp_path / "landed.kafkapy" / "state.json").read_bytes())
    assert document["topics"][topic]["have"] == {"0": [[0, 1]]}
    with State(tmp_path / "landed") as state:
        assert state.topics[topic].have == {0: [(0, 1)]}
