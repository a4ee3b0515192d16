"""The offset store of a shard: offsets are applied in log order, and pending commits are unstable."""

import random
import struct
from collections.abc import Iterable

import pytest

from kafkapy._ext.stored_records import DamagedBatch
from kafkapy.coordinator.offset_records import (
    CommittedOffset,
    OffsetKey,
    encode_group_key,
)
from kafkapy.coordinator.offsets.store import OffsetStore, PendingCommit
from kafkapy.coordinator.shard import Producer, Record
from kafkapy.record.batch import BatchBuilder
from kafkapy.record.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from kafkapy.record.control import marker_batch
from tests.harness.offset_records import encode_offset, encode_offset_key

NOW = 1_700_000_000_000


def committed(group: str, topic: str, partition: int, offset: int, metadata: str = "") -> Record:
    return (
        encode_offset_key(OffsetKey(group, topic, partition)),
        encode_offset(CommittedOffset(offset, metadata=metadata, commit_timestamp=NOW)),
    )


def deleted(group: str, topic: str, partition: int) -> Record:
    return encode_offset_key(OffsetKey(group, topic, partition)), None


class Log:
    """Encodes batches with the offsets that they would have in a log."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.end = 0

    def add(self, records: Iterable[Record], producer: int = -1, codec: int = NONE) -> None:
        builder = BatchBuilder(codec)
        for key, value in records:
            builder.append(NOW, key, value)
        if producer >= 0:
            self._put(builder.build(producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True))
        else:
            self._put(builder.build())

    def mark(self, producer: int, commit: bool) -> None:
        self._put(bytes(marker_batch(producer, 0, commit=commit, coordinator_epoch=0, timestamp=NOW)))

    def _put(self, batch: bytes) -> None:
        (last_delta,) = struct.unpack_from(">i", batch, 23)
        self.data += struct.pack(">q", self.end) + batch[8:]
        self.end += last_delta + 1


def loaded(log: Log) -> OffsetStore:
    store = OffsetStore()
    others: list[tuple[bytes, bytes | None]] = []
    assert store.replay(memoryview(log.data), lambda key, value: others.append((key, value))) == log.end
    store.loaded()
    return store


def pending(*partitions: int, producer: int | None = None) -> PendingCommit:
    """Return a pending commit of group g for these partitions of t."""
    return PendingCommit("g", [("t", [(partition, 1, -1, "", -1) for partition in partitions])], producer)


def staged(store: OffsetStore, *offsets: tuple[int, int]) -> None:
    """Commit (partition, offset) pairs of topic t in a transaction of producer 5, which stays open."""
    commit = pending(*(partition for partition, _ in offsets), producer=5)
    store.commit_begins(commit)
    store.apply([committed("g", "t", partition, offset) for partition, offset in offsets], Producer(5, 0))
    store.commit_ends(commit, applied=True)


def offsets_of(store: OffsetStore, group: str = "g") -> dict[tuple[str, int], int]:
    return {(topic, partition): commit.offset for topic, partition, commit in store.of_group(group)}


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_load_finds_the_last_commit_of_each_partition(codec: int) -> None:
    log = Log()
    log.add([committed("g", "t", 0, 1), committed("g", "t", 1, 2, "why")], codec=codec)
    log.add([committed("g", "t", 0, 5), committed("other", "t", 0, 9)], codec=codec)
    log.add([committed("g", "u", 3, 7), deleted("g", "t", 1), deleted("g", "t", 8)], codec=codec)
    store = loaded(log)
    assert offsets_of(store) == {("t", 0): 5, ("u", 3): 7}
    assert offsets_of(store, "other") == {("t", 0): 9}
    assert sorted(store.groups()) == ["g", "other"]
    assert len(store) == 3


def test_every_field_of_a_commit_is_loaded() -> None:
    store = OffsetStore()
    full = CommittedOffset(1 << 40, 7, "метаданные", NOW, -1)
    expiring = CommittedOffset(3, -1, "", NOW, NOW + 5)
    store.apply(
        [
            (encode_offset_key(OffsetKey("g", "t", 0)), encode_offset(full)),
            (encode_offset_key(OffsetKey("g", "t", 1)), encode_offset(expiring)),
        ],
        None,
    )
    assert store.get("g", "t", 0) == full
    assert store.get("g", "t", 1) == expiring
    assert store.get("g", "t", 2) is None
    assert store.get("g", "u", 0) is None
    assert store.get("h", "t", 0) is None


def test_other_record_types_are_passed_on_in_order() -> None:
    log = Log()
    log.add([(encode_group_key("g"), b"1"), committed("g", "t", 0, 1), (b"\0\7key", b"of a later version")])
    log.add([(encode_group_key("g"), None)])
    seen: list[tuple[bytes, bytes | None]] = []
    OffsetStore().replay(memoryview(log.data), lambda key, value: seen.append((key, value)))
    assert seen == [(encode_group_key("g"), b"1"), (b"\0\7key", b"of a later version"), (encode_group_key("g"), None)]


def test_offsets_of_a_transaction_are_applied_at_its_commit_marker() -> None:
    log = Log()
    log.add([committed("g", "t", 0, 10), committed("g", "t", 1, 11)], producer=5)
    log.add([committed("g", "t", 2, 12)], producer=6)
    log.mark(5, True)
    log.mark(6, False)
    log.add([committed("g", "t", 3, 13)], producer=7)
    store = loaded(log)
    assert offsets_of(store) == {("t", 0): 10, ("t", 1): 11}
    assert ("t", 3) in store.unstable("g")
    assert ("t", 0) not in store.unstable("g")
    store.transaction_ended(7, True)
    assert offsets_of(store) == {("t", 0): 10, ("t", 1): 11, ("t", 3): 13}
    assert ("t", 3) not in store.unstable("g")


def test_the_later_record_wins_and_not_the_later_marker() -> None:
    log = Log()
    log.add([committed("g", "t", 0, 1), committed("g", "t", 1, 1)], producer=5)
    log.add([committed("g", "t", 0, 2)])
    log.mark(5, True)
    assert offsets_of(loaded(log)) == {("t", 0): 2, ("t", 1): 1}

    store = OffsetStore()
    staged(store, (0, 1))
    store.apply([committed("g", "t", 0, 2)], None)
    store.transaction_ended(5, True)
    assert offsets_of(store) == {("t", 0): 2}


def test_applied_records_replace_loaded_ones() -> None:
    log = Log()
    log.end = 1_000_000
    log.add([committed("g", "t", 0, 1)])
    store = loaded(log)
    store.apply([committed("g", "t", 0, 2)], None)
    assert offsets_of(store) == {("t", 0): 2}


def test_a_tombstone_in_a_transaction_removes_only_its_staged_offsets() -> None:
    log = Log()
    log.add([committed("g", "t", 0, 1)])
    log.add([committed("g", "t", 0, 2), committed("g", "t", 1, 2)], producer=5)
    log.add([deleted("g", "t", 0)], producer=5)
    log.mark(5, True)
    assert offsets_of(loaded(log)) == {("t", 0): 1, ("t", 1): 2}


def test_an_offset_committed_twice_in_a_transaction_counts_once_with_the_last_value() -> None:
    store = OffsetStore()
    for offset in range(1000):
        staged(store, (0, offset))
    assert store.table.staged() == [(5, "g", "t", 0)]
    store.transaction_ended(5, True)
    assert offsets_of(store) == {("t", 0): 999}


def test_a_marker_without_offsets_and_a_second_marker_change_nothing() -> None:
    log = Log()
    log.mark(5, True)
    log.add([committed("g", "t", 0, 1)], producer=5)
    log.mark(5, False)
    log.mark(5, True)
    assert offsets_of(loaded(log)) == {}


def test_a_pending_commit_is_unstable_until_it_ends() -> None:
    store = OffsetStore()
    first, second = pending(0), pending(0)
    store.commit_begins(first)
    store.commit_begins(second)
    assert ("t", 0) in store.unstable("g")
    assert ("t", 1) not in store.unstable("g")
    assert store.count("g") > 0
    store.commit_ends(first, applied=True)
    assert ("t", 0) in store.unstable("g")
    store.commit_ends(second, applied=True)
    assert ("t", 0) not in store.unstable("g")
    assert store.count("g") == 0


def test_a_failed_commit_in_a_transaction_keeps_its_earlier_commits() -> None:
    store = OffsetStore()
    staged(store, (0, 1))
    failing = pending(0, 1, producer=5)
    store.commit_begins(failing)
    store.commit_ends(failing, applied=False)
    assert ("t", 0) in store.unstable("g")
    assert ("t", 1) not in store.unstable("g")
    store.transaction_ended(5, True)
    assert offsets_of(store) == {("t", 0): 1}
    assert ("t", 0) not in store.unstable("g")


def test_a_deleted_offset_is_not_restored_by_a_marker() -> None:
    store = OffsetStore()
    staged(store, (0, 1), (1, 1))
    store.unstage("g", [("t", 0)])
    assert ("t", 0) not in store.unstable("g")
    store.transaction_ended(5, True)
    assert offsets_of(store) == {("t", 1): 1}


def test_tombstones_cover_the_committed_offsets() -> None:
    store = OffsetStore()
    store.apply([committed("g", "t", 0, 1), committed("g", "t", 1, 1)], None)
    assert sorted(store.tombstones("g")) == [deleted("g", "t", 0), deleted("g", "t", 1)]
    assert store.tombstones_of("g", [("t", 1), ("t", 2)]) == [deleted("g", "t", 1)]
    store.apply(store.tombstones("g"), None)
    assert store.count("g") == 0
    assert store.groups() == []


def test_a_damaged_batch_ends_the_load_with_its_position() -> None:
    log = Log()
    log.add([committed("g", "t", 0, 1)])
    good = len(log.data)
    log.add([committed("g", "t", 0, 2)])
    log.data[-3] ^= 0x40
    with pytest.raises(DamagedBatch, match=f"the batch at byte {good} .*base offset 1.* wrong CRC"):
        OffsetStore().replay(memoryview(log.data), lambda key, value: None)


@pytest.mark.parametrize(
    "record",
    [
        (b"", b"value"),
        (b"\0\1\0\5gro", b"value"),
        (b"\0\1\xff\xff", b"value"),
        (b"\0\1\0\1g\0\1t\0\0", b"value"),
        (encode_offset_key(OffsetKey("g", "t", 0)), b""),
        (encode_offset_key(OffsetKey("g", "t", 0)), b"\0\5" + bytes(40)),
        (encode_offset_key(OffsetKey("g", "t", 0)), b"\0\3" + bytes(8) + bytes(4) + b"\x7f\xff" + bytes(20)),
        (encode_offset_key(OffsetKey("g", "t", 0)), b"\0\1" + bytes(8) + bytes(2) + bytes(8)),
    ],
)
def test_a_malformed_record_ends_the_load(record: Record) -> None:
    log = Log()
    log.add([committed("g", "t", 0, 1), record])
    with pytest.raises(DamagedBatch, match=r"base offset 0.*record at offset 1"):
        OffsetStore().replay(memoryview(log.data), lambda key, value: None)


def test_a_cut_batch_is_left_for_the_next_block() -> None:
    log = Log()
    log.add([committed("g", "t", 0, 1)])
    first = log.end
    log.add([committed("g", "t", 0, 2)])
    store = OffsetStore()
    assert store.replay(memoryview(log.data)[:-1], lambda key, value: None) == first
    assert offsets_of(store) == {("t", 0): 1}


def test_memory_of_the_table_is_small_and_reused() -> None:
    store = OffsetStore()
    count = 50_000
    for begin in range(0, count, 500):
        store.apply([committed(f"group-{begin // 2000}", "topic", begin + i, 1) for i in range(500)], None)
    per_offset = store.table.memory / count
    assert per_offset < 120, f"{per_offset:.0f} bytes an offset"
    before = store.table.memory
    for _ in range(3):
        for group in store.groups():
            records = store.tombstones(group)
            store.apply(records, None)
            store.apply([(key, encode_offset(CommittedOffset(1, commit_timestamp=NOW))) for key, _ in records], None)
    assert len(store) == count
    assert store.table.memory <= before * 1.3


@pytest.mark.parametrize("seed", range(20))
def test_any_history_matches_the_model(seed: int) -> None:
    """Replayed and applied records have the same result as a plain model: dicts of offsets and open transactions."""
    draw = random.Random(seed)
    log, live = Log(), OffsetStore()
    model: dict[tuple[str, str, int], tuple[int, int]] = {}
    open_: dict[int, dict[tuple[str, str, int], tuple[int, int]]] = {}
    for _ in range(300):
        producer = draw.choice([-1, -1, 5, 6, 7])
        if producer >= 0 and draw.random() < 0.3:
            commit = draw.random() < 0.5
            log.mark(producer, commit)
            live.transaction_ended(producer, commit)
            for key, found in open_.pop(producer, {}).items():
                if commit and model.get(key, (-1, 0))[0] <= found[0]:
                    model[key] = found
            continue
        order = log.end
        target = model if producer < 0 else open_.setdefault(producer, {})
        records: list[Record] = []
        for _ in range(draw.randint(1, 4)):
            key = (draw.choice(["g", "h", ""]), draw.choice(["t", "u"]), draw.randint(0, 3))
            if draw.random() < 0.2:
                records.append(deleted(*key))
                target.pop(key, None)
            else:
                offset = draw.randint(0, 1 << 50)
                records.append(committed(*key, offset, "m" * draw.randint(0, 3)))
                target[key] = (order, offset)
        log.add(records, producer, draw.choice([NONE, LZ4, ZSTD]))
        live.apply(records, Producer(producer, 0) if producer >= 0 else None)
    expected = {key: offset for key, (_, offset) in model.items()}
    for store in (loaded(log), live):
        every: dict[tuple[str, str, int], int] = {}
        for group in ("g", "h", ""):
            every.update({(group, *where): offset for where, offset in offsets_of(store, group).items()})
        assert every == expected
        assert len(store) == len(expected)
