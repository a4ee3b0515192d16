"""A disk that does not answer for as long as the test likes: only those who read from it wait."""

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

SETTINGS = {"log.segment.bytes": "4194304", "log.index.size.max.bytes": "65536", "kafkapy.read.threads.per.disk": "2"}
BATCH = 50_000
COUNT = 250  # batches of a record each: three segments and a part
NOW = 1_800_000_000_000  # harness.raw's time of every record
PLENTY = 64 << 20


def value(number: int) -> bytes:
    return b"%8d" % number + bytes([number % 251]) * (BATCH - 8)


class Client(Connection):
    """One that can ask now and take the answer later."""

    def ask_records(self, topic: str, partition: int, offset: int, *, wait_ms: int = 0, most: int = PLENTY) -> None:
        one = struct.pack(">iqi", partition, offset, most)
        body = struct.pack(">iiiib", -1, wait_ms, 1, PLENTY, 0) + array([string(topic) + array([one])])
        self.send(frame(FETCH, 4, body))

    def records(self, topic: str) -> bytes:
        """Of the answer to the one partition that was asked for."""
        answer = self.answer()
        at = 4 + 4 + 2 + len(topic.encode()) + 4
        _, code, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
        assert code == 0
        at += 26 + 16 * max(aborted, 0) + 4
        return answer[at:]


def offsets_in(records: bytes) -> Iterator[int]:
    """Of the whole batches, each of which holds its value."""
    at = 0
    while at + 12 <= len(records):
        offset, size = struct.unpack_from(">qi", records, at)
        if at + 12 + size > len(records):
            break
        assert value(offset) in records[at : at + 12 + size]
        yield offset
        at += 12 + size


def read_all(client: Client, topic: str, partition: int, offset: int, end: int) -> None:
    """From `offset` on, by as many fetches as it takes, each record whole and right. One was sent already."""
    while True:
        for found in offsets_in(client.records(topic)):
            assert found == offset
            offset += 1
        if offset >= end:
            return
        client.ask_records(topic, partition, offset)


class Bystanders:
    """Producers and consumers at the tail, several of each so that every network thread has some."""

    def __init__(self, bootstrap: str, places: list[tuple[str, int]]) -> None:
        self.places = places
        self.producers = [Client(bootstrap) for _ in range(4)]
        self.consumers = [Client(bootstrap) for _ in range(4)]

    def go_on(self) -> None:
        """Each produces, has it acknowledged, and it reaches the consumer that waits for it."""
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
    """With a directory on an ordinary disk, too, which has the metadata."""
    directories = f"{tmp_path / 'fast'},{disk.path}"
    settings = {**SETTINGS, "log.dirs": directories, "num.network.threads": str(request.param)}
    running = KafkapyBroker(tmp_path, settings, prefix=disk.prefix)
    yield running
    if running.process.child.poll() is None:
        disk.release()
        running.stop()


@pytest.fixture
def slow(broker: KafkapyBroker, disk: SlowDisk) -> int:
    """The partition of topic `old` that is on the slow disk, filled, and not in memory. The other one is not."""
    with Client(broker.bootstrap) as client:
        assert client.create_topic("old", 2) == 0
        (found,) = (int(path.name.rpartition("-")[2]) for path in disk.source.glob("old-*"))
        for partition in range(2):
            for number in range(COUNT):
                assert client.produce("old", partition, values(value(number)), version=7) == (0, number)
    disk.forget(f"old-{found}/")
    return found


def ask_for_the_beginning(client: Client, partition: int) -> None:
    client.ask_records("old", partition, 0)


def ask_for_a_place(client: Client, partition: int) -> None:
    """Which has to be looked up in an index."""
    client.ask_records("old", partition, 120)


def ask_for_a_time(client: Client, partition: int) -> None:
    one = struct.pack(">iq", partition, NOW)
    client.send(frame(LIST_OFFSETS, 1, struct.pack(">i", -1) + array([string("old") + array([one])])))


def ask_for_an_old_format(client: Client, partition: int) -> None:
    body = OldConnection.fetch_body(client, "old", 0, version=1, partition=partition, max_bytes=PLENTY)  # type: ignore[arg-type]
    client.send(frame(FETCH, 1, body))


@pytest.mark.parametrize("ask", [ask_for_the_beginning, ask_for_a_place, ask_for_a_time, ask_for_an_old_format])
def test_who_reads_from_a_disk_that_does_not_answer_waits_alone(
    broker: KafkapyBroker, disk: SlowDisk, slow: int, ask
) -> None:
    bystanders = Bystanders(broker.bootstrap, [("old", 1 - slow), ("old", slow)])
    bystanders.go_on()  # the last page of each log is in memory, as it is where somebody writes
    disk.hold(f"old-{slow}/")
    readers = [Client(broker.bootstrap) for _ in range(6)]  # more than there are threads for the disk
    for reader in readers:
        ask(reader, slow)
    disk.wait_until_held()
    bystanders.go_on()
    with Client(broker.bootstrap) as other:
        assert other.create_topic("new", 4) == 0  # what else may wait for a disk has threads of its own
        other.ask_records("old", 1 - slow, 0)
        read_all(other, "old", 1 - slow, 0, COUNT)
    readers.pop().socket.close()
    bystanders.go_on()
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
            assert all(value(number) in answer for number in range(80))  # of the first segment


def test_a_disk_that_stops_in_the_middle_of_a_reply_holds_up_that_reply(
    broker: KafkapyBroker, disk: SlowDisk, slow: int
) -> None:
    bystanders = Bystanders(broker.bootstrap, [("old", 1 - slow)])
    with Client(broker.bootstrap) as reader:
        reader.ask_records("old", slow, 0)
        first = reader._read(1 << 20)
        (size,) = struct.unpack_from(">i", first)
        # The sockets hold some of the reply, and the broker has read ahead, but not to the end of the reply. The next
        # reads may reach the disk at once and take every reading thread, so they are counted from here.
        held = len(disk.held)
        disk.hold(f"old-{slow}/")
        reader.ask_records("old", slow, 200)
        with Client(broker.bootstrap) as other:
            other.ask_records("old", slow, 200)
            disk.wait_until_held(held + 1)
            bystanders.go_on()
        disk.release()
        records = first[4:] + reader._read(size + 4 - len(first))
        assert list(offsets_in(records[4 + 4 + 4 + 2 + 3 + 4 + 26 + 4 :]))[:20] == list(range(20))
        read_all(reader, "old", slow, 200, COUNT)


def test_what_was_dropped_from_memory_comes_right_beside_others(tmp_path: Path) -> None:
    """The real page cache of a real disk."""
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
                bystanders.go_on()
                for reader in readers:
                    read_all(reader, "old", 0, 0, end + 20)
    finally:
        broker.stop()


def evict(path: Path) -> None:
    """Drops a file's pages, as far as they are clean and nobody has mapped them."""
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
