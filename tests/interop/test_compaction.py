"""Apache Kafka's cleaner and kafkapy's leave the same batches on copies of the same logs."""

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from kafkapy.record.legacy import build_set
from tests.harness import brokers, toolchain
from tests.log.cleaner.support import NOW, CleanerBench, stored_in

pytestmark = pytest.mark.other_runtime

HERE = Path(__file__).parent
RETENTION_MS = 1000
SETTINGS = {"segment_bytes": 3000, "index_interval_bytes": 300, "delete_retention_ms": RETENTION_MS}
KEYS = [f"key {number}" for number in range(12)] + ["", "a key of quite some length, longer than the others are"]


class KafkasCleaner:
    """A process with Kafka's cleaner, which cleans directories one by one (tests/interop/reference, Clean.java)."""

    def __init__(self, output: Path) -> None:
        classpath = toolchain.maven_classpath(brokers.KAFKA_POM, brokers.KAFKA_VERSION)
        classes = toolchain.java_classes(HERE / "reference", classpath)
        java = [toolchain.find("java"), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{classpath}"]
        self._output = output
        with output.open("w") as errors:
            self._process = subprocess.Popen(
                [*java, "kafkapy.reference.Clean"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def clean(self, directory: Path, now: int, first_dirty: int, memory: int, settings: dict[str, object]) -> int:
        """Clean a directory. Return the first dirty offset afterwards."""
        pairs = ",".join(f"{name.replace('_', '.')}={value}" for name, value in settings.items())
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{directory}\t{now}\t{first_dirty}\t{memory}\tcleanup.policy=compact,{pairs}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._output.read_text()[-4000:]
        return int(answer)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(30)


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkasCleaner]:
    cleaner = KafkasCleaner(tmp_path_factory.mktemp("cleaner") / "said")
    yield cleaner
    cleaner.close()


def write_batches(
    bench: CleanerBench,
    chance: random.Random,
    batches: int,
    new_keys: Iterator[str] | None = None,
) -> None:
    """Write batches of all codecs, with and without transactions, tombstones, headers, timestamps out of order."""
    open_transactions: set[int] = set()
    for _ in range(batches):
        producer = chance.choice([None, None, 7, 8, 9, 10])
        transactional = producer in (8, 9, 10)
        if transactional and producer in open_transactions and chance.random() < 0.4:
            bench.end_transaction(producer, commit=chance.random() < 0.5)
            open_transactions.discard(producer)
            continue
        if transactional:
            open_transactions.add(producer)
        rows = [
            (
                chance.choice(KEYS) if new_keys is None else next(new_keys),
                None if chance.random() < 0.2 else "value " * chance.randrange(5),
                bench.clock.time_ms() + chance.randrange(-100_000, 1000),
                [("header", b"content")] if chance.random() < 0.1 else [],
            )
            for _ in range(chance.choice([1, 1, 2, 5, 20]))
        ]
        bench.append(*rows, producer=producer, transactional=transactional, codec=chance.choice([0, 0, 0, 1, 2, 3, 4]))
    for producer in sorted(open_transactions):
        bench.end_transaction(producer, commit=chance.random() < 0.5)


def write_messages(directory: Path, magic: int, timestamp_type: int, chance: random.Random) -> None:
    """Write segments of formats 0 and 1, partly compressed, like old clients."""
    directory.mkdir(parents=True)
    offset = 0
    for number in range(5):
        parts, base = [], offset
        for _ in range(chance.randrange(3, 9) if number < 4 else 0):
            rows = [
                (
                    NOW + chance.randrange(1000),
                    chance.choice(KEYS).encode(),
                    None if chance.random() < 0.2 else b"value " * chance.randrange(9),
                )
                for _ in range(chance.choice([1, 3, 10]))
            ]
            codec = chance.choice([0, 0, 1, 2, 3])
            options = {"timestamp_type": timestamp_type, "append_time": NOW + number} if timestamp_type else {}
            parts.append(build_set(rows, magic, codec, base_offset=offset, **options))
            offset += len(rows)
        path = directory / f"{base:020}.log"
        path.write_bytes(b"".join(parts))
        os.utime(path, (NOW // 1000 + number, NOW // 1000 + number))


def described(segment: object) -> list[object]:
    """Return everything that a segment stores, except compressed bytes, which depend on the library."""
    found = []
    for header, records in stored_in(segment):
        fields = [
            getattr(header, name) for name in ("magic", "codec", "last_offset", "max_timestamp", "timestamp_type")
        ]
        if header.magic == 2:
            names = ("base_offset", "attributes", "base_timestamp", "leader_epoch", "producer_id", "producer_epoch")
            fields += [getattr(header, name) for name in (*names, "base_sequence", "count")]
        if header.codec == 0:
            fields += [header.size, header.crc]
        found.append((fields, records))
    return found


def contents_of(directory: Path) -> dict[str, object]:
    """Return the contents of a closed log: entries of every segment, aborted transactions, times of the files."""
    bench = CleanerBench(directory.parent, **SETTINGS)
    found: dict[str, object] = {}
    for segment in bench.log.segments:
        name = f"{segment.base_offset:020}"
        found[name] = described(segment)
        found[f"{name} aborted"] = segment.txn_index.entries
        found[f"{name} index"] = segment.offset_index.count > 0
        found[f"{name} modified"] = int((directory / f"{name}.log").stat().st_mtime * 1000)
    bench.log.abandon()
    return found


def cleaned_by_both(
    kafkas: KafkasCleaner, bench: CleanerBench, copy: Path, first_dirty: int, slots: int = 100_000
) -> int:
    """Clean the log with kafkapy and a copy with Kafka, and compare them. Return the first dirty offset afterwards."""
    bench.log.close()
    directory = bench.directory / "t-0"
    theirs = copy / "t-0"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, theirs)
    now = bench.clock.time_ms()
    bench.restart(clean=True)
    expected = kafkas.clean(theirs, now, first_dirty, slots * 24, SETTINGS)
    bench.env.cleaner_offsets.put(("t", 0), first_dirty)
    end, _ = bench.clean(dedupe_buffer=slots * 24)
    bench.log.close()
    bench.scheduler.run_all()
    assert end == expected
    ours = shutil.copytree(directory, copy / "ours" / "t-0")
    for path in theirs.glob("*.deleted"):
        path.unlink()
    assert contents_of(ours) == contents_of(theirs)
    bench.restart(clean=True)
    return end


@pytest.mark.parametrize(
    ("seed", "timestamp_type"), [*((seed, "CreateTime") for seed in range(4)), (4, "LogAppendTime")]
)
def test_batches_of_format_2(kafkas: KafkasCleaner, tmp_path: Path, seed: int, timestamp_type: str) -> None:
    chance = random.Random(seed)
    bench = CleanerBench(tmp_path / "ours", message_timestamp_type=timestamp_type, **SETTINGS)
    first_dirty = 0
    for _ in range(3):
        write_batches(bench, chance, 40)
        bench.log.roll()
        first_dirty = cleaned_by_both(kafkas, bench, tmp_path / "copy", first_dirty)
        bench.clock.advance(chance.choice([0.5, 1.5]))


def test_more_keys_than_the_map_can_hold(kafkas: KafkasCleaner, tmp_path: Path) -> None:
    """Each cleaning ends where the map is full. Kafka then also stops at a key that is in the map."""
    bench = CleanerBench(tmp_path / "ours", **SETTINGS)
    write_batches(bench, random.Random(5), 40, (f"key {number}" for number in count()))
    bench.log.roll()
    first_dirty, rounds = 0, 0
    while first_dirty < bench.log.segments.active.base_offset:
        first_dirty = cleaned_by_both(kafkas, bench, tmp_path / "copy", first_dirty, slots=30)
        rounds += 1
    assert rounds > 3


@pytest.mark.parametrize(("magic", "timestamp_type"), [(0, 0), (1, 0), (1, 1)])
def test_messages_of_formats_0_and_1(kafkas: KafkasCleaner, tmp_path: Path, magic: int, timestamp_type: int) -> None:
    write_messages(tmp_path / "ours" / "t-0", magic, timestamp_type, random.Random(magic + timestamp_type))
    bench = CleanerBench(tmp_path / "ours", **SETTINGS)
    bench.restart()
    bench.log.set_high_watermark(bench.log.log_end_offset)
    first_dirty = cleaned_by_both(kafkas, bench, tmp_path / "copy", 0)
    # The second cleaning removes tombstones in segments that are old enough.
    write_batches(bench, random.Random(1), 20)
    bench.log.roll()
    cleaned_by_both(kafkas, bench, tmp_path / "copy", first_dirty)
