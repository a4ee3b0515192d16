"""`kafkapy log import`: logs of Kafka 0.7 into topics, also interrupted and repeated, and into a directory."""

import json
import os
import shutil
from pathlib import Path

import pytest

from kafkapy.client.administration.admin import TOPIC, Admin
from kafkapy.client.fetching.consumer import Consumer
from kafkapy.client.producing.record_producer import RecordProducer
from kafkapy.record.compression import GZIP, compress
from kafkapy.record.kafka07 import build_message
from kafkapy.testing.broker import Broker
from kafkapy.tools.log.import_07 import broker as import_broker
from kafkapy.tools.log.import_07.offsets_file import look_up, read_head

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "kafka-0.7.2"
THEN = 1_300_000_000  # in 2011


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def clean(broker):
    """Return the broker, without the topics of other tests."""
    yield broker
    with Admin(broker.bootstrap_servers) as admin:
        names = [topic.name for topic in admin.list_topics()]
        if names:
            admin.delete_topics(names)


@pytest.fixture
def old(tmp_path):
    """Return a copy of the golden log directory; segments are an hour apart."""
    path = tmp_path / "old"
    shutil.copytree(GOLDEN / "data", path)
    for directory in path.iterdir():
        if directory.is_dir():
            for number, file in enumerate(sorted(directory.iterdir())):
                os.utime(file, (THEN + 3600 * number, THEN + 3600 * number))
    return path


@pytest.fixture
def run(kafkapy, tmp_path, monkeypatch):
    """Return a function that runs `log import` in tmp_path, where it writes its offsets files by default."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        return kafkapy("log", "import", *words)

    return call


def expected(partition):
    """Return [(old offset, payload)] of the messages that Kafka 0.7.2's consumer got."""
    lines = [json.loads(line) for line in (GOLDEN / "expected" / f"{partition}.jsonl").read_text().splitlines()]
    return [(one["offset"], payload_of(message["payload"])) for one in lines for message in one["messages"]]


def payload_of(text):
    import base64

    return text.encode() if isinstance(text, str) else base64.b64decode(text["base64"])


def read(broker, topic, partition=0):
    """Return [(offset, timestamp, value)] of a partition."""
    with Consumer(broker.bootstrap_servers) as consumer:
        consumer.assign([(topic, partition)])
        return [(one.offset, one.timestamp, one.value) for one in consumer.records()]


def write_log(directory, *segments, at=THEN):
    """Write a partition of Kafka 0.7 with these segments, each given as bytes."""
    directory.mkdir(parents=True)
    start = 0
    for data in segments:
        path = directory / f"{start:020d}.kafka"
        path.write_bytes(data)
        os.utime(path, (at, at))
        start += len(data)


def set_of(*values):
    return b"".join(build_message(value) for value in values)


PARTITIONS = sorted(path.stem for path in (GOLDEN / "expected").iterdir())


def test_a_whole_directory_through_a_broker(run, clean, old):
    result = run(old, "-b", clean.bootstrap_servers)
    assert (result.code, result.err) == (0, "")
    for partition in PARTITIONS:
        topic, _, index = partition.rpartition("-")
        wanted = expected(partition)
        found = read(clean, topic, int(index))
        assert [value for _, _, value in found] == [payload for _, payload in wanted]
        assert [offset for offset, _, _ in found] == list(range(len(wanted)))
        # An old offset is mapped to the first record of the stored message.
        first = {}
        for (offset, _, _), (before, _) in zip(found, wanted, strict=True):
            first.setdefault(before, offset)
        answers = look_up(Path("kafka07-offsets") / f"{partition}.offsets07", list(first))
        assert [(one.new_offset, one.exact) for one in answers] == [(offset, True) for offset in first.values()]
    assert "two-partitions-1" in result.out
    assert all(line.endswith("imported") for line in result.out.splitlines()[1:10])


def test_timestamps_are_those_of_the_files(run, clean, old):
    run(old / "small-segments-0", "-b", clean.bootstrap_servers)
    by_file = {}
    lines = [json.loads(line) for line in (GOLDEN / "expected" / "small-segments-0.jsonl").read_text().splitlines()]
    for number, one in enumerate(sorted({one["file"] for one in lines})):
        by_file[one] = (THEN + 3600 * number) * 1000
    assert [at for _, at, _ in read(clean, "small-segments")] == [by_file[one["file"]] for one in lines]


def test_new_topics_keep_their_old_records(run, clean, old):
    run(old / "none-0", "-b", clean.bootstrap_servers)
    with Admin(clean.bootstrap_servers) as admin:
        keys = ["retention.ms", "cleanup.policy"]
        found = {one.name: one.value for one in admin.describe_configs(TOPIC, "none", keys)}
    assert found == {"retention.ms": "-1", "cleanup.policy": "delete"}


def test_codecs_are_kept_or_changed(run, clean, old, kafkapy):
    run(old / "gzip-0", "-b", clean.bootstrap_servers)
    run(old / "none-0", "-b", clean.bootstrap_servers, "--codec", "zstd")
    for topic, codec in (("gzip", "GZIP"), ("none", "ZSTD")):
        (log,) = (clean.log_dir / f"{topic}-0").glob("*.log")
        assert f"compresscodec: {codec.lower()}" in kafkapy("log", "dump", log).out.lower()


def test_a_second_run_does_nothing(run, clean, old):
    run(old, "-b", clean.bootstrap_servers)
    before = read(clean, "mixed")
    result = run(old, "-b", clean.bootstrap_servers)
    assert result.code == 0
    assert result.out.count("was there already") == len(PARTITIONS)
    assert read(clean, "mixed") == before


@pytest.mark.parametrize("stored", [0, 1, 2, 5])
def test_an_interrupted_import_resumes_where_it_was(run, clean, tmp_path, monkeypatch, stored):
    """It resumes also in the middle of a compressed message."""
    inner = [build_message(compress(GZIP, set_of(b"%d a" % n, b"%d b" % n, b"%d c" % n)), codec=GZIP) for n in range(3)]
    write_log(tmp_path / "broken-0", b"".join(inner))
    wanted = [b"%d %s" % (n, letter) for n in range(3) for letter in (b"a", b"b", b"c")]
    append = import_broker.ProducerWriter.append

    def failing(self, value, timestamp):
        if value == wanted[stored]:
            self.flush()
            raise KeyboardInterrupt
        append(self, value, timestamp)

    with monkeypatch.context() as patch:
        patch.setattr(import_broker.ProducerWriter, "append", failing)
        assert run(tmp_path / "broken-0", "-b", clean.bootstrap_servers).code == 130
    assert len(read(clean, "broken")) == stored
    result = run(tmp_path / "broken-0", "-b", clean.bootstrap_servers)
    assert result.code == 0
    assert (f"imported, {stored} were there already" in result.out) == (stored > 0)
    assert [value for _, _, value in read(clean, "broken")] == wanted


def test_a_log_that_has_grown_is_imported_to_its_new_end(run, clean, tmp_path):
    write_log(tmp_path / "grown-0", set_of(b"a", b"b"))
    run(tmp_path / "grown-0", "-b", clean.bootstrap_servers)
    with open(tmp_path / "grown-0" / f"{0:020d}.kafka", "ab") as file:
        file.write(set_of(b"c"))
    result = run(tmp_path / "grown-0", "-b", clean.bootstrap_servers)
    assert "imported, 2 were there already" in result.out
    assert [value for _, _, value in read(clean, "grown")] == [b"a", b"b", b"c"]
    assert read_head(Path("kafka07-offsets/grown-0.offsets07")).records == 3


def test_another_topic_and_partition(run, clean, old):
    with Admin(clean.bootstrap_servers) as admin:
        admin.create_topic("elsewhere", 3, configs={"retention.ms": "-1"})
    run(old / "none-0", "-b", clean.bootstrap_servers, "--topic", "elsewhere", "--partition", "2")
    assert len(read(clean, "elsewhere", 2)) == len(expected("none-0"))
    assert read_head(Path("kafka07-offsets/elsewhere-2.offsets07")).topic == "elsewhere"


def test_offsets_begin_after_those_that_were_used(run, clean, tmp_path):
    write_log(tmp_path / "used-0", set_of(b"a", b"b"))
    with Admin(clean.bootstrap_servers) as admin, RecordProducer(clean.bootstrap_servers) as producer:
        admin.create_topic("used", 1, configs={"retention.ms": "-1"})
        producer.send("used", b"old")
        producer.flush()
        admin.delete_records({("used", 0): 1})
    run(tmp_path / "used-0", "-b", clean.bootstrap_servers)
    assert [(offset, value) for offset, _, value in read(clean, "used")] == [(1, b"a"), (2, b"b")]
    assert [one.new_offset for one in look_up(Path("kafka07-offsets/used-0.offsets07"), [0, 11, 22])] == [1, 2, 3]


def test_a_value_larger_than_the_topics_limit(run, clean, tmp_path):
    write_log(tmp_path / "large-0", set_of(bytes(3 << 20), b"small"))
    assert run(tmp_path / "large-0", "-b", clean.bootstrap_servers).code == 0
    assert [len(value) for _, _, value in read(clean, "large")] == [3 << 20, 5]


# --- into a directory


def test_without_a_broker(run, old, tmp_path, kafkapy):
    result = run(old, "--to", tmp_path / "new")
    assert result.code == 0
    assert f"Next: kafkapy log adopt {tmp_path}/new --broker-id 0" in result.out
    assert run(old, "--to", tmp_path / "new").out.count("was there already") == len(PARTITIONS)
    assert kafkapy("log", "verify", tmp_path / "new").code == 0
    assert kafkapy("log", "adopt", tmp_path / "new", "--broker-id", "0").code == 0
    with Broker(tmp_path / "new") as broker:
        for partition in PARTITIONS:
            topic, _, index = partition.rpartition("-")
            found = read(broker, topic, int(index))
            assert [value for _, _, value in found] == [payload for _, payload in expected(partition)]
            assert {at for _, at, _ in found} <= {(THEN + 3600 * number) * 1000 for number in range(3)}
    assert (tmp_path / "new-offsets" / "mixed-0.offsets07").exists()


def test_the_directory_of_a_broker_is_not_written_to(run, broker, old):
    code, _, err = run(old, "--to", broker.log_dir)
    assert code == 2
    assert "is the directory of a broker" in err


# --- damage


def test_a_torn_end_is_left_out_and_reported(run, clean, tmp_path):
    write_log(tmp_path / "torn-0", set_of(b"a", b"b"), set_of(b"c") + build_message(b"torn")[:-2])
    result = run(tmp_path / "torn-0", "-b", clean.bootstrap_servers)
    assert result.code == 0
    assert "Left out, 12 bytes: " in result.out
    assert "at position 11: the file ends in the middle of a message." in result.out
    assert [value for _, _, value in read(clean, "torn")] == [b"a", b"b", b"c"]


def damaged_log(directory):
    bad = bytearray(set_of(b"bad"))
    bad[-1] ^= 1
    write_log(directory, set_of(b"a") + bytes(bad) + set_of(b"b"), set_of(b"c") + bytes(20), set_of(b"d"))


def test_damage_ends_the_import_before_it_begins(run, clean, tmp_path):
    damaged_log(tmp_path / "bad-0")
    code, out, err = run(tmp_path / "bad-0", "-b", clean.bootstrap_servers)
    assert (code, out) == (1, "")
    assert f"bad-0/{0:020d}.kafka at position 11: the message has CRC" in err
    assert "--skip-damaged" in err
    with Admin(clean.bootstrap_servers) as admin:
        assert [topic.name for topic in admin.list_topics()] == []
    assert list(Path("kafka07-offsets").iterdir()) == []


def test_damage_can_be_left_out(run, clean, tmp_path):
    damaged_log(tmp_path / "bad-0")
    result = run(tmp_path / "bad-0", "-b", clean.bootstrap_servers, "--skip-damaged")
    assert result.code == 0
    assert "Left out, 13 bytes: " in result.out
    assert "Left out, 20 bytes: " in result.out
    assert [value for _, _, value in read(clean, "bad")] == [b"a", b"b", b"c", b"d"]


def test_a_missing_segment(run, clean, old):
    (old / "gzip-segments-0" / "00000000000000000506.kafka").unlink()
    code, _, err = run(old, "-b", clean.bootstrap_servers)
    assert code == 1
    assert "gzip-segments-0 is not whole: 00000000000000000000.kafka ends at 506, but the next segment" in err


def test_files_without_their_modification_times(run, clean, tmp_path):
    write_log(tmp_path / "copied-0", set_of(b"a"), set_of(b"b"))
    os.utime(tmp_path / "copied-0" / f"{11:020d}.kafka", (THEN - 100, THEN - 100))
    result = run(tmp_path / "copied-0", "-b", clean.bootstrap_servers)
    assert "copied without their times?" in result.out
    assert [at for _, at, _ in read(clean, "copied")] == [THEN * 1000] * 2


# --- refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "retention.ms=604800000, and records as old as these"),
        ({"cleanup.policy": "compact"}, "is compacted, but messages of Kafka 0.7 have no keys"),
        ({"retention.ms": "-1", "max.message.bytes": "100"}, "--set max.message.bytes="),
    ],
)
def test_a_topic_with_unsuitable_settings(run, clean, tmp_path, settings, message):
    write_log(tmp_path / "refused-0", set_of(bytes(200)))
    with Admin(clean.bootstrap_servers) as admin:
        admin.create_topic("refused", 1, configs=settings)
    code, _, err = run(tmp_path / "refused-0", "-b", clean.bootstrap_servers)
    assert code == 1
    assert message in err
    assert read(clean, "refused") == []


def test_a_topic_with_too_few_partitions(run, clean, old):
    with Admin(clean.bootstrap_servers) as admin:
        admin.create_topic("two-partitions", 1, configs={"retention.ms": "-1"})
    code, _, err = run(old, "-b", clean.bootstrap_servers)
    assert code == 1
    assert "topic two-partitions has too few partitions, 1 where 2 are needed" in err


def test_a_topic_that_holds_other_records(run, clean, tmp_path):
    write_log(tmp_path / "other-0", set_of(b"a"))
    with Admin(clean.bootstrap_servers) as admin, RecordProducer(clean.bootstrap_servers) as producer:
        admin.create_topic("other", 1, configs={"retention.ms": "-1"})
        producer.send("other", b"mine")
        producer.flush()
        code, _, err = run(tmp_path / "other-0", "-b", clean.bootstrap_servers)
        assert code == 1
        assert "other-0 holds records already (1)" in err
        admin.delete_records({("other", 0): 1})
        assert run(tmp_path / "other-0", "-b", clean.bootstrap_servers).code == 0
        producer.send("other", b"mine again")
        producer.flush()
        code, _, err = run(tmp_path / "other-0", "-b", clean.bootstrap_servers)
        assert code == 1
        assert "other-0 ends at offset 3, but the import goes from 1 to 2: another producer has written to it" in err


def test_another_writer_during_the_import_is_noticed(run, clean, tmp_path, monkeypatch):
    write_log(tmp_path / "busy-0", set_of(b"a", b"b"))
    flush = import_broker.ProducerWriter.flush

    def raced(self):
        with RecordProducer(clean.bootstrap_servers) as other:
            other.send("busy", b"other")
        flush(self)

    monkeypatch.setattr(import_broker.ProducerWriter, "flush", raced)
    code, _, err = run(tmp_path / "busy-0", "-b", clean.bootstrap_servers)
    assert code == 1
    assert "another producer writes to busy-0: records expected at offset 0 are at 1" in err


def test_two_directories_for_one_partition(run, clean, tmp_path):
    write_log(tmp_path / "x" / "same-0", set_of(b"a"))
    write_log(tmp_path / "y" / "same-0", set_of(b"b"))
    code, _, err = run(tmp_path / "x", tmp_path / "y", "-b", clean.bootstrap_servers)
    assert code == 1
    assert "would both be imported as same-0" in err


def test_an_import_whose_first_records_are_deleted(run, clean, tmp_path):
    write_log(tmp_path / "gone-0", set_of(b"a"), set_of(b"b"))
    run(tmp_path / "gone-0", "-b", clean.bootstrap_servers)
    (tmp_path / "gone-0" / f"{0:020d}.kafka").unlink()
    code, _, err = run(tmp_path / "gone-0", "-b", clean.bootstrap_servers)
    assert code == 1
    assert "began at offset 0 of" in err
    assert "begins at 11" in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([GOLDEN.parent / "kafka-0.8.2.2" / "data"], 1, "holds no partition of Kafka 0.7"),
        ([GOLDEN / "nowhere"], 1, "is no directory of Kafka 0.7"),
        ([GOLDEN / "data", "--codec", "lzma"], 2, "--codec 'lzma' is none of"),
        ([GOLDEN / "data", "--partition", "1"], 2, "--partition is for one partition, and there are 9"),
        ([GOLDEN / "data", "--topic", "x"], 2, "--topic is for one topic"),
    ],
)
def test_wrong_options_are_refused(run, words, code, message):
    result = run(*words)
    assert (result.code, result.out) == (code, "")
    assert message in result.err


# --- looking offsets up


def test_lookup(run, old, tmp_path):
    run(old / "mixed-0", "--to", tmp_path / "new")
    result = run(tmp_path / "new-offsets" / "mixed-0.offsets07", "--lookup", "55", "--lookup", "60", "--lookup", "999")
    rows = [line.split(None, 3) for line in result.out.splitlines()[1:]]
    assert rows[0] == ["mixed-0", "55", "3"]
    assert rows[1][:3] == ["mixed-0", "60", "3"]
    assert "no message begins there" in rows[1][3]
    assert rows[2] == ["mixed-0", "999", "10", "after the last message: the old log ends at 279"]


@pytest.mark.parametrize("data", [b"", b"x" * 5000, b'{"version": 1}'.ljust(4096)])
def test_lookup_in_another_file(run, tmp_path, data):
    (tmp_path / "x.offsets07").write_bytes(data)
    code, _, err = run(tmp_path / "x.offsets07", "--lookup", "1")
    assert code == 1
    assert "is not a file of imported offsets" in err


def test_lookup_in_a_cut_file(run, old, tmp_path):
    run(old / "mixed-0", "--to", tmp_path / "new")
    path = tmp_path / "new-offsets" / "mixed-0.offsets07"
    path.write_bytes(path.read_bytes()[:-16])
    code, _, err = run(path, "--lookup", "1")
    assert code == 1
    assert "is damaged" in err
