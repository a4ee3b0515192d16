"""`kafkapy log stats` on the files of real brokers and on damaged ones; its figures of keys and compaction."""

import itertools
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from kafkapy.record import compression, control
from kafkapy.record.batch import build
from kafkapy.tools.log.stats.plot import _broad
from kafkapy.tools.log.stats.totals import Stats
from tests.harness.markers import encode_marker

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
V2 = GOLDEN / "kafka-3.9.1-v2" / "data"
FOLDERS = {"kafka-3.9.1-v2": "data", "kafka-3.9.1-v0-v1": "data", "kafka-0.10.2.2": "data", "kafka-0.8.2.2": "data",
           "kafka-3.9.1-recovery": "after"}  # fmt: skip


def stats_of(kafkapy, *words):
    result = kafkapy("log", "stats", "--json", *words)
    assert (result.code, result.err) == (0, "")
    return json.loads(result.out)


def expected(folder, partition):
    path = GOLDEN / folder / "expected" / f"{partition}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def summed(figures, batches, data):
    """Return {codec or format: batches, data records, bytes}."""
    found = {}
    for batch in batches:
        one = found.setdefault(figures(batch), {"batches": 0, "records": 0, "bytes": 0})
        one["batches"] += 1
        one["records"] += len(batch["records"]) if batch in data else 0
        one["bytes"] += batch["size"]
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_figures_of_golden_partitions_agree_with_kafka(kafkapy, folder):
    found = stats_of(kafkapy, "--all", GOLDEN / folder / FOLDERS[folder])
    assert len(found["partitions"]) == found["total"]["partitions"] > 5
    for one in found["partitions"]:
        batches = expected(folder, one["name"])
        data = [batch for batch in batches if not batch.get("control")]
        records = [record for batch in data for record in batch["records"]]
        assert one["batches"] == len(batches), one["name"]
        assert one["records"] == len(records)
        assert one["controlBatches"] == len(batches) - len(data)
        assert one["emptyBatches"] == sum(not batch["records"] for batch in batches)
        assert one["bytes"] == one["batchBytes"] == sum(batch["size"] for batch in batches)
        assert one["nullKeys"] == sum(record["key"] is None for record in records)
        tombstones = [record for record in records if record["key"] is not None and record["value"] is None]
        assert one["tombstones"] == len(tombstones)
        assert one["headers"] == sum(len(record.get("headers", ())) for record in records)
        assert one["lastOffset"] == (batches[-1]["lastOffset"] if batches else None)
        stamps = [record["timestamp"] for record in records if record["timestamp"] not in (None, -1)]
        assert one["firstTimestamp"] == min(stamps, default=None)
        assert one["lastTimestamp"] == max(stamps, default=None)
        codecs = {
            name: {key: figures[key] for key in ("batches", "records", "bytes")}
            for name, figures in one["codecs"].items()
        }
        assert codecs == summed(lambda batch: batch["codec"], batches, data)
        assert one["formats"] == summed(lambda batch: str(batch["magic"]), batches, data)
        markers = [record["controlType"] for batch in batches if batch.get("control") for record in batch["records"]]
        assert one["transactions"]["aborted"] == markers.count("ABORT")
        assert one["transactions"]["committed"] == markers.count("COMMIT")
        assert one["producers"] == len({batch.get("producerId", -1) for batch in batches} - {-1})
        assert one["keys"] <= len({json.dumps(record["key"]) for record in records if record["key"] is not None})
    total = found["total"]
    for name in ("batches", "records", "bytes", "tombstones", "gaps", "segments"):
        assert total[name] == sum(one[name] for one in found["partitions"])


def test_gaps_of_a_cleaned_partition_are_counted(kafkapy):
    (one,) = stats_of(kafkapy, V2 / "v2-compacted-none-0")["partitions"]
    offsets = [record["offset"] for batch in expected("kafka-3.9.1-v2", one["name"]) for record in batch["records"]]
    wanted = [(a, b - a - 1) for a, b in itertools.pairwise(offsets) if b > a + 1]
    assert [(gap["after"], gap["missing"]) for gap in one["largestGaps"]] == wanted
    assert (one["gaps"], one["missingOffsets"]) == (len(wanted), sum(missing for _, missing in wanted))


def test_transactions_are_counted(kafkapy):
    (one,) = stats_of(kafkapy, V2 / "v2-txn-open-0")["partitions"]
    found = one["transactions"]
    assert (found["committed"], found["aborted"], found["open"], found["abortedRecords"]) == (1, 0, 1, 0)
    assert 0 < found["openRecords"] < found["records"]
    assert [producer["openFrom"] for producer in one["largestProducers"]].count(2) == 1
    result = kafkapy("log", "stats", V2 / "v2-txn-open-0")
    assert "has one open since offset 2" in result.out


@pytest.mark.parametrize("partition", ["none-0", "gzip-0", "mixed-0", "snappy-0", "small-segments-0"])
def test_partitions_of_kafka_07_are_counted_in_their_format(kafkapy, partition):
    (one,) = stats_of(kafkapy, GOLDEN / "kafka-0.7.2" / "data" / partition)["partitions"]
    stored = expected("kafka-0.7.2", partition)
    assert one["batches"] == len(stored)
    assert one["bytes"] == one["batchBytes"] == sum(line["size"] for line in stored)
    assert one["records"] == one["nullKeys"] == sum(len(line["messages"]) for line in stored)
    assert set(one["formats"]) == {f"0.7 magic {line['magic']}" for line in stored}
    assert {name: each["batches"] for name, each in one["codecs"].items()} == {
        codec: sum(line["codec"] == codec for line in stored) for codec in {line["codec"] for line in stored}
    }
    assert one["lastOffset"] == stored[-1]["offset"]


def segment(directory, *batches, offset=0):
    directory.mkdir(exist_ok=True)
    path = directory / f"{offset:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def keyed(keys, base_offset=0, value=b"0123456789", **more):
    return build([(1_700_000_000_000, key, value, ()) for key in keys], base_offset=base_offset, **more)


def test_the_records_that_compaction_would_remove_are_exact_while_the_keys_fit(kafkapy, tmp_path):
    segment(tmp_path / "t-0", keyed([b"a", b"b", b"a", None, b"c"]))
    segment(tmp_path / "t-0", keyed([b"a", b"d"], 5, codec=compression.GZIP), offset=5)
    segment(tmp_path / "t-0", keyed([b"b"], 7, value=None), offset=7)
    (one,) = stats_of(kafkapy, tmp_path / "t-0")["partitions"]
    # a, c, d and the tombstone of b stay; three records and the one without a key are removed.
    assert one["keys"] == 4
    assert one["compaction"]["exact"]
    assert one["compaction"]["recordsGone"] == one["records"] - 4 == 4
    each = len(keyed([b"a"])) - 61
    assert one["compaction"]["bytesGone"] == one["recordBytes"] - 3 * each - (each - 10)
    assert (one["compaction"]["tombstonesLeft"], one["compaction"]["tombstoneBytesLeft"]) == (1, each - 10)
    assert one["largestKeys"][0] == {"key": "a", "bytes": 3 * each, "error": 0, "records": 3}


def test_aborted_records_neither_stay_nor_replace_others(kafkapy, tmp_path):
    fields = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    marker = build(
        [(5, control.encode_key(control.ABORT), encode_marker(0), ())], base_offset=3, control=True, **fields
    )
    segment(tmp_path / "t-0", keyed([b"a"]), keyed([b"a", b"b"], 1, base_sequence=0, **fields), marker)
    (one,) = stats_of(kafkapy, tmp_path / "t-0")["partitions"]
    assert one["compaction"]["recordsGone"] == 1  # the first record of a, also without a transaction index
    (tmp_path / "t-0" / f"{0:020d}.txnindex").write_bytes(b"an index says that there are aborted transactions")
    (one,) = stats_of(kafkapy, tmp_path / "t-0")["partitions"]
    assert (one["keys"], one["compaction"]["recordsGone"]) == (1, 2)
    assert one["transactions"]["abortedRecords"] == 2


def test_with_more_keys_than_memory_the_figures_are_estimates_and_marked_so(kafkapy, tmp_path):
    groups = [keyed([b"key-%d" % key for key in range(at, at + 1000)], at) for at in range(0, 60_000, 1000)]
    segment(tmp_path / "t-0", *groups, keyed([b"large"] * 5000, 60_000, value=bytes(300)))
    (one,) = stats_of(kafkapy, "--key-memory", "1", tmp_path / "t-0")["partitions"]
    assert not one["keysExact"]
    assert not one["compaction"]["exact"]
    assert abs(one["keys"] / 60_001 - 1) < 0.1
    assert one["largestKeys"][0]["key"] == "large"
    assert one["largestKeys"][0]["bytes"] - one["largestKeys"][0]["error"] >= 5000 * 300
    text = kafkapy("log", "stats", "--key-memory", "1", tmp_path / "t-0").out
    assert "from a sample of 1 key in 2" in text
    assert "about " in text


def test_the_keys_of_all_partitions_of_a_topic_are_counted_together(kafkapy, tmp_path):
    segment(tmp_path / "t-0", keyed([b"a", b"b"]))
    segment(tmp_path / "t-10", keyed([b"a", b"c", b"c"]))
    segment(tmp_path / "t-2")
    found = stats_of(kafkapy, tmp_path / "t")
    assert [one["name"] for one in found["partitions"]] == ["t-0", "t-2", "t-10"]
    assert (found["total"]["records"], found["total"]["keys"]) == (5, 4)
    assert {key["key"]: key["records"] for key in found["total"]["largestKeys"]} == {"a": 2, "b": 1, "c": 2}
    assert found["total"]["compaction"]["recordsGone"] == 1
    lines = kafkapy("log", "stats", tmp_path / "t").out.splitlines()
    assert " ".join(lines[0].split()) == "PARTITION SEGMENTS BATCHES RECORDS BYTES RATIO OFFSETS FROM TO"
    assert [line.split()[0] for line in lines[1:4]] == ["t-0", "t-2", "t-10"]


def test_empty_and_internal_partitions_of_a_log_directory_are_left_out_and_counted(kafkapy, tmp_path):
    segment(tmp_path / "t-0", keyed([b"a"]))
    segment(tmp_path / "t-1")
    segment(tmp_path / "u-0", keyed([b"a", b"b"]))
    segment(tmp_path / "__consumer_offsets-0", keyed([b"a"]))
    segment(tmp_path / "__consumer_offsets-1")
    found = stats_of(kafkapy, tmp_path)
    assert [one["name"] for one in found["partitions"]] == ["t-0", "u-0"]
    assert (found["total"]["records"], found["leftOut"]) == (3, {"empty": 1, "internal": 2})
    out = kafkapy("log", "stats", tmp_path).out
    assert out.endswith("\nLeft out: 1 empty partition and 2 internal partitions (--all counts them too).\n")
    everything = stats_of(kafkapy, "--all", tmp_path)
    assert [one["name"] for one in everything["partitions"]] == [
        "__consumer_offsets-0", "__consumer_offsets-1", "t-0", "t-1", "u-0"]  # fmt: skip
    assert everything["leftOut"] == {"empty": 0, "internal": 0}
    assert "Left out" not in kafkapy("log", "stats", "--all", tmp_path).out


@pytest.mark.parametrize("path", ["t", "t-1", "__consumer_offsets", "__consumer_offsets-1"])
def test_a_partition_given_by_its_name_is_not_left_out(kafkapy, tmp_path, path):
    for name in ("t-0", "t-1", "__consumer_offsets-0", "__consumer_offsets-1"):
        segment(tmp_path / name)
    found = stats_of(kafkapy, tmp_path / path)
    assert len(found["partitions"]) == (1 if path.endswith("1") else 2)
    assert found["leftOut"] == {"empty": 0, "internal": 0}


def test_nothing_is_left_out_if_there_is_nothing_else(kafkapy, tmp_path):
    segment(tmp_path / "t-0")
    segment(tmp_path / "__consumer_offsets-0")
    assert len(stats_of(kafkapy, tmp_path)["partitions"]) == 2
    assert kafkapy("log", "stats", tmp_path).code == 0


def test_the_table_shows_the_figures_in_words(kafkapy):
    result = kafkapy("log", "stats", V2 / "v2-gzip-0")
    assert (result.code, result.err) == (0, "")
    rows = {line[:24].strip(): line[24:].strip() for line in result.out.splitlines()}
    (one,) = stats_of(kafkapy, V2 / "v2-gzip-0")["partitions"]
    wide = result.out
    assert f"{one['records']:,} of " in wide
    assert " : 1" in wide
    assert "█" in wide
    assert any(name.startswith("compaction") for name in rows)


def test_a_binary_key_is_shown_as_hex(kafkapy, tmp_path):
    segment(tmp_path / "t-0", keyed([b"\xff\x00", b"line\nend", b"x" * 100]))
    out = kafkapy("log", "stats", tmp_path / "t-0").out
    assert "  ff00 " in out
    assert "  line\\nend " in out
    assert "x... (100 bytes)" in out
    keys = stats_of(kafkapy, tmp_path / "t-0")["total"]["largestKeys"]
    assert {"base64": "/wA="} in [key["key"] for key in keys]
    assert [key["keyLength"] for key in keys if "keyLength" in key] == [100]


def test_an_empty_partition_has_nothing(kafkapy, tmp_path):
    segment(tmp_path / "t-0")
    result = kafkapy("log", "stats", tmp_path / "t-0")
    assert result.code == 0
    assert "none" in result.out
    assert stats_of(kafkapy, tmp_path / "t-0")["total"]["records"] == 0


def test_damage_is_reported_and_readable_records_are_counted(kafkapy, tmp_path):
    first = segment(tmp_path / "t-0", keyed([b"a"]), keyed([b"b"], 1))
    second = segment(tmp_path / "t-0", keyed([b"c"], 2), keyed([b"d"], 3), offset=2)
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    os.truncate(second, second.stat().st_size - 1)
    result = kafkapy("log", "stats", "--json", tmp_path / "t-0")
    size = len(keyed([b"a"]))
    sentences = [
        f"{first} is damaged: the batch at position {size} (base offset 1, {size} bytes) has a wrong CRC. "
        "The rest of the file is left out.",
        f"{second} has no whole batch from position {size} on: {size - 1} bytes are left over.",
    ]
    assert result.code == 1
    assert result.err.splitlines() == [f"kafkapy: {sentence}" for sentence in sentences]
    found = json.loads(result.out)["total"]
    assert (found["records"], found["damage"]) == (2, sentences)


def test_a_path_that_is_no_segment_is_reported_in_a_sentence(kafkapy, tmp_path):
    result = kafkapy("log", "stats", "/etc/passwd")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("kafkapy: /etc/passwd is not a segment file: its name is not an offset and .log")
    nonsense = segment(tmp_path / "t-0", bytes(200))
    result = kafkapy("log", "stats", nonsense)
    assert result.code == 1
    assert result.err.endswith(
        "the batch at position 0 is invalid: a length of 0 is too small for a batch. "
        "The rest of the file is left out.\n"
    )


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_picture_is_drawn(kafkapy, tmp_path, kind):
    picture = tmp_path / f"out.{kind}"
    result = kafkapy("log", "stats", "--plot", picture, V2 / "v2-none-0")
    assert (result.code, result.err) == (0, f"The picture is in {picture}.\n")
    assert picture.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")
    result = kafkapy("log", "stats", "--plot", picture, V2 / "v2-none-0")
    assert (result.code, result.err) == (2, f"kafkapy: {picture} exists already; --force replaces it.\n")


def test_a_chart_without_data_is_empty():
    stats = Stats("t-0", moment_ms=10, moments=[(-20, 1, 100), (10, 2, 300)])
    assert _broad(stats) == (10, [(-20, 1, 100), (-10, 0, 0), (0, 0, 0), (10, 2, 300), (20, 0, 0)])
    width, moments = _broad(Stats("t-0", moment_ms=1, moments=[(0, 1, 1), (1 << 60, 1, 1)]))
    assert len(moments) < 260
    assert [moment for moment in moments if moment[1]] == [(0, 1, 1), (1 << 60, 1, 1)]
    assert moments[-1][0] == (1 << 60) + width


@pytest.mark.parametrize("stamps", [[], [-1], [0, 2**62], [-(2**63), 2**63 - 1], [5] * 3])
def test_all_timestamps_can_be_drawn(kafkapy, tmp_path, stamps):
    segment(tmp_path / "t-0", *(build([(stamp, None, b"v", ())], base_offset=n) for n, stamp in enumerate(stamps)))
    assert kafkapy("log", "stats", "--plot", tmp_path / "out.png", tmp_path / "t-0").code == 0


def test_a_picture_of_an_unknown_kind_is_refused(kafkapy, tmp_path):
    result = kafkapy("log", "stats", "--plot", tmp_path / "out.bmp", V2)
    assert (result.code, result.out) == (2, "")
    assert result.err == f"kafkapy: --plot {tmp_path / 'out.bmp'}: the name has to end in .png, .svg, .pdf.\n"


def test_without_matplotlib_the_error_says_what_to_install(kafkapy, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = kafkapy("log", "stats", "--plot", tmp_path / "out.png", V2)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("kafkapy: --plot needs matplotlib, which is not installed (")
    assert result.err.endswith("): run pip install -e '.[plot]' in a checkout of kafkapy.\n")


def test_a_directory_marked_for_deletion_is_skipped(kafkapy, tmp_path):
    segment(tmp_path / "t-0", keyed([b"a"]))
    shutil.copytree(tmp_path / "t-0", tmp_path / "t-0.0123456789abcdef0123456789abcdef-delete")
    assert [one["name"] for one in stats_of(kafkapy, tmp_path)["partitions"]] == ["t-0"]
