"""Every segment of every folder is read to its last byte, as the tools read it, and has the expected batches."""

import pytest

from kafkapy.log.offline.stored_batches import LogReader
from kafkapy.record.compression import NAMES

from .support import FOLDERS, GOLDEN, expected, records_of


@pytest.mark.parametrize("folder", FOLDERS)
def test_segments_hold_the_expected_batches(folder):
    data = GOLDEN / folder / FOLDERS[folder]
    wanted = expected(folder)
    assert {path.parent.name for path in data.glob("*/*.log")} == set(wanted)
    for partition, batches in wanted.items():
        rest = iter(batches)
        for path in sorted((data / partition).glob("*.log")):
            with LogReader(path) as reader:
                end = 0
                for number, stored in enumerate(reader.batches()):
                    compare(path.name, number, stored, next(rest))
                    end = stored.end
                assert end == path.stat().st_size, path
        assert list(rest) == []


def compare(file, number, stored, wanted):
    head = stored.header
    assert (file, number) == (wanted["file"], wanted["batch"])
    assert stored.crc_is_right
    found = (stored.position, head.size, head.magic, NAMES[head.codec], head.last_offset, head.crc)
    assert found == tuple(wanted[key] for key in ("position", "size", "magic", "codec", "lastOffset", "crc"))
    if head.magic:
        assert head.max_timestamp == wanted["maxTimestamp"]
    records = [(one.offset, one.timestamp, one.key, one.value, one.headers) for one in stored.records()]
    if not wanted.get("control"):
        assert records == records_of([wanted])
    assert [one[0] for one in records] == [one["offset"] for one in wanted["records"]]
