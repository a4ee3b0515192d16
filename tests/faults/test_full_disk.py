"""The disk is full: the producer is told, nothing half-written is served, and with room again the broker goes on."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.brokers import KafkapyBroker
from harness.raw import Connection, values
from harness.small_disk import SmallDisk, small_disk

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
    """Produces until the broker refuses; the number of the first record that it did not take."""
    for number in range(first, first + 1000):
        code, base = connection.produce(topic, 0, values(value(number)), version=7)
        if code:
            assert (code, base) == (KAFKA_STORAGE_ERROR, -1)
            return number
        assert base == number
    raise AssertionError("the disk did not fill")


def assert_holds(connection: Connection, topic: str, count: int) -> None:
    """The topic holds the records 0 to count - 1, whole and right, and says that it ends there."""
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
        assert_holds(connection, "t", count)  # served while it is full
        for _ in range(20):  # and again and again
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


def test_after_a_crash_on_a_full_disk_all_that_was_acknowledged_is_there(
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


def test_a_topic_that_cannot_be_made_is_refused_and_can_be_made_later(broker: KafkapyBroker, disk: SmallDisk) -> None:
    with Connection(broker.bootstrap) as connection:
        disk.fill()
        assert connection.create_topic("late") != 0
        disk.make_room()
        deadline = time.monotonic() + 20
        while code := connection.create_topic("late"):
            assert time.monotonic() < deadline, f"still refused with {code}"
            time.sleep(0.1)
        assert connection.produce("late", 0, values(b"x"), version=7) == (0, 0)
