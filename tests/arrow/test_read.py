"""`kafkapy.arrow.read`: the same rows from a broker and from the files it wrote."""

import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest

import kafkapy.arrow
from kafkapy.arrow import SCHEMA, DamagedRows
from kafkapy.client import Admin, Cluster, RecordProducer, TransactionalProducer
from kafkapy.client.errors import ConnectionFailed
from kafkapy.errors import KafkaError
from kafkapy.log.offline.errors import OfflineError

BEGIN = datetime(2013, 7, 4, tzinfo=timezone.utc)
PER_PARTITION = 400


@pytest.fixture
def topic(kafkapy_topic, servers):
    """Create a topic of two partitions with one record a second."""
    with Admin(servers) as admin:
        admin.create_partitions(kafkapy_topic, 2)
    with RecordProducer(servers, batch_bytes=3000) as producer:
        for number in range(PER_PARTITION):
            for partition in (0, 1):
                producer.send(
                    kafkapy_topic, b"%d" % number, b"key", partition=partition, headers=(("n", b"1"),),
                    timestamp=int(BEGIN.timestamp() * 1000) + 1000 * number,
                )  # fmt: skip
    return kafkapy_topic


@pytest.fixture(params=["broker", "files"])
def read(request, topic, servers, kafkapy_broker, tmp_path):
    """Return a function that reads the topic, or the directories of its partitions."""
    if request.param == "broker":
        return lambda **more: kafkapy.arrow.read(topic, bootstrap_servers=servers, **more)
    for partition in (0, 1):
        (tmp_path / f"{topic}-{partition}").symlink_to(kafkapy_broker.log_dir / f"{topic}-{partition}")
    return lambda **more: kafkapy.arrow.read(tmp_path, **more)


def offsets(reader):
    found = {0: [], 1: []}
    for row in reader.read_all().select(["partition", "offset"]).to_pylist():
        found[row["partition"]].append(row["offset"])
    return found


def test_a_topic_is_a_reader_of_all_its_records(read, topic):
    reader = read()
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema.equals(SCHEMA)
    table = reader.read_all()
    assert len(table) == 2 * PER_PARTITION
    row = table.slice(PER_PARTITION + 7, 1).to_pylist()[0]
    assert row == {
        "key": b"key", "value": b"7", "topic": topic, "partition": 1, "offset": 7,
        "timestamp": BEGIN + timedelta(seconds=7), "timestampType": 0, "headers": [{"key": "n", "value": b"1"}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"start": 10, "end": 13}, range(10, 13)),
        ({"start": 395}, range(395, 400)),
        ({"start": 398, "end": 10_000}, range(398, 400)),
        ({"start": 5, "end": 5}, range(0)),
        ({"start": "latest"}, range(0)),
        ({"end": "earliest"}, range(0)),
        ({"start": BEGIN + timedelta(seconds=100), "end": BEGIN + timedelta(seconds=103)}, range(100, 103)),
        ({"start": BEGIN + timedelta(seconds=100, microseconds=1), "end": 103}, range(101, 103)),
        ({"start": BEGIN + timedelta(days=1)}, range(0)),
        ({"start": datetime(1950, 1, 1, tzinfo=timezone.utc), "end": BEGIN.astimezone()}, range(0)),
        ({"start": datetime(1950, 1, 1, tzinfo=timezone.utc), "end": 2}, range(2)),
    ],
)
def test_offsets_and_times_bound_what_is_read(read, bounds, expected):
    assert offsets(read(**bounds)) == {0: list(expected), 1: list(expected)}


def test_only_the_requested_columns_and_partitions_are_read_in_batches_of_the_requested_size(read):
    reader = read(columns=["offset", "value"], partitions=[1], batch_rows=150)
    assert reader.schema.names == ["offset", "value"]
    assert [len(batch) for batch in reader] == [150, 150, 100]


def test_bounds_of_single_partitions(topic, servers):
    found = kafkapy.arrow.read(topic, bootstrap_servers=servers, start={0: 390, 1: 395}, end={1: 396})
    assert offsets(found) == {0: list(range(390, 400)), 1: [395]}


def test_records_written_after_the_call_are_not_read(read, topic, servers):
    reader = read()
    with RecordProducer(servers) as producer:
        producer.send(topic, b"later", partition=0)
    assert len(reader.read_all()) == 2 * PER_PARTITION


def test_a_cluster_that_is_given_stays_open(topic, servers):
    with Cluster(servers) as cluster:
        for _ in range(2):
            assert len(kafkapy.arrow.read(topic, bootstrap_servers=cluster).read_all()) == 2 * PER_PARTITION


@pytest.mark.parametrize("where", ["broker", "files"])
def test_read_committed_leaves_out_aborted_and_open_transactions(kafkapy_topic, servers, kafkapy_broker, where):
    with TransactionalProducer(servers, kafkapy_topic) as producer:
        for kind in ("commit", "abort", "open"):
            producer.begin()
            producer.send(kafkapy_topic, kind.encode(), partition=0)
            producer.flush()
            if kind != "open":
                getattr(producer, kind)()
        if where == "broker":
            which = {"topic_or_directory": kafkapy_topic, "bootstrap_servers": servers}
        else:
            which = {"topic_or_directory": kafkapy_broker.log_dir / f"{kafkapy_topic}-0"}
        committed = kafkapy.arrow.read(**which, isolation="read_committed", columns=["value"])
        assert committed.read_all()["value"].to_pylist() == [b"commit"]
        everything = kafkapy.arrow.read(**which, columns=["value"]).read_all()["value"].to_pylist()
        assert everything == [b"commit", b"abort", b"open"]
        producer.abort()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"start": datetime(2013, 7, 4)}, "the time 2013-07-04 00:00:00 has no time zone"),
        ({"start": "yesterday"}, "'yesterday' is not an offset, a datetime, 'earliest' or 'latest'"),
        ({"end": -5}, "-5 is not an offset"),
        ({"end": True}, "True is not an offset"),
        ({"columns": ["text"]}, "there is no column 'text'; there are key, value, topic"),
        ({"isolation": "committed"}, "isolation is 'committed'; it can be read_uncommitted or read_committed"),
        ({"batch_rows": 0}, "batch_rows is 0; a batch has at least one row"),
    ],
)
def test_the_error_names_invalid_arguments(read, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        read(**arguments)


def test_the_error_names_partitions_that_do_not_exist(topic, servers, kafkapy_broker):
    for more in ({"partitions": [0, 5]}, {"start": {5: 0}}):
        with pytest.raises(KafkaError, match=f"topic '{topic}' has no partition 5: it has 2, counted from 0"):
            kafkapy.arrow.read(topic, bootstrap_servers=servers, **more)
    with pytest.raises(OfflineError, match="has no partition 5"):
        kafkapy.arrow.read(kafkapy_broker.log_dir / f"{topic}-0", partitions=[5])


def test_the_error_names_a_missing_topic_file_or_broker(servers, tmp_path):
    with pytest.raises(KafkaError, match="topic 'nowhere'"):
        kafkapy.arrow.read("nowhere", bootstrap_servers=servers)
    with pytest.raises(
        ValueError, match="there is no file or directory 'nowhere'; to read a topic, give bootstrap_ser"
    ):
        kafkapy.arrow.read("nowhere")
    with pytest.raises(ValueError, match="read partitions singly"):
        kafkapy.arrow.read(tmp_path, start={0: 1})
    with pytest.raises(ConnectionFailed, match=r"No connection to 127.0.0.1:1: .*Is a broker listening there\?"):
        kafkapy.arrow.read("t", bootstrap_servers="127.0.0.1:1")


def test_damage_is_reported_when_it_is_reached(kafkapy_topic, servers, kafkapy_broker):
    with RecordProducer(servers, batch_bytes=200) as producer:
        for number in range(100):
            producer.send(kafkapy_topic, b"%d" % number)
    path = kafkapy_broker.log_dir / f"{kafkapy_topic}-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    with path.open("r+b") as log:
        log.write(data)
    reader = kafkapy.arrow.read(kafkapy_topic, bootstrap_servers=servers, batch_rows=10)
    assert reader.read_next_batch().num_rows == 10
    with pytest.raises(DamagedRows, match=f"{kafkapy_topic}-0 is damaged at offset"):
        reader.read_all()


def test_the_error_for_a_missing_pyarrow_says_what_to_do():
    script = "import sys; sys.modules['pyarrow'] = None; import kafkapy.arrow"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    last = ended.stderr.splitlines()[-1]
    assert last == "ModuleNotFoundError: kafkapy.arrow needs pyarrow; install it with: pip install pyarrow"
