"""A broker with native logs of Kafka 0.7 is killed repeatedly under load: messages that a consumer has seen stay, and
no corrupt message is served.

`KAFKAPY_FAULT_ROUNDS=100 python -m pytest tests/interop/test_kafka_07_killed.py` is the full length.
"""

import os
import random
import sys
import threading
import time

from kafkapy.client.original.kafka_07.wire import Asked, Connection07
from kafkapy.record.compression import GZIP, compress
from kafkapy.record.kafka07 import build_message, iter_messages, messages_in
from tests.harness.brokers import Process, free_port
from tests.harness.waiting import eventually

ROUNDS = int(os.environ.get("KAFKAPY_FAULT_ROUNDS", "3"))
TOPIC = "killed"


def test_what_was_seen_survives_kills(tmp_path):
    rng = random.Random(3)
    port = free_port()
    settings = {"brokerid": 0, "port": port, "log.dir": tmp_path / "native", "enable.zookeeper": "false"}
    settings |= {"log.file.size": 200_000, "log.flush.interval": 20, "log.default.flush.scheduler.interval.ms": 100}
    file = tmp_path / "server-07.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [sys.executable, "-m", "kafkapy", "start", "-o", f"log.dirs={tmp_path / 'later'}"]
    command += ["-o", "listeners=PLAINTEXT://127.0.0.1:0", "-o", f"kafkapy.kafka07.properties={file}"]
    seen = bytearray()  # the flushed bytes from position 0 on that consumers have got
    for number in range(ROUNDS):
        broker = Process(command, tmp_path / f"broker-{number}.log")
        try:
            eventually(lambda: answers(port))
            found = bytearray()
            read(port, found)
            assert found.startswith(seen), f"round {number}: {len(seen)} bytes were seen, now there are {len(found)}"
            seen = found
            writers = [threading.Thread(target=write, args=(port, number, each)) for each in range(3)]
            for writer in writers:
                writer.start()
            until = time.monotonic() + rng.uniform(0.05, 0.6)
            while time.monotonic() < until:
                read(port, seen)
        finally:
            broker.kill()
        for writer in writers:
            writer.join()
    assert len(seen) > 200_000
    for message in iter_messages(seen):
        for inner in messages_in(message):
            assert inner.payload[:5] == b"round"


def answers(port):
    try:
        with_connection(port, lambda client: client.offsets_before(TOPIC, 0, -1, 1))
    except Exception:
        return False
    return True


def with_connection(port, work):
    client = Connection07("127.0.0.1", port, 10)
    try:
        return work(client)
    finally:
        client.close()


def read(port, known):
    """Append the bytes of the log after those in `known`."""
    client = Connection07("127.0.0.1", port, 10)
    try:
        (end,) = client.offsets_before(TOPIC, 0, -1, 1)
        while len(known) < end:
            ((code, data),) = client.fetch([Asked(TOPIC, 0, len(known), 1 << 20)])
            assert code == 0, f"error code {code} at {len(known)}"
            known += data
    finally:
        client.close()


def write(port, number, writer):
    """Send plain and compressed sets until the connection to the broker fails."""
    rng = random.Random(f"{number} {writer}")
    client = Connection07("127.0.0.1", port, 10)
    try:
        while True:
            payloads = [b"round %d" % number + rng.randbytes(rng.randrange(2000)) for _ in range(rng.randrange(1, 20))]
            data = b"".join(map(build_message, payloads))
            if rng.random() < 0.2:
                data = build_message(compress(GZIP, data), codec=GZIP)
            client.produce([(TOPIC, 0, data)], wait=rng.random() < 0.8)
    except Exception:
        return
    finally:
        client.close()
