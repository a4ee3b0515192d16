"""On a full disk, producers get an error, no torn batch is served, and the broker continues when there is space."""

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.client import Admin, RecordProducer
from kafkapy.client.administration.group_admin import GroupAdmin, OffsetAndMetadata
from kafkapy.client.cluster import Cluster
from tests.harness.brokers import KafkapyBroker, StartFailed
from tests.harness.raw import Connection, values
from tests.harness.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.not_quick

KAFKA_STORAGE_ERROR = 56
SETTINGS = {"log.segment.bytes": "1048576", "log.index.size.max.bytes": "65536"}
BATCH = 100_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 16 << 20) as mounted:
        yield mounted


@pytest.fixture
def broker(disk: SmallDisk) -> Iterator[KafkapyBroker]:
    running = KafkapyBroker(disk.path, SETTINGS, prefix=disk.prefix)
    yield running
    if running.process.child.poll() is None:
        running.stop()


def value(number: int) -> bytes:
    return b"%8d" % number + bytes([number % 251]) * (BATCH - 8)


def fill_by_producing(connection: Connection, topic: str, first: int) -> int:
    """Produce until the broker refuses a record. Return its number."""
    for number in range(first, first + 1000):
        code, base = connection.produce(topic, 0, values(value(number)), version=7)
        if code:
            assert (code, base) == (KAFKA_STORAGE_ERROR, -1)
            return number
        assert base == number
    raise AssertionError("the disk did not fill")


def assert_holds(connection: Connection, topic: str, count: int) -> None:
    """Check that the topic holds exactly the records 0 to count - 1 and that its end offset is count."""
    assert connection.end_offset(topic, 0) == (0, count)
    offset = 0
    while offset < count:
        code, high, records = connection.fetch(topic, 0, offset)
        assert (code, high) == (0, count)
        assert records, f"nothing at offset {offset}"
        position = 0
        while position < len(records):
            assert int.from_bytes(records[position : position + 8], "big") == offset
            size = 12 + int.from_bytes(records[position + 8 : position + 12], "big")
            assert value(offset) in records[position : position + size]
            position += size
            offset += 1
        assert position == len(records)
    assert offset == count


def test_a_full_disk_loses_nothing_and_ends_when_there_is_room(broker: KafkapyBroker, disk: SmallDisk) -> None:
    with Connection(broker.bootstrap) as connection:
        for topic in ("t", "other"):
            assert connection.create_topic(topic) == 0
            assert connection.produce(topic, 0, values(value(0)), version=7) == (0, 0)
        disk.fill(leave=3 << 20)
        count = fill_by_producing(connection, "t", 1)
        assert count > 5
        assert_holds(connection, "t", count)  # reads work while the disk is full
        for _ in range(20):  # each retry is refused, too
            assert connection.produce("t", 0, values(value(count)), version=7) == (KAFKA_STORAGE_ERROR, -1)
        assert_holds(connection, "t", count)
        assert_holds(connection, "other", 1)
        disk.make_room()
        code, base = connection.produce("t", 0, values(value(count)), version=7)
        assert (code, base) == (0, count)
        assert connection.produce("other", 0, values(value(1)), version=7) == (0, 1)
        assert_holds(connection, "t", count + 1)
        assert connection.create_topic("third") == 0
    broker.stop()


def test_after_a_crash_on_a_full_disk_all_acknowledged_records_are_there(
    broker: KafkapyBroker, disk: SmallDisk
) -> None:
    with Connection(broker.bootstrap) as connection:
        assert connection.create_topic("t") == 0
        disk.fill(leave=3 << 20)
        count = fill_by_producing(connection, "t", 0)
    broker.kill()
    disk.make_room()
    again = KafkapyBroker(disk.path, SETTINGS, prefix=disk.prefix)
    try:
        with Connection(again.bootstrap) as connection:
            connection.wait_until_served("t")
            assert_holds(connection, "t", count)
            assert connection.produce("t", 0, values(value(count)), version=7) == (0, count)
            assert_holds(connection, "t", count + 1)
    finally:
        again.stop()


def shown(broker: KafkapyBroker) -> list[str]:
    """Return the WARNING and ERROR lines of the broker's log so far."""
    return [line for line in broker.process.output.splitlines() if re.search(r"^\S+Z (WARN|ERROR)", line)]


def wait_until_shown(broker: KafkapyBroker, text: str) -> None:
    deadline = time.monotonic() + 30
    while not any(text in line for line in shown(broker)):
        assert time.monotonic() < deadline, f"{text!r} was not shown:\n{broker.process.output[-2000:]}"
        time.sleep(0.02)


def test_a_full_disk_is_logged_once_when_it_begins_and_once_when_it_ends(
    broker: KafkapyBroker, disk: SmallDisk
) -> None:
    with Connection(broker.bootstrap) as connection:
        assert connection.create_topic("t") == 0
        disk.fill(leave=1 << 20)
        count = fill_by_producing(connection, "t", 0)
        refused = 1
        for _ in range(20):
            assert connection.produce("t", 0, values(value(count)), version=7) == (KAFKA_STORAGE_ERROR, -1)
            refused += 1
        (begun,) = shown(broker)
        assert re.search(
            rf"ERROR runtime\.shortage  {disk.path}\S* cannot be written: No space left on device; bytes free: \d+\. ",
            begun,
        )
        assert "Refused: appending to t-0, and everything else that needs space there." in begun
        disk.make_room()
        assert connection.produce("t", 0, values(b"small"), version=7)[0] == 0
        wait_until_shown(broker, "can be written again")  # even without another write of a client
        (_, over) = shown(broker)
        assert re.search(
            rf"WARNING runtime\.shortage  {disk.path}\S* can be written again; bytes free: \d{{7,}}; "
            rf"writes refused: {refused}, in \d+ s$",
            over,
        )


def test_an_idempotent_producer_continues_by_itself_and_stores_each_record_once(
    broker: KafkapyBroker, disk: SmallDisk
) -> None:
    count = 60
    failures: list[BaseException] = []

    def produce() -> None:
        try:
            with RecordProducer(broker.bootstrap, batch_bytes=1, timeout_s=120) as producer:
                for number in range(count):
                    producer.send("t", value(number), partition=0)
        except BaseException as error:
            failures.append(error)

    with Connection(broker.bootstrap) as connection:
        assert connection.create_topic("t") == 0
        disk.fill(leave=2 << 20)
        producing = threading.Thread(target=produce)
        producing.start()
        wait_until_shown(broker, "cannot be written")
        disk.make_room()
        producing.join(120)
        assert (producing.is_alive(), failures) == (False, [])
        assert_holds(connection, "t", count)


def test_commits_succeed_again_by_themselves_and_the_coordinators_refusals_are_logged(
    broker: KafkapyBroker, disk: SmallDisk
) -> None:
    failures: list[BaseException] = []
    last = 400

    def commit() -> None:
        try:
            with Cluster(broker.bootstrap) as cluster:
                groups = GroupAdmin(cluster)
                for offset in range(1, last + 1):
                    groups.commit("g", {("t", 0): OffsetAndMetadata(offset, "x" * 1000)})
        except BaseException as error:
            failures.append(error)

    with Connection(broker.bootstrap) as connection, Cluster(broker.bootstrap) as cluster:
        assert connection.create_topic("t") == 0
        GroupAdmin(cluster).commit("g", {("t", 0): OffsetAndMetadata(0)})  # creates the topic __consumer_offsets
        disk.fill(leave=64 << 10)
        committing = threading.Thread(target=commit)
        committing.start()
        wait_until_shown(broker, "Refused: appending to __consumer_offsets-")
        disk.make_room()
        committing.join(120)
        assert (committing.is_alive(), failures) == (False, [])
        assert GroupAdmin(cluster).offsets_of("g", [("t", 0)]) == {("t", 0): last}


def test_refused_topics_are_logged_once_too(broker: KafkapyBroker, disk: SmallDisk) -> None:
    with Admin(broker.bootstrap) as admin, Connection(broker.bootstrap) as connection:
        disk.fill()
        while len(shown(broker)) == 0:  # some changes still fit into the metadata file
            connection.create_topic("late")
        for _ in range(20):
            connection.create_topic("late")
        (begun,) = shown(broker)
        assert "cannot be written: " in begun
        disk.make_room()
        admin.create_topic("late")
        assert connection.produce("late", 0, values(b"x"), version=7) == (0, 0)


def test_deleting_records_makes_room_on_a_disk_without_a_free_byte(disk: SmallDisk) -> None:
    quick = {
        "log.initial.task.delay.ms": "0",
        "log.retention.check.interval.ms": "500",
        "log.segment.delete.delay.ms": "0",
    }
    broker = KafkapyBroker(disk.path, SETTINGS | quick, prefix=disk.prefix)
    with Admin(broker.bootstrap) as admin, Connection(broker.bootstrap) as connection:
        admin.create_topic("t", 1)
        count = fill_by_producing(connection, "t", 0)
        disk.fill()
        assert admin.delete_records({("t", 0): -1}) == {("t", 0): count}
        deadline = time.monotonic() + 30
        while connection.produce("t", 0, values(value(0)), version=7)[0]:
            assert time.monotonic() < deadline, "no room was made"
            time.sleep(0.1)
    broker.stop()


def test_a_start_on_a_full_disk_says_so(tmp_path: Path, disk: SmallDisk) -> None:
    KafkapyBroker(disk.path, SETTINGS, prefix=disk.prefix).stop()
    disk.fill()
    with pytest.raises(StartFailed, match=r"database or disk is full\); bytes free: 0; free some space\.$") as failed:
        KafkapyBroker(disk.path, SETTINGS, prefix=disk.prefix).stop()
    assert failed.value.code == 1


def test_a_topic_that_cannot_be_created_is_refused_and_can_be_created_later(
    broker: KafkapyBroker, disk: SmallDisk
) -> None:
    with Connection(broker.bootstrap) as connection:
        disk.fill()
        assert connection.create_topic("late") != 0
        disk.make_room()
        deadline = time.monotonic() + 20
        while code := connection.create_topic("late"):
            assert time.monotonic() < deadline, f"still refused with {code}"
            time.sleep(0.1)
        assert connection.produce("late", 0, values(b"x"), version=7) == (0, 0)
