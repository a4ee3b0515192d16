"""While a disk stalls, only clients that read from it wait."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy._ext import residency
from tests.harness.brokers import KafkapyBroker
from tests.harness.raw import FETCH, LIST_OFFSETS, Connection, array, frame, string, values
from tests.harness.raw_sets import OldConnection
from tests.harness.slow_disk import SlowDisk, slow_disk

pytestmark = pytest.mark.not_quick

SETTINGS = {"log.segment.bytes": "4194304", "log.index.size.max.bytes": "65536", "kafkapy.read.threads.per.disk": "2"}
BATCH = 50_000
COUNT = 250  # batches of one record, which fill a little more than three segments
NOW = 1_800_000_000_000  # timestamp of every record of harness.raw
PLENTY = 64 << 20


def value(number: int) -> bytes:
    return b"%8d" % number + bytes([number % 251]) * (BATCH - 8)


class Client(Connection):
    """A connection that can send a request now and receive the response later."""

    def ask_records(self, topic: str, partition: int, offset: int, *, wait_ms: int = 0, most: int = PLENTY) -> None:
        one = struct.pack(">iqi", partition, offset, most)
        body = struct.pack(">iiiib", -1, wait_ms, 1, PLENTY, 0) + array([string(topic) + array([one])])
        self.send(frame(FETCH, 4, body))

    def records(self, topic: str) -> bytes:
        """Receive the fetch response. Return the records of its only partition."""
        answer = self.answer()
        at = 4 + 4 + 2 + len(topic.encode()) + 4
        _, code, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
        assert code == 0
        at += 26 + 16 * max(aborted, 0) + 4
        return answer[at:]


def offsets_in(records: bytes) -> Iterator[int]:
    """Yield the base offsets of the complete batches. Check that each batch has the right value."""
    at = 0
    while at + 12 <= len(records):
        offset, size = struct.unpack_from(">qi", records, at)
        if at + 12 + size > len(records):
            break
        assert value(offset) in records[at : at + 12 + size]
        yield offset
        at += 12 + size


def read_all(client: Client, topic: str, partition: int, offset: int, end: int) -> None:
    """Read from `offset` to `end` and check each record. The first fetch must have been sent already."""
    while True:
        for found in offsets_in(client.records(topic)):
            assert found == offset
            offset += 1
        if offset >= end:
            return
        client.ask_records(topic, partition, offset)


class Bystanders:
    """Producers and consumers at the end of the log, so many that every network thread has some of each."""

    def __init__(self, bootstrap: str, places: list[tuple[str, int]]) -> None:
        self.places = places
        self.producers = [Client(bootstrap) for _ in range(4)]
        self.consumers = [Client(bootstrap) for _ in range(4)]

    def write_again(self) -> None:
        """Let each producer send a record. Check that it is acknowledged and that a waiting consumer gets it."""
        for round in range(5):
            for producer, consumer in zip(self.producers, self.consumers, strict=True):
                topic, partition = self.places[round % len(self.places)]
                code, end = producer.end_offset(topic, partition)
                assert code == 0
                consumer.ask_records(topic, partition, end, wait_ms=20_000)
                assert producer.produce(topic, partition, values(value(end)), version=7) == (0, end)
                assert list(offsets_in(consumer.records(topic))) == [end]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SlowDisk]:
    with slow_disk(tmp_path / "slow") as mounted:
        yield mounted


@pytest.fixture(params=[1, 3], ids=["one network thread", "three"])
def broker(request: pytest.FixtureRequest, disk: SlowDisk, tmp_path: Path) -> Iterator[KafkapyBroker]:
    """Start a broker with a log directory on the slow disk and one on a normal disk, which has the metadata."""
    directories = f"{tmp_path / 'fast'},{disk.path}"
    settings = {**SETTINGS, "log.dirs": directories, "num.network.threads": str(request.param)}
    running = KafkapyBroker(tmp_path, settings, prefix=disk.prefix)
    yield running
    if running.process.child.poll() is None:
        disk.release()
        running.stop()


@pytest.fixture
def slow(broker: KafkapyBroker, disk: SlowDisk) -> int:
    """Fill the two partitions of topic `old` and drop their pages. Return the partition that is on the slow disk."""
    with Client(broker.bootstrap) as client:
        assert client.create_topic("old", 2) == 0
        for partition in range(2):
            client.wait_until_served("old", partition)
        (found,) = (int(path.name.rpartition("-")[2]) for path in disk.source.glob("old-*"))
        for partition in range(2):
            for number in range(COUNT):
                assert client.produce("old", partition, values(value(number)), version=7) == (0, number)
    disk.forget(f"old-{found}/")
    return found


def ask_for_the_beginning(client: Client, partition: int) -> None:
    client.ask_records("old", partition, 0)


def ask_for_a_place(client: Client, partition: int) -> None:
    """Send a fetch of an offset whose position has to be looked up in an index."""
    client.ask_records("old", partition, 120)


def ask_for_a_time(client: Client, partition: int) -> None:
    one = struct.pack(">iq", partition, NOW)
    client.send(frame(LIST_OFFSETS, 1, struct.pack(">i", -1) + array([string("old") + array([one])])))


def ask_for_an_old_format(client: Client, partition: int) -> None:
    body = OldConnection.fetch_body(client, "old", 0, version=1, partition=partition, max_bytes=PLENTY)  # type: ignore[arg-type]
    client.send(frame(FETCH, 1, body))


@pytest.mark.parametrize("ask", [ask_for_the_beginning, ask_for_a_place, ask_for_a_time, ask_for_an_old_format])
def test_only_clients_that_read_from_a_stalled_disk_wait(broker: KafkapyBroker, disk: SlowDisk, slow: int, ask) -> None:
    bystanders = Bystanders(broker.bootstrap, [("old", 1 - slow), ("old", slow)])
    bystanders.write_again()  # so that the last page of each log is in memory
    disk.hold(f"old-{slow}/")
    readers = [Client(broker.bootstrap) for _ in range(6)]  # more than the disk's read threads
    for reader in readers:
        ask(reader, slow)
    disk.wait_until_held()
    bystanders.write_again()
    with Client(broker.bootstrap) as other:
        assert other.create_topic("new", 4) == 0  # other disk work has its own threads
        other.ask_records("old", 1 - slow, 0)
        read_all(other, "old", 1 - slow, 0, COUNT)
    readers.pop().socket.close()
    bystanders.write_again()
    disk.release()
    for reader in readers:
        if ask is ask_for_the_beginning:
            read_all(reader, "old", slow, 0, COUNT)
        elif ask is ask_for_a_place:
            read_all(reader, "old", slow, 120, COUNT)
        elif ask is ask_for_a_time:
            assert struct.unpack_from(">hqq", reader.answer(), 4 + 2 + 3 + 4 + 4) == (0, NOW, 0)
        else:
            answer = reader.answer()
            assert all(value(number) in answer for number in range(80))  # the first segment


def test_a_disk_that_stalls_in_the_middle_of_a_response_delays_only_that_response(
    broker: KafkapyBroker, disk: SlowDisk, slow: int
) -> None:
    bystanders = Bystanders(broker.bootstrap, [("old", 1 - slow)])
    with Client(broker.bootstrap) as reader:
        reader.ask_records("old", slow, 0)
        first = reader._read(1 << 20)
        (size,) = struct.unpack_from(">i", first)
        # The sockets have a part of the response, and the broker has read ahead, but not to its end. The next reads may
        # reach the disk at once and occupy every read thread, so count them from here on.
        held = len(disk.held)
        disk.hold(f"old-{slow}/")
        reader.ask_records("old", slow, 200)
        with Client(broker.bootstrap) as other:
            other.ask_records("old", slow, 200)
            disk.wait_until_held(held + 1)
            bystanders.write_again()
        disk.release()
        records = first[4:] + reader._read(size + 4 - len(first))
        assert list(offsets_in(records[4 + 4 + 4 + 2 + 3 + 4 + 26 + 4 :]))[:20] == list(range(20))
        read_all(reader, "old", slow, 200, COUNT)


def test_reads_of_evicted_pages_are_correct_while_others_read_and_write(tmp_path: Path) -> None:
    """This test uses a real disk and the real page cache."""
    broker = KafkapyBroker(tmp_path, SETTINGS)
    try:
        with Client(broker.bootstrap) as client:
            assert client.create_topic("old") == 0
            for number in range(COUNT):
                assert client.produce("old", 0, values(value(number)), version=7) == (0, number)
            bystanders = Bystanders(broker.bootstrap, [("old", 0)])
            for rounds in range(3):
                end = COUNT + 20 * rounds
                for path in sorted((broker.data / "old-0").glob("*.*")):
                    evict(path)
                readers = [Client(broker.bootstrap) for _ in range(3)]
                for reader in readers:
                    reader.ask_records("old", 0, 0, most=1 << 20)
                bystanders.write_again()
                for reader in readers:
                    read_all(reader, "old", 0, 0, end + 20)
    finally:
        broker.stop()


def evict(path: Path) -> None:
    """Drop a file's pages from the page cache, except those that are dirty or mapped."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        size = os.fstat(fd).st_size
        for _ in range(20):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if not size or not residency.resident_pages(fd, 0, size):
                break
    finally:
        os.close(fd)
