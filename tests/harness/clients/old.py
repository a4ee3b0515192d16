"""Clients of Kafka 0.8 to 0.10, which send and read message sets. They write and read only one partition.

kafka-python with an old api_version, pykafka in its own environment, and the Scala and Java clients of Kafka 0.8.2.2
and 0.10.2.2.
"""

import time
from collections.abc import Sequence

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.harness import toolchain
from tests.harness.clients.base import Received, Record
from tests.harness.clients.remote import INTEROP, Remote, _pack, _unpack

OLD = INTEROP / "old"


class OldClient:
    """A writer, a reader, or both, of partition 0 of topics."""

    name: str
    writes_lz4 = True
    sends_times = False  # without timestamps the broker stores none
    reads_times = False
    empties = True  # it distinguishes an empty key from a missing one

    def reads_lz4(self, magic: int) -> bool:
        """Return True if the client reads lz4 from a topic of that message format."""
        return True

    def send(self, topic: str, codec: str, records: Sequence[Record]) -> list[int]:
        """Send the records at once and wait. Return their offsets, or [] if the client does not report them."""
        raise NotImplementedError

    def read(self, topic: str, start: int, end: int, size: int = 1 << 20) -> list[Received]:
        """Read [start, end) with fetches of `size` bytes. Timestamps are -1 if the client has none."""
        raise NotImplementedError


class OldKafkaPython(OldClient):
    """kafka-python with the protocol of an old broker version. Its lz4 in format 0 needs another package."""

    def __init__(self, bootstrap: str, version: tuple[int, ...]) -> None:
        self.name = f"kafka-python-{'.'.join(map(str, version))}"
        self._common = {"bootstrap_servers": bootstrap, "api_version": version}
        self.sends_times = self.reads_times = self.writes_lz4 = version >= (0, 10)

    def reads_lz4(self, magic: int) -> bool:
        return self.reads_times and magic > 0

    def send(self, topic: str, codec: str, records: Sequence[Record]) -> list[int]:
        producer = KafkaProducer(
            **self._common, compression_type=None if codec == "none" else codec, acks="all", linger_ms=20, retries=0
        )
        try:
            sent = [
                producer.send(
                    topic, r.value, r.key, partition=0, timestamp_ms=r.timestamp if self.sends_times else None
                )
                for r in records
            ]
            return [future.get(30).offset for future in sent]
        finally:
            producer.close()

    def read(self, topic: str, start: int, end: int, size: int = 1 << 20) -> list[Received]:
        consumer = KafkaConsumer(
            **self._common,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=size,
        )
        place = TopicPartition(topic, 0)
        got: list[Received] = []
        deadline = time.monotonic() + 30
        try:
            consumer.assign([place])
            consumer.seek(place, start)
            while len(got) < end - start:
                assert time.monotonic() < deadline, f"{self.name} read {len(got)} of {end - start} records of {topic}"
                for m in consumer.poll(timeout_ms=200, max_records=end - start - len(got)).get(place, ()):
                    timestamp = -1 if m.timestamp is None else m.timestamp
                    got.append(Received(0, m.offset, timestamp, m.key, m.value, ()))
        finally:
            consumer.close()
        return got


class Child(Remote):
    """A child process that runs one or more of these clients."""

    def __init__(self, name: str, bootstrap: str, command: list[str]) -> None:
        self.name = name
        self._command = [*command, bootstrap]
        super().__init__(bootstrap)

    def command(self, bootstrap: str) -> list[str]:
        return self._command

    def send(self, op: str, topic: str, codec: str, records: Sequence[Record]) -> list[int]:
        packed = [{"key": _pack(r.key), "value": _pack(r.value), "timestamp": r.timestamp} for r in records]
        offsets: list[int] = self._ask(op, topic=topic, codec=codec, records=packed)
        return offsets

    def read(self, op: str, topic: str, start: int, end: int, size: int) -> list[Received]:
        response = self._ask(op, topic=topic, start=start, end=end, size=size)
        return [Received(0, r["offset"], r["timestamp"], _unpack(r["key"]), _unpack(r["value"]), ()) for r in response]

    def segment_offsets(self, topic: str, time_ms: int, count: int) -> list[int]:
        """Send ListOffsets v0. Return the base offsets of segments written up to that time."""
        offsets: list[int] = self._ask("segment_offsets", topic=topic, time=time_ms, count=count)
        return offsets

    def offset_for_time(self, topic: str, time_ms: int) -> int | None:
        """Send ListOffsets v1. Return the offset."""
        offset: int | None = self._ask("offset_for_time", topic=topic, time=time_ms)
        return offset


class OfChild(OldClient):
    """A client in a child process: the requests that it handles, and its abilities."""

    def __init__(self, child: Child, name: str, *, send: str = "", read: str = "", times: bool = False) -> None:
        self.name = name
        self.sends_times = times and send != "produce_scala"  # the Scala producer uses its own clock
        self.reads_times = times
        self._child, self._send, self._read = child, send, read

    def send(self, topic: str, codec: str, records: Sequence[Record]) -> list[int]:
        return self._child.send(self._send, topic, codec, records)

    def read(self, topic: str, start: int, end: int, size: int = 1 << 20) -> list[Received]:
        return self._child.read(self._read, topic, start, end, size)


def jvm(bootstrap: str, version: str) -> Child:
    """Start the clients of Kafka 0.8.2.2 or 0.10.2.2."""
    classpath = toolchain.maven_classpath(OLD / f"pom-{version}.xml", version)
    classes = str(toolchain.java_classes(OLD / "java", classpath))
    if version == "0.10.2.2":
        classes = f"{toolchain.java_classes(OLD / 'java-0.10', f'{classes}:{classpath}')}:{classes}"
    java = [toolchain.find("java"), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
    quiet = f"-Dlog4j.configuration=file:{OLD / 'log4j.properties'}"
    kind = "kafkapy.old.LaterClients" if version == "0.10.2.2" else "kafkapy.old.Clients"
    return Child(f"jvm-{version}", bootstrap, [*java, quiet, "-cp", f"{classes}:{classpath}", "kafkapy.old.Main", kind])


def pykafka(bootstrap: str) -> Child:
    """Start pykafka 2.8.0, its last version."""
    python = toolchain.python_with("pykafka==2.8.0", "python-snappy")
    return Child("pykafka", bootstrap, [str(python), str(OLD / "python" / "pykafka_child.py")])


class PyKafka(OfChild):
    """pykafka, which has no lz4 and no timestamps."""

    writes_lz4 = empties = False

    def reads_lz4(self, magic: int) -> bool:
        return False


class OldClients:
    """All old clients, started and ended together."""

    def __init__(self, bootstrap: str) -> None:
        self.jvm08, self.jvm010, self.pykafka = (
            jvm(bootstrap, "0.8.2.2"),
            jvm(bootstrap, "0.10.2.2"),
            pykafka(bootstrap),
        )
        python = [OldKafkaPython(bootstrap, version) for version in ((0, 8, 2), (0, 9), (0, 10, 0))]
        self.by_name: dict[str, OldClient] = {
            client.name: client
            for client in (
                *python,
                PyKafka(self.pykafka, "pykafka", send="produce", read="fetch"),
                OfChild(self.jvm08, "scala-0.8.2.2", send="produce_scala", read="fetch_simple"),
                OfChild(self.jvm08, "java-0.8.2.2", send="produce_java"),
                OfChild(self.jvm010, "scala-0.10.2.2", send="produce_scala", read="fetch_simple", times=True),
                OfChild(self.jvm010, "java-0.10.2.2", send="produce_java", read="fetch_java", times=True),
            )
        }

    def close(self) -> None:
        for child in (self.jvm08, self.jvm010, self.pykafka):
            child.close()


NAMES = (
    *(f"kafka-python-{version}" for version in ("0.8.2", "0.9", "0.10.0")),
    "pykafka",
    *(f"{kind}-{version}" for version in ("0.8.2.2", "0.10.2.2") for kind in ("scala", "java")),
)
READERS = tuple(name for name in NAMES if name != "java-0.8.2.2")  # that release's Java consumer does not work yet
