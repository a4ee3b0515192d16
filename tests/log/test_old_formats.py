"""Message formats 0 and 1 in the log: appends, index entries, rolls, timestamps, and changes of the format."""

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.log.partition_log import BUSY
from kafkapy.record.batch import records_of
from kafkapy.record.compression import GZIP, LZ4, SNAPPY
from kafkapy.record.legacy import build_set, iter_entries
from tests.harness.examples import examples

from .support import NOW, Bench, batch, idempotent

VERSIONS = {0: "0.9.0", 1: "0.10.2", 2: "2.8"}


def config(magic, **settings):
    values = {name.replace("_", "."): value for name, value in settings.items()}
    return LogConfig({**values, "message.format.version": VERSIONS[magic]}, protocol_version="2.8-IV1")


def bench_of(tmp_path, magic, **settings):
    bench = Bench(tmp_path)
    bench.config = config(magic, **settings)
    return bench


def produced(magic, *values, codec=0, timestamp=NOW):
    """Return a set like an old producer's: several messages or, with a codec, one wrapper message with them."""
    return memoryview(bytearray(build_set([(timestamp, None, value) for value in values], magic, codec)))


def entries(log):
    """Return (header, bytes of its segment) of each entry of the log."""
    return [
        (header, data)
        for segment in log.segments
        for data in [segment.files.pread(segment.handle(), segment.size, 0)]
        for header in iter_entries(data)
    ]


def records(log):
    return [record for header, data in entries(log) for record in records_of(data, header)]


def index_of(segment):
    raw = segment.files.read(segment.path(".index"))
    return list(struct.iter_unpack(">ii", raw[: segment.offset_index.count * 8]))


def times_of(segment):
    raw = segment.files.read(segment.path(".timeindex"))
    return list(struct.iter_unpack(">qi", raw[: segment.time_index.count * 12]))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_set_of_several_messages_is_one_append(tmp_path, magic):
    log = bench_of(tmp_path, magic).load()
    results = log.append([produced(magic, b"a", b"b", b"c"), produced(magic, b"d", b"e")], 0)
    assert [(one.base_offset, one.last_offset) for one in results] == [(0, 2), (3, 4)]
    assert [(one.offset, one.value) for one in records(log)] == [(at, b"abcde"[at : at + 1]) for at in range(5)]
    assert {header.magic for header, _ in entries(log)} == {magic}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("interval", [0, 40, 100, 4096])
def test_every_message_of_a_set_may_get_an_index_entry(tmp_path, magic, interval):
    """The entries equal those of Kafka 3.9.1 and of a rebuilt index: offset, position, largest timestamp so far."""
    log = bench_of(tmp_path, magic, index_interval_bytes=interval).load()
    for first in range(0, 90, 3):
        stamped = [(NOW + first + at, None, b"x" * 10) for at in (0, 2, 1)]
        log.append([memoryview(bytearray(build_set(stamped, magic)))], 0)
    log.append([produced(magic, b"y", b"z", codec=GZIP)], 0)
    expected, times, since, largest = [], [], 0, (-1, 0)
    for header, _ in entries(log):
        if header.max_timestamp > largest[0]:
            largest = (header.max_timestamp, header.last_offset)
        if since > interval:
            expected.append((header.last_offset, header.position))
            if largest[0] > (times[-1][0] if times else -1):
                times.append(largest)
            since = 0
        since += header.size
    assert (len(expected) > 1) == (interval < 4096)
    (segment,) = log.segments
    log.close()
    if largest[0] > (times[-1][0] if times else -1):
        times.append(largest)  # added by the close
    assert index_of(segment) == expected
    assert times_of(segment) == times


def test_sets_with_more_messages_than_the_index_has_room_for_roll_before(tmp_path):
    log = bench_of(tmp_path, 0, index_interval_bytes=0, segment_index_bytes=12 * 20).load()
    for _ in range(20):
        log.append([produced(0, b"a", b"b", b"c", b"d", b"e", b"f", b"g")], 0)
    assert all(segment.offset_index.count <= segment.offset_index.capacity for segment in log.segments)
    assert all(segment.time_index.count <= segment.time_index.capacity for segment in log.segments)
    assert len(log.segments) == 5  # each index has room for the entries of four sets
    assert [one.offset for one in records(log)] == list(range(140))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_a_wrapper_has_the_offset_of_its_last_message(tmp_path, magic, codec):
    log = bench_of(tmp_path, magic).load()
    log.append([produced(magic, b"a")], 0)
    (result,) = log.append([produced(magic, b"b", b"c", codec=codec)], 0)
    assert (result.base_offset, result.last_offset) == (1, 2)
    assert [header.last_offset for header, _ in entries(log)] == [0, 2]
    assert [(one.offset, one.value) for one in records(log)] == [(0, b"a"), (1, b"b"), (2, b"c")]
    for offset in (1, 2):  # a read of either offset gets the wrapper
        region = log.read(offset, 1 << 20, max_offset=3).region
        (header,) = iter_entries(region.read())
        assert header.last_offset == 2


def test_a_compressed_set_of_format_0_that_becomes_too_large_is_refused_alone(tmp_path):
    """Its size is known only after the compression, under the lock. The other sets are still appended."""
    log = bench_of(tmp_path, 0, max_message_bytes=200, compression_type="gzip").load()
    large = bytes(at * 7 % 256 for at in range(190))
    verdicts = log.append([produced(0, b"a"), produced(0, large[:150]), produced(0, b"b")], 0)
    codes = [one.code if isinstance(one, KafkaError) else one.base_offset for one in verdicts]
    assert codes == [0, Errors.MESSAGE_TOO_LARGE, 1]
    assert [(one.offset, one.value) for one in records(log)] == [(0, b"a"), (1, b"b")]


@pytest.mark.parametrize("stored", [0, 1, 2])
@pytest.mark.parametrize("sent", [0, 1, 2])
@pytest.mark.parametrize("codec", [0, GZIP, LZ4])
def test_any_format_is_stored_in_the_topics(tmp_path, stored, sent, codec):
    log = bench_of(tmp_path, stored).load()
    values = [b"%d" % at for at in range(5)]
    one = batch(*values, codec=codec) if sent == 2 else produced(sent, *values, codec=codec)
    for first in (0, 5):
        (result,) = log.append([memoryview(bytearray(one))], 0)
        assert (result.base_offset, result.last_offset) == (first, first + 4)
    assert {header.magic for header, _ in entries(log)} == {stored}
    assert [(one.offset, one.value) for one in records(log)] == [(at, values[at % 5]) for at in range(10)]
    stamps = {one.timestamp for one in records(log)}
    assert stamps == ({-1} if 0 in (stored, sent) else {NOW})


@pytest.mark.parametrize("magic", [0, 1])
def test_producer_ids_are_for_format_2(tmp_path, magic):
    log = bench_of(tmp_path, magic).load()
    for one in (idempotent(b"a"), idempotent(b"a", transactional=True)):
        (refused,) = log.append([one], 0)
        assert refused.code == Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert log.log_end_offset == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_no_append_of_an_old_format_is_for_a_network_thread(tmp_path, magic):
    log = bench_of(tmp_path, magic).load()
    log.append([produced(magic, b"a")], 0)
    assert log.append([produced(magic, b"b")], 0, blocking=False) is BUSY
    log.update_config(config(2))
    log.append([batch(b"c")], 0)
    assert log.append([produced(magic, b"d")], 0, blocking=False) is BUSY
    assert log.append([batch(b"e")], 0, blocking=False) is not BUSY


def test_segments_roll_by_the_clock_where_messages_have_no_time(tmp_path):
    bench = bench_of(tmp_path, 0, segment_ms=1000)
    log = bench.load()
    log.append([produced(0, b"a")], 0)
    bench.clock.advance(1)
    log.append([produced(0, b"b")], 0)
    assert len(log.segments) == 1
    bench.clock.advance(0.5)
    log.append([produced(0, b"c")], 0)
    assert log.segments.base_offsets == [0, 2]


def test_segments_roll_by_the_messages_time_in_format_1(tmp_path):
    log = bench_of(tmp_path, 1, segment_ms=1000).load()
    for timestamp in (NOW, NOW + 1000, NOW + 1001):
        log.append([produced(1, b"a", timestamp=timestamp)], 0)
    assert log.segments.base_offsets == [0, 2]


def test_segments_roll_by_size_and_are_read_on(tmp_path):
    log = bench_of(tmp_path, 0, segment_bytes=200).load()
    for _ in range(20):
        log.append([produced(0, b"x" * 20, b"y" * 20)], 0)
    assert len(log.segments) > 5
    assert all(segment.size <= 200 for segment in log.segments)
    assert [one.offset for one in records(log)] == list(range(40))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_of_an_old_format_is_loaded_and_takes_appends(tmp_path, magic, clean):
    settings = {"segment_bytes": 300, "index_interval_bytes": 50}
    log = bench_of(tmp_path, magic, **settings).load()
    for at in range(10):
        log.append([produced(magic, b"%d" % at * 10, b"b", codec=GZIP if at % 2 else 0)], 0)
    before = records(log)
    log.close()
    indexes = [(index_of(segment), times_of(segment)) for segment in log.segments]
    log = bench_of(tmp_path, magic, **settings).load(clean=clean)
    assert log.log_end_offset == 20
    assert records(log) == before
    if clean:
        assert [(index_of(segment), times_of(segment)) for segment in log.segments] == indexes
    log.append([produced(magic, b"more")], 0)
    assert records(log)[-1][:4] == (20, -1 if magic == 0 else NOW, None, b"more")
    for offset in range(21):
        region = log.read(offset, 1 << 20, max_offset=21).region
        assert next(iter(iter_entries(region.read()))).last_offset >= offset


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_truncation_removes_the_entries_that_reach_the_offset(tmp_path, magic, codec):
    log = bench_of(tmp_path, magic).load()
    for _ in range(3):
        log.append([produced(magic, b"a", b"b", codec=codec)], 0)
    log.truncate_to(3)
    assert log.log_end_offset == 3 if codec == 0 else 2
    log.append([produced(magic, b"c")], 0)
    assert [one.value for one in records(log)][-2:] == [b"a" if codec == 0 else b"b", b"c"]


def test_a_torn_message_is_cut_off_by_recovery(tmp_path):
    for magic in (0, 1):
        bench = bench_of(tmp_path / str(magic), magic)
        log = bench.load()
        log.append([produced(magic, b"a"), produced(magic, b"b" * 100)], 0)
        log.close()
        path = log.segments.active.path(".log")
        with open(path, "r+b") as file:
            file.truncate(log.segments.active.size - 1)
        log = bench_of(tmp_path / str(magic), magic).load(clean=False)
        assert [(one.offset, one.value) for one in records(log)] == [(0, b"a")]


def test_the_message_format_changes_while_the_log_runs(tmp_path):
    """Stored records keep their format, new ones get the new format, and all of them can be read."""
    log = bench_of(tmp_path, 2, index_interval_bytes=1).load()
    expected = []
    for at, magic in enumerate((2, 1, 0, 1, 2, 0, 2)):
        log.update_config(config(magic, index_interval_bytes=1))
        log.append([produced(1, b"%d" % at, timestamp=NOW + at)], 5)
        log.append([batch(b"%d" % at, codec=GZIP, timestamp=NOW + at)], 5)
        expected += [(magic, 2 * at), (magic, 2 * at + 1)]
    found = [(header.magic, header.last_offset) for header, _ in entries(log)]
    assert found == expected
    for offset in range(14):
        region = log.read(offset, 1 << 20, max_offset=14).region
        assert next(iter(iter_entries(region.read()))).last_offset == offset
    assert log.offset_for_timestamp(NOW + 1)[:2] == (NOW + 1, 2)
    assert log.offset_for_timestamp(NOW + 2)[:2] == (NOW + 3, 6)  # the two before have format 0, without timestamps
    log.close()
    log = bench_of(tmp_path, 2).load(clean=False)
    assert [(header.magic, header.last_offset) for header, _ in entries(log)] == expected


def test_leader_epochs_are_kept_for_format_2_alone(tmp_path):
    log = bench_of(tmp_path, 2).load()
    log.append([batch(b"a")], 3)
    assert "leader-epoch-checkpoint" in Bench(tmp_path).names()
    log.update_config(config(1))
    assert "leader-epoch-checkpoint" not in Bench(tmp_path).names()
    log.assign_leader_epoch(4)
    log.append([produced(1, b"b"), batch(b"c")], 4)
    assert log.leader_epochs.entries == ()
    assert log.end_offset_for_epoch(3) == (-1, -1)
    log.update_config(config(2))
    log.append([produced(1, b"d")], 4)
    assert log.leader_epochs.entries == ((4, 3),)  # begins at the first batch with a leader epoch
    log.close()
    log = bench_of(tmp_path, 1).load()
    assert log.leader_epochs.entries == ()
    assert "leader-epoch-checkpoint" not in Bench(tmp_path).names()


@pytest.mark.parametrize("codec", [0, GZIP])
def test_times_are_found_in_single_messages_and_in_wrappers(tmp_path, codec):
    log = bench_of(tmp_path, 1, index_interval_bytes=100, segment_bytes=2000).load()
    for at in range(100):
        data = build_set([(NOW + 10 * at + each, None, b"v" * 20) for each in (0, 3, 1)], 1, codec)
        log.append([memoryview(bytearray(data))], 0)
    for at in (0, 1, 50, 99):
        for wanted, offset, found in ((0, 0, 0), (1, 1, 3), (2, 1, 3), (3, 1, 3)):
            answer = log.offset_for_timestamp(NOW + 10 * at + wanted)
            assert answer == (NOW + 10 * at + found, 3 * at + offset, -1)
    assert log.offset_for_timestamp(NOW + 994) is None
    assert log.offset_of_max_timestamp(log.log_end_offset) == (NOW + 993, 298, -1)


def test_messages_without_times_have_no_largest_one(tmp_path):
    log = bench_of(tmp_path, 0).load()
    log.append([produced(0, b"a")], 0)
    assert log.offset_of_max_timestamp(log.log_end_offset) is None
    log = bench_of(tmp_path / "1", 1).load()
    log.append([produced(1, b"a", timestamp=-1)], 0)
    assert log.offset_of_max_timestamp(log.log_end_offset) is None


def test_zstd_is_not_stored_while_a_broker_may_not_know_it(tmp_path):
    bench = Bench(tmp_path)
    bench.config = LogConfig(protocol_version="2.0-IV1")
    log = bench.load()
    (refused,) = log.append([batch(b"a", codec=4)], 0)
    assert refused.code == Errors.UNSUPPORTED_COMPRESSION_TYPE
    assert not isinstance(log.append([batch(b"a", codec=1)], 0)[0], KafkaError)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from([0, 1, 2]),  # the topic's message format
            st.sampled_from([0, 1, 2]),  # the producer's message format
            st.sampled_from([0, GZIP, SNAPPY, LZ4]),
            st.integers(1, 5),
            st.booleans(),  # True to close the log and load it again
        ),
        min_size=1,
        max_size=10,
    ),
    segment_bytes=st.sampled_from([300, 100_000]),
    clean=st.booleans(),
)
def test_any_mixture_of_formats_is_what_a_plain_list_says(tmp_path_factory, steps, segment_bytes, clean):
    bench = bench_of(tmp_path_factory.mktemp("mixed"), 2, segment_bytes=segment_bytes, index_interval_bytes=60)
    log = bench.load()
    model = []
    for number, (stored, sent, codec, count, again) in enumerate(steps):
        log.update_config(config(stored, segment_bytes=segment_bytes, index_interval_bytes=60))
        values = [b"%d.%d" % (number, at) for at in range(count)]
        stamp = NOW + number
        if sent == 2:
            one = batch(*values, codec=codec, timestamp=stamp)
        else:
            one = produced(sent, *values, codec=codec, timestamp=stamp)
        (result,) = log.append([one], 0)
        assert not isinstance(result, KafkaError)
        assert result.base_offset == len(model)
        model += [(len(model) + at, -1 if 0 in (stored, sent) else stamp, value) for at, value in enumerate(values)]
        if again:
            log.close()
            bench.config = config(stored, segment_bytes=segment_bytes, index_interval_bytes=60)
            log = bench.load(clean=clean)
    assert [(one.offset, one.timestamp, one.value) for one in records(log)] == model
    # Only with one segment: as in Kafka, a segment without timestamps goes by its file's time, and is searched in vain.
    for number in range(len(steps) if len(log.segments) == 1 else 0):
        expected = next(((stamp, offset) for offset, stamp, _ in model if stamp >= NOW + number), None)
        found = log.offset_for_timestamp(NOW + number)
        assert (found and (found.timestamp, found.offset)) == expected
    for offset in range(len(model)):
        region = log.read(offset, 1 << 20, max_offset=len(model)).region
        data = region.read()
        header = next(iter(iter_entries(data)))
        assert offset in [one.offset for one in records_of(data, header)]
