"""Kafka 0.7.2 and kafkapy answer the same requests alike, and leave the same files.

KAFKAPY_KAFKA_07 is the class path of a Kafka 0.7.2 built from source: see tests.harness.broker_07.
"""

import os
import struct

import pytest

from kafkapy.record.compression import GZIP, SNAPPY, compress
from kafkapy.record.kafka07 import build_message
from tests.harness import toolchain
from tests.harness.broker_07 import REAL
from tests.harness.brokers import LOG4J, Process, free_port
from tests.harness.waiting import eventually

from .bench import (
    EARLIEST,
    Raw,
    Served,
    fetch,
    messages,
    multi_fetch,
    multi_produce,
    offsets,
    one_set,
    produce,
)
from .test_requests import BAD, ILLEGAL

pytestmark = pytest.mark.skipif(not REAL, reason="KAFKAPY_KAFKA_07 names no Kafka 0.7.2")

SETTINGS = {"max_message_size": 5000, "log_file_size": 400}


class Kafka:
    """Kafka 0.7.2, started with the settings file of a `Served`."""

    def __init__(self, directory, served, native=None):
        self.native = native or directory / "native"
        directory.mkdir()
        self.port = free_port()
        lines = served.file.read_text().splitlines()
        lines = [line for line in lines if not line.startswith(("port=", "log.dir="))]
        properties = directory / "server.properties"
        properties.write_text("\n".join([*lines, f"port={self.port}", f"log.dir={self.native}", ""]))
        (directory / "log4j").write_text(LOG4J)
        java = [toolchain.find("java"), "-Xmx128m", "-XX:TieredStopAtLevel=1"]
        command = [*java, f"-Dlog4j.configuration=file:{directory}/log4j", "-cp", REAL, "kafka.Kafka", str(properties)]
        self.process = Process(command, directory / "out.log")
        eventually(self.answers, seconds=30)

    def answers(self):
        try:
            with Raw(self.port) as client:
                return client.ask(fetch("nothing")) == (0, b"")
        except (OSError, EOFError):
            return False

    def stored(self, partition):
        return {path.name: path.read_bytes() for path in sorted((self.native / partition).glob("*.kafka"))}

    def stop(self):
        self.process.stop()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    directory = tmp_path_factory.mktemp("both")
    served = Served(directory, **SETTINGS)
    kafka = Kafka(directory / "kafka", served)
    yield served, kafka
    kafka.stop()
    served.stop()


def outcome(port, frames):
    """Send frames on one connection and return their responses; "closed" is the last if the broker closed it. A Produce
    has no response, so a Fetch is sent behind each Produce, and its response is taken instead."""
    found = []
    with Raw(port) as client:
        for frame in frames:
            try:
                client.send(frame)
                if frame[1:2] in (b"\0", b"\3"):
                    client.send(fetch("nothing"))
                answer = client.receive(6)
                size = int.from_bytes(answer[:4], "big")
                found.append(answer + client.receive(max(size - 2, 0)))
            except (ConnectionError, EOFError):
                return [*found, "closed"]
    return found


ONE = messages(b"one")
PACKED = build_message(compress(GZIP, ONE + ONE), codec=GZIP)
DEEP = build_message(compress(SNAPPY, PACKED + ONE), codec=SNAPPY)
CRC = ONE[:-1] + b"x"
LARGE = messages(b"x" * 5001)
FILLED = [produce(messages(b"x" * 150)) for _ in range(5)]

CASES = {
    "no such log": [
        fetch(), fetch(offset=9), multi_fetch(("t", 0, 3, 9)), offsets(), offsets(time=EARLIEST), offsets(time=5),
        offsets(most=0), offsets(most=-1),
    ],
    "produce": [produce(ONE), produce(ONE + ONE), fetch(), offsets()],
    "multi-produce": [multi_produce(("t", 0, ONE), ("two", 1, ONE)), fetch(), fetch("two", 1), fetch("two", 0)],
    "an empty set": [produce(b""), fetch(), offsets(), produce(b"\0\0\0"), offsets()],
    "cut off at the end": [produce(ONE + ONE[:-1]), produce(ONE + b"\0"), fetch(), offsets()],
    "cut off at once": [produce(ONE[:-1])],
    "a wrong CRC": [produce(CRC), fetch()],
    "a wrong CRC later": [multi_produce(("t", 0, ONE), ("t", 0, ONE + CRC), ("t", 0, ONE))],
    "too large": [produce(ONE + LARGE), multi_produce(("t", 0, LARGE), ("t", 0, ONE)), fetch(), offsets()],
    "too large before a wrong CRC": [produce(LARGE + CRC), offsets()],
    "a wrong CRC before too large": [produce(CRC + LARGE)],
    "compressed": [produce(PACKED + ONE), produce(DEEP), fetch(), offsets()],
    "an empty compressed set": [produce(build_message(compress(GZIP, b""), codec=GZIP)), fetch()],
    "a wrong CRC inside": [produce(build_message(compress(GZIP, ONE + CRC), codec=GZIP))],
    "not gzip": [produce(build_message(b"not gzip", codec=GZIP))],
    "codec 3": [produce(build_message(b"", codec=3))],
    "magic 2": [produce(b"\0\0\0\6\2\0\0\0\0\0")],
    "too short": [produce(b"\0\0\0\4\0\0\0\0")],
    "a negative length": [produce(ONE + b"\xff\xff\xff\xff")],
    "magic 0": [produce(build_message(b"old", magic=0)), fetch()],
    "a second part that is cut off": [struct.pack(">hh", 3, 2) + one_set("t", 0, ONE) + one_set("t", 0, ONE)[:-1]],
    "partitions": [fetch("t", 1), fetch("t", -1), multi_fetch(("t", 1, 0, 9), ("t", 0, 0, 9)), offsets("t", 1)],
    "produce to a partition that is not there": [produce(ONE, "t", 1)],
    "produce to partition -2": [produce(ONE, "t", -2)],
    "produce to any partition": [produce(ONE, "t", -1), fetch()],
    "offsets of partition -1": [offsets("t", -1)],
    "where a fetch begins": [
        produce(ONE + ONE), *(fetch(offset=at) for at in (0, 1, 13, 26, 27, -1)), fetch(size=5), fetch(size=0),
        fetch(offset=3, size=4), fetch(offset=26, size=0),
    ],
    "segments": [
        *FILLED, *(fetch(offset=at) for at in (0, 100, 479, 480, 640, 799, 800, 801)),
        multi_fetch(("t", 0, 0, 1000), ("t", 0, 480, 1000), ("t", 0, 5, 5), ("t", 0, 999, 1)),
        offsets(), offsets(most=1), offsets(most=2), offsets(time=EARLIEST), offsets(time=1 << 50), offsets(time=1000),
    ],
    "a negative size": [produce(ONE), fetch(size=-1)],
    "a negative size among others": [produce(ONE), multi_fetch(("t", 0, 0, 9), ("t", 0, 0, -9), ("t", 0, 0, 9))],
    "a longer request": [fetch() + b"more", offsets() + b"more", produce(ONE) + b"more", fetch()],
    "no name": [struct.pack(">hhiqi", 1, -1, 0, 0, 10)],
}  # fmt: skip
CASES |= {f"illegal topic {name!r:.20}: fetch": [fetch(name), multi_fetch((name, 0, 0, 9))] for name in ILLEGAL}
CASES |= {f"illegal topic {name!r:.20}: produce": [produce(ONE, name)] for name in ILLEGAL}
CASES |= {f"illegal topic {name!r:.20}: offsets": [offsets(name)] for name in ILLEGAL}
CASES |= {f"bad {number}": [frame] for number, frame in enumerate(BAD)}


@pytest.mark.parametrize("name", CASES)
def test_the_answers_are_the_same(both, name):
    served, kafka = both
    topic = f"t{list(CASES).index(name)}".encode()
    own = struct.pack(">h", len(topic)) + topic
    frames = [frame.replace(b"\0\1t", own) for frame in CASES[name]]
    assert outcome(served.port, frames) == outcome(kafka.port, frames)
    partition = f"{topic.decode()}-0"
    ours = {path.name: path.read_bytes() for path in sorted((served.native / partition).glob("*.kafka"))}
    assert ours == kafka.stored(partition)
    names = [sorted(os.listdir(one.native)) for one in both]
    assert set(names[0]) - {".lock"} == set(names[1])


def test_each_serves_what_the_other_has_written(tmp_path):
    served = Served(tmp_path, **SETTINGS)
    kafka = Kafka(tmp_path / "kafka", served)
    expected = []
    for one in (served, kafka):
        with Raw(one.port) as client:
            for frame in [*FILLED, produce(PACKED), produce(DEEP, "two", 1)]:
                client.send(frame)
                client.offsets()
            expected.append(all_of(client))
        one.stop()
    assert expected[0] == expected[1]
    served.native.rename(tmp_path / "ours")
    kafka.native.rename(served.native)
    served = Served(tmp_path, **SETTINGS)
    again = tmp_path / "again"
    again.mkdir()
    kafka = Kafka(again / "kafka", served, native=tmp_path / "ours")
    for one in (served, kafka):
        with Raw(one.port) as client:
            assert all_of(client) == expected[0]
        one.stop()


def all_of(client):
    answers = [client.ask(fetch(offset=at)) for at in (0, 480, 800)]
    return [*answers, client.ask(fetch("two", 1)), client.offsets(), client.offsets("two", 1)]
