"""`log find`: lookups agree with reading all records, scans agree with a filter in Python."""

import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.log.offline import lookups
from kafkapy.log.offline.lookups import end_offset_of, position_of, record_at, record_since
from kafkapy.log.offline.places import places_in
from kafkapy.log.offline.stored_batches import LogReader
from kafkapy.record.batch import build
from kafkapy.record.columns import column_builder
from kafkapy.tools.log.find.scan import COLUMNS, Matcher, literal_of, record_in
from tests.harness.examples import examples

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
V2 = GOLDEN / "kafka-3.9.1-v2" / "data"
NAME = "00000000000000000000"


def everything(place):
    """Yield (segment, batch header, record) of all records."""
    found = []
    for segment in place.segments:
        with LogReader(segment.path) as log:
            found += [(segment, batch.header, record) for batch in log.batches() for record in batch.records()]
    return found


def all_places():
    folders = ("kafka-3.9.1-v2", "kafka-3.9.1-v0-v1", "kafka-0.10.2.2", "kafka-0.8.2.2")
    return [place for folder in folders for place in places_in([GOLDEN / folder / "data"])]


@pytest.mark.parametrize("place", all_places(), ids=lambda place: f"{place.directory.parts[-3]}-{place.name}")
def test_every_record_is_found_by_its_offset_and_by_its_time(place):
    records = [record for _, _, record in everything(place)]
    end = place.segments[0].base_offset if not records else records[-1].offset + 3
    for offset in range(place.segments[0].base_offset, end):
        expected = next((one for one in records if one.offset >= offset), None)
        found = record_at(place.segments, offset)
        assert (found.record if found else None) == expected
    times = sorted({record.timestamp for record in records})
    for time in [*times[::3], *(time + 1 for time in times[::3])]:
        if time >= 0:
            expected = next((one for one in records if one.timestamp >= time), None)
            found = record_since(place.segments, time)
            assert (found.record if found else None) == expected, time


def test_a_lookup_reads_only_a_small_part_of_the_segment(monkeypatch):
    """It reads the headers between two index entries, and the one batch."""
    place = next(iter(places_in([V2 / "v2-none-0"])))
    read = []
    real = lookups.LogReader

    class Counting(real):
        def _bytes(self, position, size):
            read.append(size)
            return super()._bytes(position, size)

    monkeypatch.setattr(lookups, "LogReader", Counting)
    assert record_at(place.segments, 60).record.offset == 60
    assert sum(read) < 2000


@pytest.mark.parametrize("damage", [lambda p: p.unlink(), lambda p: p.write_bytes(b"\0\0\0\5\0\0\0\7" * 3)])
def test_records_are_found_without_a_usable_index(tmp_path, damage):
    copy = tmp_path / "t-0"
    shutil.copytree(V2 / "v2-none-0", copy)
    for path in (copy, *copy.iterdir()):
        path.chmod(0o755)
    for path in copy.glob("*.index"):
        damage(path)
    (place,) = places_in([copy])
    assert record_at(place.segments, 100).record.offset == 100
    assert position_of(place.segments[0], 1) == 80


@pytest.mark.parametrize("folder", ["kafka-3.9.1-v2/data/v2-gzip-0", "kafka-3.9.1-v0-v1/data/v1-gzip-0"])
def test_an_index_entry_that_points_behind_the_record_is_ignored(tmp_path, folder):
    copy = tmp_path / "t-0"
    shutil.copytree(GOLDEN / folder, copy)
    for path in (copy, *copy.iterdir()):
        path.chmod(0o755)
    (place,) = places_in([copy])
    records = [record for _, _, record in everything(place)]
    with LogReader(place.segments[0].path) as log:
        last = [batch.position for batch in log.batches()][-1]
    (copy / f"{NAME}.index").write_bytes((1).to_bytes(4, "big") + last.to_bytes(4, "big"))
    for record in records:
        assert record_at(place.segments, record.offset).record == record


def test_the_end_of_a_segment_is_found_from_its_index(tmp_path):
    for place in all_places():
        for segment in place.segments:
            with LogReader(segment.path) as log:
                ends = [batch.header.last_offset + 1 for batch in log.batches()]
            assert end_offset_of(segment) == (ends[-1] if ends else segment.base_offset)


def test_a_preallocated_index_is_used_up_to_its_zeros(tmp_path):
    copy = tmp_path / "t-0"
    shutil.copytree(V2 / "v2-none-0", copy)
    for path in (copy, *copy.iterdir()):
        path.chmod(0o755)
    for path in copy.glob("*index"):
        path.write_bytes(path.read_bytes() + bytes(12 * 8 * 100))
    (place,) = places_in([copy])
    records = [record for _, _, record in everything(place)]
    assert record_at(place.segments, 150).record == records[150]
    expected = next(one for one in records if one.timestamp >= 1600000008000)
    assert record_since(place.segments, 1600000008000).record == expected


texts = st.binary(max_size=6)
contents = st.none() | st.sampled_from([b"", b"a", b"ab", b"abab", b"xaby", b"\xff\0"]) | texts


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.tuples(contents, contents), min_size=1, max_size=30),
    contents,
    st.sampled_from(["ab", "a.?b$", "^a", "x|y", "(ab)+", "a{2}", "[a-b]b"]),
)
def test_a_scan_finds_the_same_records_as_a_filter(pairs, key, expression):
    records = [(number, k, v, (("h", v),)) for number, (k, v) in enumerate(pairs)]
    builder = column_builder(COLUMNS)
    parts = [*builder.feed(build(records)), builder.finish()]
    pattern = re.compile(expression.encode(), re.DOTALL)
    by_value = Matcher(value=pattern)
    both = Matcher(key=key, value=pattern) if key is not None else by_value
    for matcher, wants_key in ((by_value, False), (both, key is not None)):
        found = [record_in(part, row) for part in parts if part for row in matcher.rows(part)]
        expected = [
            (number, k, v, (("h", v),))
            for number, (k, v) in enumerate(pairs)
            if v is not None and pattern.search(v) and (not wants_key or k == key)
        ]
        assert [(one.offset, one.key, one.value, one.headers) for one in found] == expected
    if key is not None:
        found = [record_in(part, row).offset for part in parts if part for row in Matcher(key=key).rows(part)]
        assert found == [number for number, (k, _) in enumerate(pairs) if k == key]


@pytest.mark.parametrize(
    ("expression", "literal"),
    [
        ("abc", b"abc"),
        ("ab.*cdef", b"cdef"),
        ("(abc)?de", b"de"),
        ("(abc)+de", b"abc"),
        ("(abc)(de)", b"abcde"),
        ("abc|de", b""),
        ("x(?:abc|de)yz", b"yz"),
        ("^abc$", b"abc"),
        ("a{3}bc", b"bc"),
        ("(?i:abc)d", b"d"),
        ("(?!abc)de", b"de"),
        ("é", "é".encode()),
        ("", b""),
    ],
)
def test_the_literal_of_an_expression_is_in_every_match(expression, literal):
    assert literal_of(re.compile(expression.encode())) == literal
    assert literal_of(re.compile(expression.encode(), re.IGNORECASE)) == b""


def found_by(kafkapy, *words):
    code, out, _ = kafkapy("log", "find", "--json", *words)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == (0 if lines else 1)
    return [(one["topic"], one["partition"], one["offset"]) for one in lines]


def test_a_topic_is_searched_in_all_its_partitions(kafkapy):
    topic = GOLDEN / "kafka-0.8.2.2" / "data" / "v0-four"
    assert found_by(kafkapy, "--offset", 2, topic) == [("v0-four", partition, 2) for partition in range(4)]
    assert found_by(kafkapy, "--value", "^four 1$", topic)[0][0] == "v0-four"


def test_a_scan_is_bounded_by_offsets_and_times(kafkapy):
    path = V2 / "v2-zstd-0"
    everywhere = found_by(kafkapy, "--key", "k16", path)
    assert len(everywhere) > 5
    middle = everywhere[len(everywhere) // 2][2]
    assert found_by(kafkapy, "--key", "k16", "--from", middle, path) == everywhere[len(everywhere) // 2 :]
    assert found_by(kafkapy, "--key", "k16", "--to", middle, path) == everywhere[: len(everywhere) // 2]
    assert found_by(kafkapy, "--key", "k16", "--max", 2, path) == everywhere[:2]
    assert found_by(kafkapy, "--key", "k16", "--from", "2099-01-01", path) == []
    assert found_by(kafkapy, "--key", "k16", "--to", "@1500000000000", path) == []


def test_case_can_be_ignored(kafkapy):
    path = V2 / "v2-none-0"
    assert found_by(kafkapy, "--value", "NULL KEY", path) == []
    assert found_by(kafkapy, "-i", "--value", "NULL KEY", path) == [("v2-none", 0, 1), ("v2-none", 0, 129)]


def test_a_binary_key_is_given_in_hex(kafkapy, tmp_path):
    (tmp_path / "t-0").mkdir()
    path = tmp_path / "t-0" / f"{NAME}.log"
    path.write_bytes(build([(0, b"\xff\0", b"v", ()), (0, b"", b"empty", ())]))
    assert found_by(kafkapy, "--key-hex", "ff00", path) == [("t", 0, 0)]
    assert found_by(kafkapy, "--key", "", path) == [("t", 0, 1)]


def test_for_a_missing_offset_the_next_one_is_named(kafkapy):
    code, out, err = kafkapy("log", "find", "--offset", 102, V2 / "v2-compacted-none-0")
    assert (code, out, err) == (1, "", "v2-compacted-none-0 has no offset 102; the next record is at 106.\n")
    code, _, err = kafkapy("log", "find", "--offset", 9999, V2 / "v2-compacted-none-0")
    assert (code, err) == (1, "v2-compacted-none-0 has no offset 9999.\n")
    code, _, err = kafkapy("log", "find", "--time", "2099-01-01", V2 / "v2-none-0")
    assert (code, err) == (1, "v2-none-0 has no record of that time or later.\n")


def test_control_records_are_shown_as_such(kafkapy):
    _, out, _ = kafkapy("log", "find", "--offset", 3, V2 / "v2-txn-0")
    assert out.rstrip().endswith("\tnull\t(control record: COMMIT)")
    _, out, _ = kafkapy("log", "find", "--json", "--offset", 3, V2 / "v2-txn-0")
    assert json.loads(out)["controlType"] == "COMMIT"


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_internal_topics_are_decoded(kafkapy, form):
    path = V2 / "__consumer_offsets-1"
    _, out, _ = kafkapy("log", "find", "--offset", 7, "--offsets-decoder", *form, path)
    assert '"group":"group-left"' in out
    assert '"commitTimestamp":1795266858607' in out


def test_messages_of_0_7_are_found_by_position_and_by_value(kafkapy):
    data = GOLDEN / "kafka-0.7.2" / "data"
    code, out, _ = kafkapy("log", "find", "--offset", 55, data / "mixed-0")
    assert (code, out) == (0, "0:55\t-\tnull\tin gzip 1\n")
    _, out, _ = kafkapy("log", "find", "--value", "in gzip", data / "mixed-0")
    assert out == "0:55\t-\tnull\tin gzip 1\n0:55\t-\tnull\tin gzip 2\n"
    code, _, err = kafkapy("log", "find", "--time", "2024-01-01", data / "mixed-0")
    assert (code, "messages of Kafka 0.7 have no timestamps" in err) == (2, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "needs one of --offset, --time, or --key and --value"),
        (("--offset", "1", "--key", "k"), "needs one of"),
        (
            ("--offset", "1", "--from", "3"),
            "--from, --to and --ignore-case are for --key and --value, not for --offset",
        ),
        (("--value", "("), "--value '(' is not a regular expression: "),
        (("--key-hex", "xyz"), "--key-hex 'xyz' is not pairs of hexadecimal digits"),
        (("--time", "yesterday"), "--time 'yesterday' is not a time"),
        (("--key", "k", "--from", "soon"), "--from 'soon' is neither an offset nor a time"),
    ],
)
def test_wrong_options_are_reported_in_a_sentence(kafkapy, options, words):
    code, out, err = kafkapy("log", "find", *options, V2 / "v2-none-0")
    assert (code, out, words in err) == (2, "", True)


def test_a_path_that_is_no_log_is_reported_in_a_sentence(kafkapy, tmp_path):
    code, _, err = kafkapy("log", "find", "--offset", 1, tmp_path)
    assert (code, "has no segments and no partitions" in err) == (1, True)


def test_damage_is_reported_after_the_found_records(kafkapy, tmp_path):
    (tmp_path / "t-0").mkdir()
    path = tmp_path / "t-0" / f"{NAME}.log"
    path.write_bytes(
        build([(0, b"k", b"v", ())]) + b"rubbish, and more of it than a header has, so that it is seen......"
    )
    code, out, err = kafkapy("log", "find", "--key", "k", path)
    assert (code, out.count("\n"), str(path) in err) == (1, 1, True)
