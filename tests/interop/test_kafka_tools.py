"""Apache Kafka's DumpLogSegments reads every file that the broker wrote, and `kafkapy log dump` prints the same."""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness import brokers
from tests.harness.clients.base import CODECS, Client, Record
from tests.harness.clients.registry import Clients
from tests.harness.kafka_tools import complaints, kafka_dump
from tests.harness.scenario import KEEP, T0, records

pytestmark = pytest.mark.other_runtime

SMALL = {**KEEP, "segment.bytes": "16384", "index.interval.bytes": "512"}
PARTS = ["--deep-iteration", "--print-data-log"]
WRITERS = ("confluent-kafka", "java-3.9.1", "kafka-python", "franz-go")


@dataclass
class WrittenFiles:
    """The files of a cleanly stopped broker, and the (key, value) records sent to it, by partition directory."""

    data: Path
    sent: dict[str, list[Record]]

    def named(self, *suffixes: str) -> list[Path]:
        """Return all files with these suffixes in partition directories, relative to the data directory, in order."""
        found = sorted(path for path in self.data.glob("*-*/*") if path.suffix in suffixes)
        assert found, f"no {suffixes} in {self.data}"
        return [path.relative_to(self.data) for path in found]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> WrittenFiles:
    """Write many segments with several clients, all codecs, both timestamp types, recompression, deleted records."""
    broker = brokers.start(tmp_path_factory.mktemp("files"))
    clients = Clients(broker.bootstrap)
    written = WrittenFiles(broker.data, {})
    try:
        admin = clients["confluent-kafka"]
        with ThreadPoolExecutor(len(WRITERS)) as pool:  # librdkafka waits for each producer id
            list(pool.map(lambda writer: _write_codecs(written, clients[writer], writer), WRITERS))
        java = clients["java-3.9.1"]
        _write(written, java, "append-time", {"message.timestamp.type": "LogAppendTime"}, "none", True)
        _write(written, java, "append-time-zstd", {"message.timestamp.type": "LogAppendTime"}, "zstd", True)
        _write(written, java, "made-lz4", {"compression.type": "lz4"}, "none", True)
        _write(written, java, "made-plain", {"compression.type": "uncompressed"}, "snappy", False)
        _write(written, java, "deleted", {}, "none", True)
        low = admin.delete_records("deleted", {0: 150})
        assert low == {0: 150}
    finally:
        clients.close()
        broker.stop()
    return written


def _write_codecs(written: WrittenFiles, client: Client, writer: str) -> None:
    for codec in CODECS:
        _write(written, client, f"{writer}-{codec}", {}, codec, writer != "kafka-python")


def _write(
    written: WrittenFiles, client: Client, topic: str, configs: dict[str, str], codec: str, idempotent: bool
) -> None:
    client.create_topic(topic, 3, {**SMALL, **configs})
    for part in range(3):  # several producers, for several producer ids and smaller batches
        sent = [client.express(record) for record in records(f"{topic} {part}")]
        client.produce(topic, sent, codec=codec, idempotent=idempotent)
        for record in sent:
            written.sent.setdefault(f"{topic}-{record.partition}", []).append(record)


def kafkapy_dump(data: Path, paths: list[Path], *options: str) -> bytes:
    """Return the output of `kafkapy log dump`, with its findings at the end, like the output of Kafka's tool."""
    command = [*brokers.kafkapy_command(), "log", "dump", *options, *map(str, paths)]
    done = subprocess.run(command, cwd=data, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240, check=False)
    assert done.returncode in (0, 1), done.stdout[-4000:]
    return done.stdout


def test_there_are_many_segments_of_every_kind(files: WrittenFiles) -> None:
    assert len(files.named(".log")) > 100
    assert len(files.named(".snapshot")) > 80
    assert {path.name for path in files.data.iterdir()} >= {
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        ".kafka_cleanshutdown",
    }


def test_kafkas_tool_accepts_every_log_and_finds_the_sent_records(files: WrittenFiles) -> None:
    output = kafka_dump(files.data, files.named(".log"), *PARTS)
    assert complaints(output) == ""
    directory, offsets, found = "", {}, {}
    for line in output.split("\n"):
        if line.startswith("Dumping "):
            directory = line.removeprefix("Dumping ").rpartition("/")[0]
        elif match := re.match(r"\| offset: (\d+) .*?keySize: (-?\d+) valueSize: (-?\d+) ", line):
            offsets.setdefault(directory, []).append(int(match[1]))
            found.setdefault(directory, []).append((int(match[2]), int(match[3])))
    assert set(offsets) == set(files.sent)
    for directory, sent in files.sent.items():
        first = 0 if directory != "deleted-0" else offsets[directory][0]
        assert 0 <= first <= 150
        assert offsets[directory] == list(range(first, len(sent))), directory
        sizes = [tuple(-1 if part is None else len(part) for part in (r.key, r.value)) for r in sent]
        assert found[directory] == sizes[first:], directory


def test_kafkas_tool_finds_every_index_entry_right(files: WrittenFiles) -> None:
    output = kafka_dump(files.data, files.named(".index", ".timeindex"), "--verify-index-only")
    assert complaints(output) == ""
    assert {line.removeprefix("Dumping ") for line in output.splitlines() if line.startswith("Dumping ")} == {
        str(path) for path in files.named(".index", ".timeindex")
    }


def test_kafkas_tool_reads_indexes_and_producer_snapshots(files: WrittenFiles) -> None:
    output = kafka_dump(files.data, files.named(".index", ".timeindex", ".snapshot"))
    assert complaints(output) == ""
    assert len(re.findall(r"^offset: \d+ position: \d+$", output, re.MULTILINE)) > 60
    assert len(re.findall(r"^timestamp: \d+ offset: \d+$", output, re.MULTILINE)) > 60
    assert len(re.findall(r"^producerId: \d+ producerEpoch: 0 ", output, re.MULTILINE)) > 60


def test_time_indexes_hold_the_largest_timestamps(files: WrittenFiles) -> None:
    output = kafka_dump(files.data, [p for p in files.named(".timeindex") if p.parent.name == "java-3.9.1-none-1"])
    times = [int(at) for at in re.findall(r"^timestamp: (\d+) ", output, re.MULTILINE)]
    assert max(times) == max(r.timestamp or 0 for r in files.sent["java-3.9.1-none-1"])
    assert min(times) >= T0


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot"])
def test_log_dump_prints_the_same_as_kafkas_tool(files: WrittenFiles, suffix: str) -> None:
    wanted = {
        "java-3.9.1-none-0",
        "franz-go-zstd-1",
        "confluent-kafka-lz4-2",
        "append-time-0",
        "made-lz4-1",
        "deleted-0",
    }
    paths = [path for path in files.named(suffix) if path.parent.name in wanted]
    options = PARTS if suffix == ".log" else []
    printed = kafkapy_dump(files.data, paths, *options).decode(errors="replace")
    assert printed.splitlines() == kafka_dump(files.data, paths, *options).splitlines()


def test_log_verify_finds_no_problem_in_the_brokers_files(files: WrittenFiles) -> None:
    command = [*brokers.kafkapy_command(), "log", "verify", str(files.data)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240, check=False)
    assert (done.returncode, done.stdout.endswith(b": no problem found.\n")) == (0, True), done.stdout[-4000:]
