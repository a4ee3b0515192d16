"""Validation and conversion between message formats, compared byte for byte with Apache Kafka 3.9.1's code."""

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkapy._ext.message_writer import MessagesEncoder, wrap
from kafkapy.errors import Errors, KafkaError
from kafkapy.record import compression
from kafkapy.record.batch import build, records_of
from kafkapy.record.conversion import down_convert
from kafkapy.record.legacy import build_set, iter_entries
from kafkapy.record.validation import assign, validate
from tests.harness import brokers, toolchain

pytestmark = pytest.mark.other_runtime

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "data" / "golden"
NOW = 1_500_000_000_000
BASE = 1000
EPOCH = 7
FOREVER = (1 << 63) - 1

RECORDS = {
    "one": [(NOW, b"key", b"value")],
    "some": [(NOW - 7, b"k", b"v"), (NOW + 5, b"", b"words " * 20), (NOW + 5, b"z", None), (NOW + 1, b"y", b"")],
    "keyless": [(NOW, b"k", b"v"), (NOW, None, b"v")],
    "old": [(NOW - 100_000, b"k", b"v"), (NOW, b"k", b"v")],
    "timeless": [(-1, b"k", b"v"), (-1, b"k", b"v")],
    "many": [(NOW + number % 7, b"key %d" % number, b"value %d " % number * 9) for number in range(300)],
}


class Case(NamedTuple):
    """Records to store in a topic of format `magic` or, with `down`, to convert for a client that supports `magic`."""

    name: str
    data: bytes
    magic: int
    down: bool = False
    codec: int = -1
    append_time: int = 0
    window: int = FOREVER
    compact: bool = False
    first_offset: int = 0

    @property
    def line(self) -> str:
        if self.down:
            return f"down {self.magic} {self.first_offset} {self.data.hex()}\n"
        rules = f"{self.append_time} {self.window} {self.window} {self.compact:d} {BASE} {EPOCH} {NOW}"
        return f"validate {self.magic} {self.codec} {rules} {self.data.hex()}\n"


def produced(source: int, records: list, codec: int, base_offset: int = 0) -> bytes:
    if source == 2:
        return build([(*record, ()) for record in records], codec=codec, base_offset=base_offset)
    return build_set(records, source, codec, base_offset=base_offset)


def pairs() -> list[Case]:
    found = []
    for name, records in RECORDS.items():
        for source in (0, 1, 2):
            for codec in range(4 if source < 2 else 5):
                data = produced(source, records, codec)
                for magic in (0, 1, 2):
                    about = f"{name} {source} {compression.NAMES[codec]} to {magic}"
                    found += [
                        Case(f"{about} append time {kind} codec {target}", data, magic, codec=target, append_time=kind)
                        for kind in (0, 1)
                        for target in ((-1, 0, 1, 3) if name in ("one", "some") else (-1,))
                    ]
                    found.append(Case(f"{about} compacted", data, magic, compact=True))
                    found.append(Case(f"{about} within a minute", data, magic, window=60_000))
    return found


def wrapper(magic: int, offset: int, inner_offsets: list[int], *, inner_magic: int | None = None, **more: int) -> bytes:
    inner = MessagesEncoder(magic if inner_magic is None else inner_magic)
    for number, one in enumerate(inner_offsets):
        inner.append(one, NOW + number, b"k", b"%d" % number)
    return wrap(compression.compress(1, inner.payload()), magic, 1, offset, more.get("time", NOW), more.get("type", 0))


def oddities() -> list[Case]:
    sets = {
        f"wrapper {offset} of {inner}": wrapper(1, offset, inner)
        for offset, inner in [
            (2, [0, 1, 2]), (0, [0, 1, 2]), (0, [0, 0, 0]), (102, [100, 101, 102]), (102, [0, 1, 2]), (2, [0, 2, 1]),
            (7, [0, 3, 7]), (0, [5, 6, 7]), (1, [0, 1, 2]), (3, [-1, -1, -1]),
        ]
    }  # fmt: skip
    sets["wrapper of format 0 with any offsets"] = wrapper(0, 5, [9, 8, 7])
    sets["format 0 inside format 1"] = wrapper(1, 2, [0, 1, 2], inner_magic=0)
    sets["format 1 inside format 0"] = wrapper(0, 2, [0, 1, 2], inner_magic=1)
    sets["nested"] = wrap(compression.compress(1, wrapper(1, 0, [0])), 1, 1, 0, NOW)
    sets["lying timestamp"] = wrapper(1, 2, [0, 1, 2], time=5)
    sets["append time claimed by a wrapper"] = wrapper(1, 2, [0, 1, 2], type=1)
    sets["append time claimed"] = build_set(RECORDS["one"], 1, timestamp_type=1, append_time=NOW)
    sets["append time claimed without a time"] = build_set(RECORDS["one"], 1, timestamp_type=1, append_time=-1)
    sets["negative time"] = build_set([(-5, b"k", b"v")], 1)
    sets["empty wrapper"] = wrap(compression.compress(1, b""), 1, 1, 0, NOW)
    single, packed = produced(1, RECORDS["one"], 0), produced(1, RECORDS["one"], 1)
    sets |= {"single and wrapper": single + packed, "wrapper and single": packed + single, "wrappers": packed + packed}
    sets |= {"two formats": produced(0, RECORDS["one"], 0) + single, "cut": single + single[:20]}
    sets["two batches"] = produced(2, RECORDS["one"], 0) * 2
    broken = bytearray(single)
    broken[20] ^= 1
    sets["checksum"] = bytes(broken)
    inner = bytearray(single)
    inner[30] ^= 1
    sets["checksum inside"] = wrap(compression.compress(1, bytes(inner)), 1, 1, 0, NOW)
    sets["zstd"] = wrap(compression.compress(4, single), 1, 4, 0, NOW)
    producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    sets["idempotent"] = build([(NOW, b"k", b"v", ())], **producer)
    sets["transactional"] = build([(NOW, b"k", b"v", ())], transactional=True, **producer)
    sets["headers"] = build([(NOW, b"k", b"v", [("name", b"text")])])
    sets["control"] = build([(NOW, b"k", b"v", ())], control=True)
    return [
        Case(f"{name} to {magic}, append time {kind}", data, magic, append_time=kind)
        for name, data in sets.items()
        for magic in (0, 1, 2)
        for kind in (0, 1)
    ]


def downwards() -> list[Case]:
    found = []
    for path in sorted([*GOLDEN.glob("kafka-3.9.1-v2/data/v2-*/*.log"), *GOLDEN.glob("*/data/v[01]-*/*.log")]):
        data = path.read_bytes()
        headers = list(iter_entries(data))
        if headers:
            middle = headers[len(headers) // 2].last_offset
            found += [
                Case(f"{path.parent.name}/{path.name} from {first} to {magic}", data, magic, True, first_offset=first)
                for magic in (0, 1)
                for first in (0, middle)
            ]
    for name, records in RECORDS.items():
        for codec in range(5):
            data = produced(2, records, codec, 50) + produced(1, records, codec % 4, 1000)
            found += [Case(f"{name} {codec} to {magic}", data, magic, True, first_offset=51) for magic in (0, 1)]
    appended = build([(*record, ()) for record in RECORDS["some"]], codec=1, timestamp_type=1, base_offset=9)
    return [*found, *(Case(f"append time to {magic}", appended, magic, True) for magic in (0, 1))]


def ours(case: Case) -> tuple[int, str, bytes]:
    """Return (error code, largest timestamp, bytes) of kafkapy's result."""
    try:
        if case.down:
            return 0, "", down_convert(case.data, case.magic, case.first_offset)
        batch = validate(
            bytearray(case.data),
            now_ms=NOW,
            timestamp_type=case.append_time,
            before_max_ms=case.window,
            after_max_ms=case.window,
            compact=case.compact,
            target_codec=case.codec,
            target_magic=case.magic,
            any_magic=True,
        )
        assign(batch, BASE, EPOCH)
    except KafkaError as error:
        return error.code, "", b""
    return 0, str(batch.max_timestamp), bytes(batch.data)


def kafkas(answer: str) -> tuple[int, str, bytes]:
    words = answer.split(" ")
    if words[0] == "error":
        return int(words[1]), "", b""
    return 0, " ".join(words[1:-1]), bytes.fromhex(words[-1])


def same(ours: bytes, theirs: bytes) -> bool:
    """Return True if both are equal except for compressed bytes, which depend on the compressor."""
    if ours == theirs:
        return True
    pairs = list(zip(iter_entries(ours), iter_entries(theirs), strict=True))
    return any(header.codec for header, _ in pairs) and all(
        (one.magic, one.attributes, one.last_offset, one.max_timestamp)
        == (two.magic, two.attributes, two.last_offset, two.max_timestamp)
        and records_of(ours, one) == records_of(theirs, two)
        for one, two in pairs
    )


# For exceptions that Kafka does not expect, it answers UNKNOWN_SERVER_ERROR. kafkapy answers one of these codes.
NAMED_HERE = {
    Errors.UNSUPPORTED_COMPRESSION_TYPE,
    Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    Errors.INVALID_RECORD,
    Errors.CORRUPT_MESSAGE,
}


def agree(case: Case, mine: tuple[int, str, bytes], theirs: tuple[int, str, bytes]) -> bool:
    if theirs[0] == Errors.UNKNOWN_SERVER_ERROR:
        return mine[0] in NAMED_HERE or mine[0] == theirs[0] or "negative time" in case.name
    if mine[0] or theirs[0]:
        return mine[0] == theirs[0]
    # Only some code paths of Kafka put append times of format 0 into the time index. kafkapy never does.
    no_times = not case.down and case.magic == 0 and case.append_time
    return same(mine[2], theirs[2]) and (mine[1] == theirs[1] or no_times)


@pytest.mark.parametrize("cases", [pairs(), oddities(), downwards()], ids=["pairs", "oddities", "downwards"])
def test_records_are_validated_and_converted_as_by_kafka(cases: list[Case]) -> None:
    classpath = toolchain.maven_classpath(brokers.KAFKA_POM, brokers.KAFKA_VERSION)
    classes = toolchain.java_classes(HERE / "reference", classpath)
    java = [toolchain.find("java"), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{classpath}"]
    done = subprocess.run(
        [*java, "kafkapy.reference.Convert"],
        input="".join(case.line for case in cases),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(cases)
    differing = [
        f"{case.name}: {answer[:200]} here {mine[0]} {mine[1]} {mine[2].hex()[:160]}"
        for case, answer in zip(cases, answers, strict=True)
        if not agree(case, mine := ours(case), kafkas(answer))
    ]
    assert not differing, f"{len(differing)} of {len(cases)}:\n" + "\n".join(differing[:20])
