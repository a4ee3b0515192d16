"""A broker of Kafka 0.7 that uses a running ZooKeeper.

There is no published artifact of Kafka 0.7. `Broker07` is a small broker, written from the sources of 0.7.2: it serves
partition directories byte for byte, accepts messages and registers itself. With KAFKAPY_KAFKA_07, the class path of a
Kafka 0.7.2 built from source, tests run with that broker instead. (Its core compiles with Scala 2.11.12, zkclient 0.3,
jopt-simple 3.2, log4j 1.2 and snappy-java on Java 17, after changes of a few lines: `position()` and `limit()` of
buffers, and the current names of JavaConversions.)
"""

import os
import re
import struct
import threading
import time
import zlib
from collections.abc import Mapping
from pathlib import Path

from kazoo.client import KazooClient

from tests.harness import toolchain
from tests.harness.brokers import LOG4J, Process, free_port
from tests.harness.frame_server import FrameServer
from tests.harness.waiting import eventually

BROKER_ID = 8
REGISTERED = f"/brokers/ids/{BROKER_ID}"
TOPICS = "/brokers/topics"
REAL = os.environ.get("KAFKAPY_KAFKA_07", "")
OFFSET_OUT_OF_RANGE, WRONG_PARTITION = 1, 3
LATEST, EARLIEST = -1, -2


def start_broker_07(
    directory: Path, zookeeper: str, counts: Mapping[str, int], *, port: int | None = None
) -> "Broker07 | RealBroker07":
    """Start a broker on 127.0.0.1 with the logs in `directory`; `topics` has numbers of partitions, by default one.
    The broker and the topics are registered in ZooKeeper when this returns."""
    keeper = KazooClient(zookeeper)
    keeper.start()
    eventually(lambda: not keeper.exists(REGISTERED))  # the node of a killed broker
    kind = RealBroker07 if REAL else Broker07
    broker = kind(directory, zookeeper, counts, port or free_port())
    wanted = [REGISTERED, *(f"{TOPICS}/{topic}/{BROKER_ID}" for topic in _topics_in(directory))]
    eventually(lambda: all(keeper.exists(path) for path in wanted), seconds=60)
    keeper.stop()
    keeper.close()
    return broker


def _topics_in(directory: Path) -> set[str]:
    return {path.name.rpartition("-")[0] for path in directory.glob("*-*")}


class RealBroker07:
    def __init__(self, directory: Path, zookeeper: str, counts: Mapping[str, int], port: int) -> None:
        self.port = port
        settings = {
            "brokerid": str(BROKER_ID),
            "hostname": "127.0.0.1",
            "port": str(port),
            "zk.connect": zookeeper,
            "zk.sessiontimeout.ms": "2000",
            "log.dir": str(directory),
            "topic.partition.count.map": ",".join(f"{topic}:{count}" for topic, count in counts.items()),
            "log.flush.interval": "1",
        }
        properties = directory.with_name(f"{directory.name}.properties")
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items() if value))
        log4j = directory.with_name(f"{directory.name}.log4j")
        log4j.write_text(LOG4J)
        java = [toolchain.find("java"), "-Xmx128m", "-XX:TieredStopAtLevel=1", f"-Dlog4j.configuration=file:{log4j}"]
        log = directory.with_name(f"{directory.name}.log")
        self.process = Process([*java, "-cp", REAL, "kafka.Kafka", str(properties)], log)

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()


class Broker07:
    """The small broker: it serves existing segments; messages are appended to the last one and can be read at once."""

    def __init__(self, directory: Path, zookeeper: str, counts: Mapping[str, int], port: int) -> None:
        self.port = port
        self._directory = directory
        self._counts = counts
        self._lock = threading.Lock()
        self._topics: set[str] = set()
        self._keeper = KazooClient(zookeeper)
        self._keeper.start()
        self._server = FrameServer(self._respond, port)
        own = f"127.0.0.1-{round(time.time() * 1000)}:127.0.0.1:{port}".encode()
        self._keeper.create(REGISTERED, own, ephemeral=True, makepath=True)
        self._keeper.ensure_path(TOPICS)
        for topic in _topics_in(directory):
            self._register(topic)

    def stop(self) -> None:
        self._server.close()
        self._keeper.stop()
        self._keeper.close()

    kill = stop

    def _register(self, topic: str) -> None:
        self._topics.add(topic)
        count = str(self._counts.get(topic, 1)).encode()
        self._keeper.create(f"{TOPICS}/{topic}/{BROKER_ID}", count, ephemeral=True, makepath=True)

    def _respond(self, frame: bytes) -> bytes | None:
        """Return the response. An exception of a handler closes the connection, as in SocketServer.Processor."""
        try:
            return self._handle(Request(frame))
        except (OSError, ValueError, struct.error):
            return None

    def _handle(self, request: "Request") -> bytes:
        key = request.take(">h")
        if key == 0:
            self._produce(request)
        elif key == 1:
            return self._fetch(request)
        elif key == 2:
            sets = b"".join(self._fetch(request) for _ in range(request.take(">h")))
            return struct.pack(">ih", 2 + len(sets), 0) + sets
        elif key == 3:
            for _ in range(request.take(">h")):
                self._produce(request)
        elif key == 4:
            offsets = self._offsets(request)
            return struct.pack(f">ihi{len(offsets)}q", 6 + 8 * len(offsets), 0, len(offsets), *offsets)
        else:
            raise ValueError(f"no mapping found for handler id {key}")
        return b""

    def _fetch(self, request: "Request") -> bytes:
        topic, partition = request.where()
        offset, most = request.take(">q"), request.take(">i")
        code, data = 0, b""
        if not 0 <= partition < self._counts.get(topic, 1):
            code = WRONG_PARTITION
        elif segments := self._segments(topic, partition):
            end = segments[-1][1] + segments[-1][0].stat().st_size
            if not segments[0][1] <= offset <= end:
                code = OFFSET_OUT_OF_RANGE
            else:
                path, start = next(one for one in reversed(segments) if one[1] <= offset)
                data = path.read_bytes()[offset - start :][:most]
        return struct.pack(">ih", 2 + len(data), code) + data

    def _produce(self, request: "Request") -> None:
        topic, partition = request.where()
        data = request.bytes(request.take(">i"))
        count = self._counts.get(topic, 1)
        if partition == -1:
            partition = int(time.time_ns() // 1000) % count
        if not 0 <= partition < count:
            raise ValueError(f"wrong partition {partition}")
        at = 0
        while at + 4 <= len(data):
            (size,) = struct.unpack_from(">i", data, at)
            message = data[at + 4 : at + 4 + size]
            head = 6 if message[0] else 5
            if zlib.crc32(message[head:]) != struct.unpack_from(">I", message, head - 4)[0]:
                raise ValueError("invalid message")
            at += 4 + size
        with self._lock:
            segments = self._segments(topic, partition)
            if not segments:
                (self._directory / f"{topic}-{partition}").mkdir(exist_ok=True)
            path = segments[-1][0] if segments else self._directory / f"{topic}-{partition}" / f"{0:020}.kafka"
            with path.open("ab") as file:
                file.write(data[:at])
            if topic not in self._topics:
                self._register(topic)

    def _offsets(self, request: "Request") -> list[int]:
        topic, partition = request.where()
        at, most = request.take(">q"), request.take(">i")
        if not 0 <= partition < self._counts.get(topic, 1):
            raise ValueError(f"wrong partition {partition}")
        segments = self._segments(topic, partition)
        if not segments:
            return [0] if at in (LATEST, EARLIEST) else []
        known = [(start, path.stat().st_mtime * 1000) for path, start in segments]
        size = segments[-1][0].stat().st_size
        if size:
            known.append((segments[-1][1] + size, time.time() * 1000))
        if at == EARLIEST:
            known = known[:1]
        elif at != LATEST:
            while known and known[-1][1] > at:
                known.pop()
        return [offset for offset, _ in reversed(known)][:most]

    def _segments(self, topic: str, partition: int) -> list[tuple[Path, int]]:
        found = (self._directory / f"{topic}-{partition}").glob("*.kafka")
        return sorted(((path, int(re.sub(r"\D", "", path.stem))) for path in found), key=lambda one: one[1])


class Request:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, shape: str) -> int:
        (value,) = struct.unpack_from(shape, self._data, self._at)
        self._at += struct.calcsize(shape)
        return int(value)

    def bytes(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def where(self) -> tuple[str, int]:
        topic = self.bytes(self.take(">h")).decode()
        return topic, self.take(">i")
