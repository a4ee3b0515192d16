"""Keys and values of offset commits: written as the schemas of Kafka's records write them, byte for byte."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._ext.offset_commit import encode_commit, encode_key, encode_value
from kafkapy._ext.offset_table import OffsetTable
from kafkapy.coordinator.offset_records import OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE, CommittedOffset, OffsetKey
from tests.harness.examples import examples
from tests.harness.offset_records import encode_offset, encode_offset_key

names = st.text(st.characters(codec="utf-8"), max_size=40)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(names, names, int32)
def test_a_key_is_what_the_schema_makes(group: str, topic: str, partition: int) -> None:
    assert encode_key(group, topic, partition) == encode_offset_key(OffsetKey(group, topic, partition))


@given(int64, int32, names, int64, int64)
def test_a_value_is_what_the_schema_makes(offset: int, epoch: int, metadata: str, time: int, expires: int) -> None:
    if expires != -1:
        epoch = -1  # the version with an expiry time has no leader epoch
    committed = CommittedOffset(offset, epoch, metadata, time, expires)
    assert encode_value(*committed) == encode_offset(committed)


@settings(max_examples=examples(50))
@given(st.integers(0, 1), st.integers(0, 4), int64, int32, names, int64, int64)
def test_every_version_can_be_read(
    key_version: int, version: int, offset: int, epoch: int, metadata: str, time: int, expires: int
) -> None:
    key = OFFSET_COMMIT_KEY.encode(OFFSET_COMMIT_KEY.Message(group="g", topic="t", partition=3), key_version)
    committed = CommittedOffset(offset, epoch, metadata, time, expires)
    value = OFFSET_COMMIT_VALUE.encode(OFFSET_COMMIT_VALUE.Message(**committed._asdict()), version)
    table = OffsetTable()
    table.apply([(key, value)])
    assert table.get("g", "t", 3) == (
        offset,
        epoch if version >= 3 else -1,
        metadata,
        time,
        expires if version == 1 else -1,
    )


def test_unknown_tagged_fields_of_a_value_are_left_alone() -> None:
    value = OFFSET_COMMIT_VALUE.encode(OFFSET_COMMIT_VALUE.Message(offset=5, metadata="m", commit_timestamp=7), 4)
    table = OffsetTable()
    table.apply([(encode_key("g", "t", 0), value[:-1] + b"\1\7\3abc")])
    assert table.get("g", "t", 0) == (5, -1, "m", 7, -1)


def test_a_commit_becomes_one_record_for_each_partition() -> None:
    offsets = [("t", [(0, 1, 7, "", -1), (1, 2, -1, "m", 5)]), ("u", []), ("t", [(0, 3, 8, "", -1)])]
    records, codes = encode_commit("g", offsets, 100, -1, 10)
    assert records == [
        (encode_key("g", "t", 0), encode_value(3, 8, "", 100, -1)),  # the last of the two commits
        (encode_key("g", "t", 1), encode_value(2, -1, "m", 5, -1)),
    ]
    assert codes == [0, 0, 0]
    assert encode_commit("g", offsets[:1], 100, 200, 10)[0][0][1] == encode_value(1, -1, "", 100, 200)


@pytest.mark.parametrize(
    ("metadata", "limit"),
    [("abcd", 4), ("éééé", 4), ("日本", 2), ("\U0001f41f" * 2, 4), ("x" * 32767, 40000), ("é" * 16383, 40000)],
)
def test_metadata_is_limited_by_utf_16_units_and_by_the_bytes_of_a_record(metadata: str, limit: int) -> None:
    def codes(text: str) -> list[int]:
        return encode_commit("g", [("t", [(0, 1, -1, text, -1), (1, 1, -1, "", -1)])], 0, -1, limit)[1]

    assert codes(metadata) == [0, 0]
    assert codes(metadata + metadata[0]) == [12, 0]


def test_what_is_too_long_for_a_record_is_refused() -> None:
    with pytest.raises(ValueError, match="32768 bytes"):
        encode_key("g" * 32768, "t", 0)
    with pytest.raises(ValueError, match="65534 bytes"):
        encode_value(1, -1, "é" * 32767, 0, -1)
    assert len(encode_key("g" * 32767, "t", 0)) == 32767 + 11
