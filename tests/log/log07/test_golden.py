"""Every message of logs that Kafka 0.7.2 wrote is read at the same offset as by Kafka's consumer."""

import shutil

import pytest

from kafkapy.record.kafka07 import iter_messages, messages_in
from kafkapy.record.sets_07 import check_inner_sets, check_set
from tests.harness.golden_07 import GOLDEN_07, expected

from .bench import Bench, contents, put_set, stored

PARTITIONS = sorted(path.name for path in (GOLDEN_07 / "data").iterdir() if path.is_dir())


@pytest.mark.parametrize("marker", [True, False])
@pytest.mark.parametrize("name", PARTITIONS)
def test_golden_logs_are_read_byte_for_byte(tmp_path, name, marker):
    shutil.copytree(GOLDEN_07 / "data", tmp_path / "data")
    if not marker:  # so that the newest segment is recovered
        (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    before = stored(tmp_path / "data" / name)
    topic, _, number = name.rpartition("-")
    log = Bench(tmp_path / "data", count=2).log(topic, int(number))
    found = []
    offset = log.start
    while (region := log.read(offset, 2000)) is not None:
        data = region.read()
        at = 0
        for message in iter_messages(data):
            at = message.end
            for inner in messages_in(message):
                found.append((offset + message.position, offset + message.end, bytes(inner.payload)))
        assert at, "the largest message has less than 2000 bytes"
        offset += at
    assert found == expected(name)
    assert contents(log) == stored(tmp_path / "data" / name) == before


@pytest.mark.parametrize("name", PARTITIONS)
def test_golden_logs_may_be_appended(tmp_path, name):
    data = stored(GOLDEN_07 / "data" / name)
    log = Bench(tmp_path, flush_messages=1).log()
    assert put_set(log, data) == data
    assert contents(log) == data
    assert check_inner_sets(data, check_set(data, 1 << 20)) == len(expected(name))
