"""A broker with the listener of Kafka 0.7, and raw requests to it."""

import socket
import struct

from kafkapy.log.storage.files import Files
from kafkapy.record.kafka07 import build_message
from kafkapy.runtime.line_limit import LineLimit
from tests.server.requests import start_broker

PRODUCE, FETCH, MULTI_FETCH, MULTI_PRODUCE, OFFSETS = range(5)
LATEST, EARLIEST = -1, -2


class Broken(Files):
    """Files whose syncs fail below a path with "native" in it, once `broken` is True."""

    broken = False

    def sync(self, file):
        if self.broken and "native" in str(file.path):
            raise OSError(5, "Input/output error")
        super().sync(file)


class Served:
    """A broker whose native logs are in `directory`/native. `settings` are those of 0.7, with underscores for dots.
    `limit` is how many log lines a second it writes about bad requests: (of one client, of all clients)."""

    def __init__(self, directory, *, files=None, broker=None, limit=(10_000, 10_000), **settings):
        self.native = directory / "native"
        given = {
            "brokerid": "0",
            "port": "0",
            "log.dir": str(self.native),
            "enable.zookeeper": "false",
            "log.flush.interval": "1",
            "topic.partition.count.map": "two:2",
            **{name.replace("_", "."): str(value) for name, value in settings.items()},
        }
        self.file = directory / "server-07.properties"
        self.file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        self.server = start_broker(
            directory / "later", files=files or Files(), kafkapy_kafka07_properties=self.file, **(broker or {})
        )
        self.port = self.server._network._sockets[-1][1].getsockname()[1]
        for processor in self.server._network._processors:
            processor.lines = LineLimit(processor._clock, *limit)

    def connect(self):
        return Raw(self.port)

    def stored(self, partition="t-0"):
        return b"".join(path.read_bytes() for path in sorted((self.native / partition).glob("*.kafka")))

    def stop(self):
        self.server.stop()


class Raw:
    """A connection to the 0.7 listener, which sends any bytes."""

    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), 10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, frame):
        self.sock.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self, size):
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise EOFError(data)
            data += more
        return data

    def ask(self, frame):
        """Send a request, and return the error code of the response and what follows it."""
        self.send(frame)
        size, code = struct.unpack(">ih", self.receive(6))
        return code, self.receive(size - 2)

    def offsets(self, topic="t", partition=0, time=LATEST, most=10):
        code, data = self.ask(offsets(topic, partition, time, most))
        assert code == 0
        (count,) = struct.unpack_from(">i", data)
        return list(struct.unpack(f">{count}q", data[4:]))

    def is_closed(self):
        """Return True if the broker closes the connection without an answer."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True


def where(topic, partition):
    name = topic if isinstance(topic, bytes) else topic.encode()
    return struct.pack(">h", len(name)) + name + struct.pack(">i", partition)


def one_set(topic, partition, data):
    return where(topic, partition) + struct.pack(">i", len(data)) + data


def one_fetch(topic="t", partition=0, offset=0, size=1000):
    return where(topic, partition) + struct.pack(">qi", offset, size)


def produce(data, topic="t", partition=0):
    return struct.pack(">h", PRODUCE) + one_set(topic, partition, data)


def multi_produce(*sets):
    return struct.pack(">hh", MULTI_PRODUCE, len(sets)) + b"".join(one_set(*one) for one in sets)


def fetch(*args, **named):
    return struct.pack(">h", FETCH) + one_fetch(*args, **named)


def multi_fetch(*parts):
    return struct.pack(">hh", MULTI_FETCH, len(parts)) + b"".join(one_fetch(*part) for part in parts)


def offsets(topic="t", partition=0, time=LATEST, most=10):
    return struct.pack(">h", OFFSETS) + where(topic, partition) + struct.pack(">qi", time, most)


def messages(*payloads):
    return b"".join(map(build_message, payloads))
