"""Recovery of logs in message formats 0, 1, and mixed with 2, that Kafka 0.8.2.2, 0.10.2.2 and 3.9.1 wrote.

`expected` in each folder describes the files: one line for each stored batch or message, with its position.
"""

import json
import shutil
from itertools import groupby

import pytest

from kafkapy.log import names
from kafkapy.log.config import LogConfig
from kafkapy.log.partition_log import PartitionLog

from .support import GOLDEN, Bench

FOLDERS = ("kafka-0.8.2.2", "kafka-0.10.2.2", "kafka-3.9.1-v0-v1")
CONFIG = LogConfig({"segment.index.bytes": 4096})


def partitions():
    found = []
    for folder in FOLDERS:
        for path in sorted((GOLDEN / folder / "expected").glob("*.jsonl")):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            if any(line["magic"] < 2 for line in lines):
                found.append(pytest.param(folder, path.stem, lines, id=f"{folder}-{path.stem}"))
    return found


PARTITIONS = partitions()


def loaded(tmp_path, folder, name, damage=lambda directory: None):
    """Return the log that is loaded after an unclean stop, from a copy without indexes and snapshots."""
    copy = tmp_path / name
    copy.mkdir()
    for path in (GOLDEN / folder / "data" / name).glob("*.log"):
        shutil.copy(path, copy)
    damage(copy)
    topic, _, partition = name.rpartition("-")
    bench = Bench(tmp_path)
    return PartitionLog.load(bench.env, str(copy), topic, int(partition), CONFIG, clean=False)


def content(log):
    return {segment.base_offset: segment.handle().path for segment in log.segments}


def last_file(lines):
    """Return (file, its lines) of the last segment with records."""
    *_, (file, of_it) = ((file, list(group)) for file, group in groupby(lines, lambda line: line["file"]))
    return file, of_it


@pytest.mark.parametrize(("folder", "name", "lines"), PARTITIONS)
def test_nothing_is_lost_of_a_log_without_damage(tmp_path, folder, name, lines):
    log = loaded(tmp_path, folder, name)
    assert log.log_end_offset == max(lines[-1]["lastOffset"] + 1, log.segments.active.base_offset)
    for path in (GOLDEN / folder / "data" / name).glob("*.log"):
        assert (tmp_path / name / path.name).read_bytes() == path.read_bytes()
    for line in lines:
        segment = next(one for one in log.segments if names.file_name(one.base_offset, names.LOG) == line["file"])
        assert segment.locate(line["lastOffset"], segment.size)[:2] == (line["position"], line["size"])
    for file, of_it in groupby(lines, lambda line: line["file"]):
        segment = next(one for one in log.segments if names.file_name(one.base_offset, names.LOG) == file)
        stamps = [line.get("maxTimestamp", -1) for line in of_it]
        assert segment.max_timestamp[0] == max(-1, *(-1 if stamp is None else stamp for stamp in stamps), -1)


@pytest.mark.parametrize(("folder", "name", "lines"), PARTITIONS)
def test_a_torn_message_is_cut_off(tmp_path, folder, name, lines):
    file, of_it = last_file(lines)
    last = of_it[-1]

    def tear(directory):
        with open(directory / file, "r+b") as opened:
            opened.truncate(last["position"] + last["size"] - 7)

    log = loaded(tmp_path, folder, name, tear)
    assert (tmp_path / name / file).stat().st_size == last["position"]
    expected = of_it[-2]["lastOffset"] + 1 if len(of_it) > 1 else int(file[:20])
    assert log.log_end_offset == expected
    assert log.segments.active.base_offset == int(file[:20])  # the later segments are gone


@pytest.mark.parametrize(("folder", "name", "lines"), PARTITIONS)
def test_a_flipped_bit_ends_the_log(tmp_path, folder, name, lines):
    hit = lines[len(lines) // 2]

    def flip(directory):
        data = bytearray((directory / hit["file"]).read_bytes())
        data[hit["position"] + hit["size"] - 1] ^= 1
        (directory / hit["file"]).write_bytes(data)

    log = loaded(tmp_path, folder, name, flip)
    before = [line for line in lines if line["file"] == hit["file"] and line["position"] < hit["position"]]
    assert log.log_end_offset == (before[-1]["lastOffset"] + 1 if before else int(hit["file"][:20]))
    assert log.segments.active.base_offset == int(hit["file"][:20])
    assert log.segments.active.size == hit["position"]
