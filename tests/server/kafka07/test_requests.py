"""The broker answers the five requests of Kafka 0.7 as Kafka 0.7.2 does."""

import os
import random
import shutil
import socket
import struct
import urllib.request

import pytest

from kafkapy.protocol.apis import METADATA
from kafkapy.protocol.headers import request_frame
from kafkapy.record.compression import GZIP, compress
from kafkapy.record.kafka07 import build_message, iter_messages, messages_in
from kafkapy.server.kafka07.requests import name_of_request_07
from tests.harness.golden_07 import GOLDEN_07, TOPICS_07, expected
from tests.harness.waiting import eventually
from tests.server import test_acls
from tests.server.requests import metrics_address

from .bench import (
    EARLIEST,
    LATEST,
    Broken,
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

ILLEGAL = ["", ".", "..", "a/b", "../escape", "a\0b", "a\x7f", "\uf000", "x" * 256, b"\xff\xfe"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    broker = {"kafkapy_decompressed_max_bytes": 1 << 20}
    served = Served(tmp_path_factory.mktemp("kafka07"), max_message_size=5000, broker=broker)
    yield served
    served.stop()


_names = iter(range(1_000_000))


@pytest.fixture
def topic():
    return f"topic-{next(_names)}"


def test_what_is_produced_is_fetched(shared, topic):
    data = messages(b"one", b"two")
    with shared.connect() as client:
        client.send(produce(data, topic))
        client.send(produce(data, topic))
        assert client.offsets(topic) == [2 * len(data), 0]
        assert client.ask(fetch(topic)) == (0, data + data)
        assert client.ask(fetch(topic, 0, len(data))) == (0, data)
    assert shared.stored(f"{topic}-0") == data + data


# --- no such log yet, a partition number beyond the count, an illegal topic name


def test_there_is_no_such_log_yet(shared, topic):
    with shared.connect() as client:
        assert client.ask(fetch(topic, 0, 77)) == (0, b"")
        assert client.ask(multi_fetch((topic, 0, 77, 10))) == (0, struct.pack(">ih", 2, 0))
        for time in (LATEST, EARLIEST):
            for most in (10, 0, -1):
                assert client.offsets(topic, 0, time, most) == [0]
        assert client.offsets(topic, 0, 1_700_000_000_000) == []
        assert not (shared.native / f"{topic}-0").exists()


@pytest.mark.parametrize("is_multi", [False, True])
def test_a_produce_creates_the_log_even_if_its_set_is_refused(shared, topic, is_multi):
    bad = messages(b"bad")[:-1] + b"x"
    with shared.connect() as client:
        client.send(multi_produce((topic, 0, bad)) if is_multi else produce(bad, topic))
        assert client.is_closed()
    assert shared.stored(f"{topic}-0") == b""
    assert (shared.native / f"{topic}-0" / f"{0:020}.kafka").exists()


@pytest.mark.parametrize(("name", "partition"), [("two", 2), ("two", -2), ("other", 1), ("other", 1 << 30)])
def test_a_partition_that_is_not_among_those_of_the_topic(shared, name, partition):
    data = messages(b"x")
    for frame in (produce(data, name, partition), multi_produce((name, partition, data)), offsets(name, partition)):
        with shared.connect() as client:
            client.send(frame)
            assert client.is_closed()
    with shared.connect() as client:
        assert client.ask(fetch(name, partition)) == (3, b"")
        assert client.ask(multi_fetch((name, partition, 0, 9))) == (0, struct.pack(">ih", 2, 3))
        assert client.ask(fetch(name, -1)) == (3, b"")
        client.send(offsets(name, -1))
        assert client.is_closed()
    assert not (shared.native / f"{name}-{partition}").exists()


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_topic(shared, name):
    data = messages(b"x")
    for frame in (produce(data, name), produce(data, name, -1), multi_produce((name, 0, data)), offsets(name)):
        with shared.connect() as client:
            client.send(frame)
            assert client.is_closed()
    with shared.connect() as client:
        assert client.ask(fetch(name)) == (-1, b"")
        assert client.ask(multi_fetch((name, 0, 0, 9))) == (0, struct.pack(">ih", 2, -1))
    assert not (shared.native.parent / "escape-0").exists()


def test_a_topic_that_is_too_long_for_a_file_name_closes_and_harms_nothing(shared, topic):
    for name in ("x" * 254, "ä" * 200):
        with shared.connect() as client:
            assert client.ask(fetch(name)) == (0, b"")
            client.send(produce(messages(b"x"), name))
            assert client.is_closed()
    with shared.connect() as client:  # the log directory is still online
        client.send(produce(messages(b"x"), topic))
        assert client.offsets(topic) == [11, 0]


# --- Produce


def test_a_message_that_is_too_large_drops_its_set_and_the_connection_stays(shared, topic, caplog):
    data = messages(b"fine")
    with shared.connect() as client:
        client.send(multi_produce((topic, 0, data), (topic, 0, data + messages(b"x" * 5001)), (topic, 0, data)))
        assert client.ask(fetch(topic)) == (0, data + data)
        client.send(produce(messages(b"x" * 5000), topic))
        assert client.offsets(topic) == [2 * len(data) + 5010, 0]
    line = f"a set for {topic}-0 is dropped: a message has a payload of 5001 bytes, 5000 are allowed"
    assert line in caplog.text


def test_another_fault_closes_the_connection_and_earlier_parts_stay(shared, topic, caplog):
    data = messages(b"fine")
    with shared.connect() as client:
        client.send(multi_produce((topic, 0, data), (topic, 0, data[:-1] + b"x"), (topic, 0, data)))
        assert client.is_closed()
    assert shared.stored(f"{topic}-0") == data
    assert "closing its connection: a CRC that is not that of the payload" in caplog.text


def test_a_multi_produce_that_cannot_be_decoded_appends_nothing(shared, topic):
    data = messages(b"fine")
    with shared.connect() as client:
        client.send(struct.pack(">hh", 3, 2) + one_set(topic, 0, data) + one_set(topic, 0, data)[:-1])
        assert client.is_closed()
    assert not (shared.native / f"{topic}-0").exists()


def test_a_message_that_the_end_of_its_set_cuts_off_is_dropped(shared, topic):
    data = messages(b"whole")
    with shared.connect() as client:
        client.send(produce(data + data[:-1], topic))
        client.send(produce(data + b"\0\0\0", topic))
        assert client.ask(fetch(topic)) == (0, data + data)
        client.send(produce(data[:-1], topic))
        assert client.is_closed()


def test_an_empty_set_creates_the_log(shared, topic):
    with shared.connect() as client:
        client.send(produce(b"", topic))
        client.send(produce(b"\0", topic))
        assert client.offsets(topic) == [0]
        assert client.ask(fetch(topic)) == (0, b"")
    assert (shared.native / f"{topic}-0").is_dir()


def test_partition_minus_one_is_any(shared):
    data = messages(b"any")
    with shared.connect() as client:
        for _ in range(30):
            client.send(produce(data, "two", -1))
        ends = [client.offsets("two", partition)[0] for partition in (0, 1)]
    assert sum(ends) == 30 * len(data)
    assert all(ends)


def test_compressed_messages_are_checked_inside_and_stored_as_sent(shared, topic):
    inner = messages(b"a", b"b")
    good = build_message(compress(GZIP, inner), codec=GZIP)
    with shared.connect() as client:
        client.send(produce(good, topic))
        assert client.ask(fetch(topic)) == (0, good)
    for bad in (
        build_message(compress(GZIP, inner[:-1] + b"x"), codec=GZIP),
        build_message(b"no gzip", codec=GZIP),
        build_message(b"", codec=3),
        build_message(compress(GZIP, bytes(2 << 20)), codec=GZIP),
        b"\0\0\0\7\2" + good[5:],
    ):
        with shared.connect() as client:
            client.send(produce(bad, topic))
            assert client.is_closed()
    assert shared.stored(f"{topic}-0") == good


# --- Fetch and Offsets


def test_where_a_fetch_may_begin_and_how_much_it_gets(shared, topic):
    data = messages(b"one", b"two")
    with shared.connect() as client:
        client.send(produce(data, topic))
        client.offsets(topic)
        assert client.ask(fetch(topic, 0, len(data))) == (0, b"")
        for offset in (-1, len(data) + 1, -(1 << 63), (1 << 63) - 1):
            assert client.ask(fetch(topic, 0, offset)) == (1, b"")
        assert client.ask(fetch(topic, 0, 3, 7)) == (0, data[3:10])
        assert client.ask(fetch(topic, 0, 0, 0)) == (0, b"")
        client.send(fetch(topic, 0, 0, -5))
        assert client.receive(6) == struct.pack(">ih", -3, 0)  # Kafka 0.7.2 answers with this negative size, too
        assert client.is_closed()


def test_a_multi_fetch_has_a_size_and_a_code_for_each_part(shared, topic):
    data = messages(b"one", b"two")
    with shared.connect() as client:
        client.send(produce(data, topic))
        client.offsets(topic)
        parts = [(topic, 0, 0, 9), (topic, 1, 0, 9), (topic, 0, 99, 9), (topic, 0, 3, 1000)]
        code, found = client.ask(multi_fetch(*parts))
        assert code == 0
        assert found == b"".join(
            struct.pack(">ih", 2 + len(part), code) + part
            for code, part in ((0, data[:9]), (3, b""), (1, b""), (0, data[3:]))
        )
        assert client.ask(multi_fetch()) == (0, b"")


def test_a_multi_fetch_of_as_many_parts_as_there_can_be(shared, topic):
    data = messages(b"x" * 4000)
    with shared.connect() as client:
        client.send(produce(data, topic))
        client.offsets(topic)
        code, found = client.ask(multi_fetch(*[(topic, 0, 0, 20)] * 32767))
        assert (code, len(found)) == (0, 32767 * 26)
        assert found[-26:] == struct.pack(">ih", 22, 0) + data[:20]


def test_a_response_that_is_larger_than_its_size_field_closes(tmp_path, caplog):
    served = Served(tmp_path, max_message_size=1 << 20)
    with served.connect() as client:
        client.send(produce(messages(b"x" * 100_000)))
        client.offsets()
        client.send(multi_fetch(*[("t", 0, 0, 1 << 20)] * 32767))
        assert client.is_closed()
    served.stop()
    assert "more than an int32 can say" in caplog.text


def test_offsets_by_time_and_of_a_negative_number(shared, topic):
    with shared.connect() as client:
        client.send(produce(messages(b"x"), topic))
        assert client.offsets(topic, most=1) == [11]
        assert client.offsets(topic, most=0) == []
        os.utime(shared.native / f"{topic}-0" / f"{0:020}.kafka", (1_000_000, 1_000_000))
        assert client.offsets(topic, time=1_000_000_000) == [0]
        assert client.offsets(topic, time=999_999_999) == []
        client.send(offsets(topic, most=-1))
        assert client.is_closed()


def test_golden_logs_are_served_as_the_consumer_of_0_7_2_read_them(tmp_path):
    shutil.copytree(GOLDEN_07 / "data", tmp_path / "native")
    served = Served(tmp_path)
    with served.connect() as client:
        for topic in TOPICS_07:
            offset, found, data = 0, [], b""
            while chunk := client.ask(fetch(topic, 0, offset, 2000))[1]:
                end = 0
                for message in iter_messages(chunk):
                    end = message.end
                    for inner in messages_in(message):
                        found.append((offset + message.position, offset + end, bytes(inner.payload)))
                data += chunk[:end]
                offset += end
            assert found == expected(f"{topic}-0")
            assert data == served.stored(f"{topic}-0")
    served.stop()


# --- bad input


BAD = [
    b"",
    b"\0",
    struct.pack(">h", 5),
    struct.pack(">h", -1),
    struct.pack(">h", 0),
    struct.pack(">hh", 3, -1),
    struct.pack(">hh", 2, -1),
    struct.pack(">hh", 2, 3) + fetch()[2:],
    struct.pack(">hhiqi", 1, -1, 0, 0, 10),
    struct.pack(">hhiqi", 4, -1, 0, 0, 10),
    fetch()[:-1],
    offsets()[:-1],
    produce(b"")[:-4] + struct.pack(">i", -1),
    produce(b"")[:-4] + struct.pack(">i", 1),
    produce(b"")[:-4] + struct.pack(">i", 2**31 - 1),
    produce(b"\0\0\0\0"),
    produce(b"\xff\xff\xff\xff"),
    produce(b"\0\0\0\4abcd"),
    produce(b"\0\0\0\5\1abcd"),
]


@pytest.mark.parametrize("frame", BAD)
def test_bad_requests_close_the_connection_with_one_line(shared, frame, caplog):
    with shared.connect() as client:
        client.send(frame)
        assert client.is_closed()
    assert len([record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]) == 1
    with shared.connect() as client:
        assert client.offsets("nothing") == [0]


def test_lines_about_bad_requests_are_limited(tmp_path, caplog):
    served = Served(tmp_path, limit=(3, 20))
    with served.connect() as client:
        for _ in range(100):
            client.ask(fetch("t", 7))
    served.stop()
    lines = [record for record in caplog.records if "partition 7 of topic t, which has 1" in record.message]
    assert 3 <= len(lines) < 100


@pytest.mark.parametrize("size", [-1, 2**31 - 1, 200 << 20])
def test_frames_of_impossible_sizes_close_the_connection(shared, size):
    with shared.connect() as client:
        client.sock.sendall(struct.pack(">i", size))
        assert client.is_closed()


def test_a_request_larger_than_the_limit_closes_the_connection(tmp_path):
    served = Served(tmp_path, max_socket_request_bytes=1000)
    with served.connect() as client:
        client.send(produce(messages(b"x" * 900)))
        assert client.offsets() == [910, 0]
        client.send(produce(messages(b"x" * 1000)))
        assert client.is_closed()
    served.stop()


def test_random_changes_of_requests_lose_nothing_that_is_stored(shared, topic):
    rng = random.Random(7)
    data = messages(b"kept")
    bases = [
        produce(data, topic),
        multi_produce((topic, 0, data), (topic, 0, data)),
        fetch(topic),
        multi_fetch((topic, 0, 0, 20), (topic, 0, 5, 20)),
        offsets(topic),
        produce(build_message(compress(GZIP, data + data), codec=GZIP), topic),
    ]
    with shared.connect() as client:
        client.send(produce(data, topic))
        client.offsets(topic)
    for _ in range(400):
        frame = bytearray(rng.choice(bases))
        for _ in range(rng.randint(1, 4)):
            frame[rng.randrange(len(frame))] = rng.choice((0, 1, 2, 127, 128, 255, rng.randrange(256)))
        if rng.random() < 0.2:
            frame = frame[: rng.randrange(len(frame))]
        with shared.connect() as client:
            client.send(frame)
            client.sock.shutdown(socket.SHUT_WR)
            client.sock.settimeout(10)
            while client.sock.recv(1 << 16):
                pass
    with shared.connect() as client:  # a disk thread may still be flushing the last append
        eventually(lambda: client.offsets(topic)[0] == len(shared.stored(f"{topic}-0")))
    stored = shared.stored(f"{topic}-0")
    assert stored.startswith(data)
    assert sum(message.size for message in iter_messages(stored) if list(messages_in(message))) == len(stored)


# --- clients on the listener of the other protocol


def test_a_client_of_later_kafka_on_this_listener_is_named(shared, caplog):
    with shared.connect() as client:
        client.send(struct.pack(">hhih", 18, 3, 1, -1))
        assert client.is_closed()
    assert "Kafka 0.7 has no request type 18: perhaps a client of Kafka 0.8 or later" in caplog.text


OF_07 = {
    "Fetch": fetch("orders"),
    "MultiFetch": multi_fetch(("orders", 0, 0, 10)),
    "Produce": produce(messages(b"x"), "orders"),
    "MultiProduce": multi_produce(("orders", 0, messages(b"x"))),
    "Offsets": offsets("orders"),
}


@pytest.mark.parametrize("name", OF_07)
def test_requests_of_0_7_are_recognized(name):
    frame = OF_07[name]
    assert name_of_request_07(memoryview(frame)) == name
    for other in (frame + b"x", frame[:-1], b"", request_frame(METADATA, 12, 1, "c", METADATA.Request(topics=[]))[4:]):
        assert name_of_request_07(memoryview(other)) is None


def test_a_client_of_0_7_on_another_listener_is_told_the_setting(tmp_path, caplog):
    served = Served(tmp_path)
    with Raw(int(served.server.listeners[0].rpartition(":")[2])) as client:
        client.send(OF_07["Fetch"])
        assert client.is_closed()
    served.stop()
    assert "Fetch is a request of Kafka 0.7, whose clients need the listener of kafkapy.kafka07.prop" in caplog.text


# --- permissions


class Deny:
    generation = 0

    def __init__(self):
        self.asked = []

    def denied(self, call, actions, *, logged=True, grants=True):
        self.asked += [(call.connection.principal, *action) for action in actions]
        return list(actions)

    def allowed_on_some(self, call, operation, resource_type):
        return False


def test_clients_are_anonymous_and_need_permissions(tmp_path, caplog):
    served = Served(tmp_path)
    served.server.services.authorizer = deny = Deny()
    with served.connect() as client:
        assert client.ask(fetch()) == (-1, b"")
    for frame in (produce(messages(b"x")), offsets()):
        with served.connect() as client:
            client.send(frame)
            assert client.is_closed()
    who = "User:ANONYMOUS"
    assert deny.asked == [(who, "READ", "TOPIC", "t"), (who, "WRITE", "TOPIC", "t"), (who, "DESCRIBE", "TOPIC", "t")]
    assert "User:ANONYMOUS may not do WRITE on topic t" in caplog.text
    served.server.services.authorizer = None
    served.stop()
    assert not (served.native / "t-0").exists()


# --- flushes, and disks that fail


def test_only_what_is_flushed_is_shown(tmp_path):
    served = Served(tmp_path, log_flush_interval=3, log_default_flush_scheduler_interval_ms=50)
    data = messages(b"m")
    with served.connect() as client:
        for _ in range(3):
            client.send(produce(data))
        assert client.offsets() == [3 * len(data), 0]
        client.send(produce(data))
        assert client.offsets()[-1] == 0
        eventually(lambda: client.offsets()[0] == 4 * len(data))
    served.stop()


def test_a_failed_directory_is_not_used_and_the_rest_of_the_broker_is(tmp_path, caplog):
    files = Broken()
    served = Served(tmp_path, files=files)
    with served.connect() as client:
        client.send(produce(messages(b"kept")))
        assert client.offsets() == [14, 0]
    files.broken = True
    with served.connect() as client:
        client.send(produce(messages(b"lost")))
        assert client.is_closed()
    with served.connect() as client:
        assert client.ask(fetch()) == (-1, b"")
        client.send(offsets())
        assert client.is_closed()
    assert "topics of Kafka 0.7 are not served any more" in caplog.text
    assert all(error is None for _, error in served.server.services.log_manager.directories())
    served.stop()
    assert not (served.native / ".kafka_cleanshutdown").exists()


def test_a_file_that_is_not_open_is_opened_by_a_pool(tmp_path):
    served = Served(tmp_path, log_file_size=5)
    with served.connect() as client:
        data = messages(b"one")
        for _ in range(3):
            client.send(produce(data))
        assert client.offsets() == [39, 26, 13, 0]
        served.server._kafka07.directory.env.files.open_files.shed()
        served.server._kafka07.directory.env.files.open_files.shed()
        assert client.ask(fetch()) == (0, data)  # opens the file of the first segment
        parts = [("t", 0, offset, 100) for offset in (0, 13, 26)]
        assert client.ask(multi_fetch(*parts)) == (0, (struct.pack(">ih", 15, 0) + data) * 3)
        assert served.server._kafka07.directory.get("t", 0).bytes_out == 4 * len(data)
    served.stop()


def test_an_idle_connection_is_not_closed(tmp_path):
    served = Served(tmp_path, broker={"connections_max_idle_ms": 200})
    later = int(served.server.listeners[0].rpartition(":")[2])
    with served.connect() as client, Raw(later) as other:
        assert client.offsets() == [0]
        assert other.is_closed()  # by now the idle time of `client` is over, too
        assert client.offsets() == [0]
    served.stop()


def test_acls_decide_what_clients_may_do(tmp_path):
    given = {"authorizer_class_name": test_acls.AUTHORIZER, "super_users": test_acls.ADMIN}
    served = Served(tmp_path, broker=given)
    data = messages(b"x")
    with test_acls.wire_of(served.server, test_acls.ADMIN) as admin, served.connect() as client:
        assert client.ask(fetch()) == (-1, b"")
        rules = [
            test_acls.creation(name="t", principal="User:ANONYMOUS", operation=operation)
            for operation in ("WRITE", "READ")  # each implies DESCRIBE
        ]
        test_acls.create(admin, *rules)
        client.send(produce(data))
        assert client.offsets() == [len(data), 0]
        assert client.ask(fetch()) == (0, data)
        client.send(produce(data, "other"))
        assert client.is_closed()
    served.stop()
    assert not (served.native / "other-0").exists()


def test_what_happens_is_counted(tmp_path):
    served = Served(tmp_path, broker={"kafkapy_metrics_listen": "127.0.0.1:0"})
    data = messages(b"one", b"two")
    with served.connect() as client:
        client.send(multi_produce(("two", 0, data), ("two", 1, data)))
        client.ask(fetch("two", 0, 0, 10))
        client.ask(fetch("two", 7))
        client.offsets("two")
    with urllib.request.urlopen(f"http://{metrics_address(served.server)}/metrics") as answer:
        page = answer.read().decode()
    served.stop()
    for line in (
        'requests_total{request="MultiProduce"} 1',
        'requests_total{request="Fetch"} 2',
        'failed_requests_total{request="Fetch"} 1',
        'messages_in_total{topic="two"} 4',
        f'bytes_in_total{{topic="two"}} {2 * len(data)}',
        'bytes_out_total{topic="two"} 10',
        f'log_size_bytes{{partition="1",topic="two"}} {len(data)}',
        "log_directory_failed 0",
    ):
        assert f"\nkafkapy_kafka07_{line}\n" in page.replace(".0\n", "\n")


def test_a_log_with_a_gap_is_offline_and_the_others_are_served(tmp_path):
    data = messages(b"x")
    for name, start in (("t-0", 0), ("t-0", 99), ("two-0", 0)):
        path = tmp_path / "native" / name / f"{start:020}.kafka"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    served = Served(tmp_path)
    with served.connect() as client:
        assert client.ask(fetch()) == (-1, b"")
        assert client.ask(fetch("two")) == (0, data)
    for frame in (produce(data), offsets()):
        with served.connect() as client:
            client.send(frame)
            assert client.is_closed()
    served.stop()


def test_native_logs_count_among_the_open_files(tmp_path):
    served = Served(tmp_path, broker={"kafkapy_log_max_open_files": 3})
    data = messages(b"x")
    with served.connect() as client:
        for _ in range(2):
            for number in range(8):
                client.send(produce(data, f"topic-{number}"))
        assert client.ask(fetch("topic-0")) == (0, data + data)
        assert client.offsets("topic-7") == [2 * len(data), 0]
    assert served.server.services.log_manager.open_files <= 3
    served.stop()
