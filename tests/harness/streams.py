"""The word count of Kafka Streams 3.9.1 with exactly-once, a writer of lines for it, and a reader of its counts."""

import random
import struct
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.harness import toolchain
from tests.harness.scenario import WORDS

STREAMS = Path(__file__).parents[1] / "interop" / "streams"
PARTITIONS = 2


class Instance:
    """An instance of the word count, whose state directory is kept after it ends."""

    def __init__(self, bootstrap: str, application: str, directory: Path, prefix: Sequence[str] = ()) -> None:
        """Start the instance. `prefix` is put before its command."""
        classpath = toolchain.maven_classpath(STREAMS / "pom.xml", "3.9.1")
        classes = toolchain.java_classes(STREAMS, classpath)
        java = [toolchain.find("java"), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        names = [bootstrap, application, "lines", "counts", str(directory / "state")]
        self._child = subprocess.Popen(
            [*prefix, *java, quiet, "-cp", f"{classes}:{classpath}", "kafkapy.streams.WordCount", *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._running = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self.lines.append(line)
            if line.strip() == "RUNNING":
                self._running.set()

    def wait_until_it_runs(self) -> None:
        assert self._running.wait(60), "".join(self.lines)

    def kill(self) -> None:
        """Kill the instance with SIGKILL."""
        self._child.kill()
        self._child.wait(30)

    def stop(self) -> None:
        """Stop the instance, so that it leaves the group."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._reader.join(30)
        assert self._child.wait(30) == 0, "".join(self.lines)


class Counts:
    """The committed records of the output topic, in their order."""

    def __init__(self, bootstrap: str) -> None:
        config = {"group.id": "unused", "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", **config})
        self._consumer.assign([TopicPartition("counts", p, 0) for p in range(PARTITIONS)])
        self.seen: defaultdict[str, list[int]] = defaultdict(list)

    @property
    def latest(self) -> dict[str, int]:
        return {word: counts[-1] for word, counts in self.seen.items()}

    def read_until(self, words: int, instances: list[Instance]) -> None:
        """Continue reading until `words` words are counted."""
        deadline = time.monotonic() + 90
        while sum(self.latest.values()) < words:
            output = "".join(line for each in instances for line in each.lines[-30:])
            assert time.monotonic() < deadline, f"{sum(self.latest.values())} of {words} words in 90 s\n{output}"
            for message in self._consumer.consume(1000, 0.02):  # waits 0.02 s unless 1000 records arrive before
                assert message.error() is None, message.error()
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                self.seen[key.decode()] += struct.unpack(">q", value)

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def lines_all_the_time(bootstrap: str, sent: Counter[str]) -> Iterator[None]:
    """Write lines of words until the block is left. Count the written words in `sent`."""
    producer, stopping, rng = (
        Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True}),
        threading.Event(),
        random.Random(5),
    )

    def write() -> None:
        while not stopping.wait(0.02):
            words = rng.choices(WORDS, k=10)
            producer.produce("lines", " ".join(words), partition=rng.randrange(PARTITIONS))
            producer.poll(0)
            sent.update(words)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        stopping.set()
        writer.join()
        assert producer.flush(30) == 0
