"""`kafkapy log dump` compared with Kafka's DumpLogSegments on records that no available broker writes: every version of
the records of internal topics, transactions over many partitions, message sets of every shape, and damaged files."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafkapy.coordinator import consumer_group_records, offset_records, transaction_records
from kafkapy.coordinator.transaction_records import STATES, TransactionState
from kafkapy.log.producers.producer_snapshots import format_snapshot
from kafkapy.log.producers.producer_state import BatchNote, ProducerEntry
from kafkapy.protocol.consumer_protocol import ASSIGNMENT, SUBSCRIPTION
from kafkapy.record.batch import build
from kafkapy.record.legacy import build_set
from tests.harness.kafka_tools import kafka_dump

pytestmark = pytest.mark.other_runtime

LOG = "00000000000000000000.log"
ODD_TEXT = 'tab\t quote" back\\slash \\u001f \x01\x1f\x7f é日本 😀 / </script>'


def kafkapy_dump(data: Path, *words: str) -> str:
    command = [sys.executable, "-m", "kafkapy", "log", "dump", *words]
    done = subprocess.run(command, cwd=data, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
    return done.stdout.decode()


def same(data: Path, paths: list[str], *options: str) -> list[str]:
    """Check that both print the same lines, except that Kafka's findings have absolute paths. Return Kafka's lines."""
    output = kafka_dump(data, [Path(path) for path in paths], *options)
    expected = output.replace(f" in {data}/", " in ").splitlines()
    assert kafkapy_dump(data, *options, *paths).splitlines() == expected
    return expected


def write(directory: Path, records: list[tuple[bytes | None, bytes | None]]) -> str:
    directory.mkdir()
    (directory / LOG).write_bytes(b"".join(build([(5, *one, ())], base_offset=at) for at, one in enumerate(records)))
    return f"{directory.name}/{LOG}"


def group_values() -> list[bytes]:
    """Return a group's metadata in every version, with subscriptions of every version and some invalid ones."""
    message = offset_records.GROUP_METADATA_VALUE.Message
    subscriptions = [
        SUBSCRIPTION.encode(SUBSCRIPTION.Message(topics=["a", ODD_TEXT], user_data=b"\0\xff"), 0),
        SUBSCRIPTION.encode(
            SUBSCRIPTION.Message(owned_partitions=[SUBSCRIPTION.Message.OwnedPartitions(topic="a", partitions=[1, 2])]),
            1,
        ),
        SUBSCRIPTION.encode(SUBSCRIPTION.Message(topics=["a"], generation_id=7), 2),
        SUBSCRIPTION.encode(SUBSCRIPTION.Message(topics=["a"], rack_id="rack"), 3),
        b"\0\7" + SUBSCRIPTION.encode(SUBSCRIPTION.Message(topics=["a"], rack_id="rack"), 3)[2:],
        b"",
        b"\0",
        b"no subscription",
    ]
    assigned = ASSIGNMENT.Message.AssignedPartitions(topic="a", partitions=[0])
    assignment = ASSIGNMENT.encode(ASSIGNMENT.Message(assigned_partitions=[assigned]), 1)
    values = []
    for version in range(5):
        for kind in ("consumer", "connect", ""):
            members = [
                message.Members(
                    member_id=f"m{number}",
                    client_id=ODD_TEXT,
                    client_host="/127.0.0.1",
                    session_timeout=1000,
                    subscription=subscription,
                    assignment=assignment if number % 2 else b"",
                )
                for number, subscription in enumerate(subscriptions)
            ]
            value = message(protocol_type=kind, generation=3, protocol=None, leader="m0", members=members)
            values.append(offset_records.GROUP_METADATA_VALUE.encode(value, version))
    return values


def test_every_version_of_the_records_of_consumer_offsets(tmp_path: Path) -> None:
    key = offset_records.OFFSET_COMMIT_KEY
    value = offset_records.OFFSET_COMMIT_VALUE
    keys = [key.encode(key.Message(group=ODD_TEXT, topic="t", partition=7), version) for version in (0, 1)]
    committed = {"offset": 1 << 40, "metadata": ODD_TEXT, "commit_timestamp": 5}
    values = [value.encode(value.Message(**committed), version) for version in range(5)]
    group = offset_records.encode_group_key("g")
    records: list[tuple[bytes | None, bytes | None]] = [(one, other) for one in keys for other in [*values, None]]
    records += [(group, other) for other in [*group_values(), None]]
    for record_type, (key_message, value_message) in consumer_group_records.BY_TYPE.items():
        records += [
            (key_message.encode(key_message.Message(group_id="g"), record_type), other)
            for other in (value_message.encode(value_message.Message(), 0), None)
        ]
    member_key, member = consumer_group_records.BY_TYPE[5]
    for classic in (None, member.Message.ClassicMemberMetadata(session_timeout_ms=5)):
        value_bytes = member.encode(member.Message(classic_member_metadata=classic), 0)
        records.append((member_key.encode(member_key.Message(group_id="g"), 5), value_bytes))
    records.append((b"\0\x63\0\0", b"of a later version"))
    path = write(tmp_path / "__consumer_offsets-0", records)
    expected = same(tmp_path, [path], "--offsets-decoder")
    assert len([line for line in expected if "skipping" in line]) == 1
    assert len([line for line in expected if line.startswith("| ")]) == len(records)


@pytest.mark.parametrize("shapes", [[(1, 3), (2, 9), (3, 1), (4, 4), (5, 5)], [(30, 1), (1, 40), (2, 13), (12, 2)]])
def test_transactions_over_many_partitions(tmp_path: Path, shapes: list[tuple[int, int]]) -> None:
    """Kafka's tool prints partitions in the order of a Scala hash set."""
    records: list[tuple[bytes | None, bytes | None]] = []
    for number, (topics, partitions) in enumerate(shapes):
        parts = tuple(
            (f"topic-{number}-{topic}" * (1 + topic % 3), tuple(range(partitions))) for topic in range(topics)
        )
        for state in range(1, len(STATES)):
            value = TransactionState(1 << 40, 3, 60000, state, parts, 1600000000000, -1)
            encoded = transaction_records.encode_state(value)
            records.append((transaction_records.encode_key(ODD_TEXT), encoded))
    records += [(transaction_records.encode_key("t"), None), (b"\0\5later", b"?")]
    path = write(tmp_path / "__transaction_state-0", records)
    expected = same(tmp_path, [path], "--transaction-log-decoder")
    assert len([line for line in expected if "state=" in line]) == len(shapes) * (len(STATES) - 1)


def test_message_sets_of_every_shape(tmp_path: Path) -> None:
    records = [(1000, b"k", b"v"), (999, None, b""), (-1, b"", None), (5, b"\xff", "é".encode())]
    data, offset = b"", 0
    for magic in (0, 1):
        for codec in (0, 1, 2, 3):
            for timestamp_type in range(magic + 1):
                for given in (records, records[:1]):
                    options = {"base_offset": offset, "timestamp_type": timestamp_type, "append_time": 1234}
                    data += build_set(given, magic, codec, **options)  # type: ignore[arg-type]
                    offset += len(given)
        data += build([(7, b"k", b"between", ())], base_offset=offset)
        offset += 1
    sparse = build_set(records, 1, 1, offsets=[offset, offset + 3, offset + 4, offset + 9])
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / LOG).write_bytes(data + sparse)
    expected = same(tmp_path, [f"t-0/{LOG}"], "--deep-iteration", "--print-data-log")
    assert len([line for line in expected if line.startswith("| ")]) == offset + len(records)
    assert [line for line in expected if line.startswith("  ")] == [
        f"  {offset + 4} is followed by {offset + 9}",
        f"  {offset} is followed by {offset + 3}",
    ]


def test_damage_that_does_not_stop_kafkas_tool(tmp_path: Path) -> None:
    """Wrong checksums, a torn tail, snapshots. kafkapy's additional findings are left out of the comparison."""
    first, second = build([(1, b"k", b"v", ())]), build([(2, b"k", b"w", ())], base_offset=1)
    wrong = bytearray(second)
    wrong[-2] ^= 1
    message = bytearray(build_set([(1000, b"k", b"v")], 1, base_offset=2))
    message[-1] ^= 1
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / LOG).write_bytes(first + wrong + message + first[:40])
    notes = [BatchNote(4, 9, 2, 1600000000000)]
    entries = [ProducerEntry(7, 1, 3, 1600000000000, -1, notes), ProducerEntry(8, 0, -1, 5, 12, [])]
    (directory / "00000000000000000010.snapshot").write_bytes(format_snapshot(entries))
    paths = [Path(f"t-0/{LOG}"), Path("t-0/00000000000000000010.snapshot")]
    expected = kafka_dump(tmp_path, paths, "--deep-iteration").splitlines()
    ours = kafkapy_dump(tmp_path, "--deep-iteration", *map(str, paths)).splitlines()
    assert ours[: len(expected)] == expected
    assert [re.sub(r"^\S+ ", "", line) for line in ours[len(expected) :]] == [
        f"is damaged: the batch at position {len(first)} (base offset 1) has a wrong CRC.",
        f"is damaged: the message at position {len(first) + len(wrong)} (offset 2) has a wrong CRC.",
        f"has no whole batch from position {len(first) + len(wrong) + len(message)} on: 40 bytes are left over.",
    ]
