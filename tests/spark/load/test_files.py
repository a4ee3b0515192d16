"""The Parquet files that a task of a load writes: one directory for each date, and files of limited size."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkapy.spark.load import files
from kafkapy.spark.load.files import Extent, Span, extent, final_name
from kafkapy.spark.load.task import Written, write_rows
from tests.spark.load.rows import SETTINGS, batch


def test_a_date_has_a_file_with_its_rows_in_their_order(tmp_path: Path) -> None:
    written = write_rows("t", [batch(3, [1, 2, 5], [0, 1, 0]), batch(3, [6, 8], [1, 1])], SETTINGS, tmp_path)
    assert written.rows == 5
    found = {file.date: file for file in written.files}
    assert found["1970-01-01"].spans == (Span(3, 1, 5, 2),)
    assert found["1970-01-02"].spans == (Span(3, 2, 8, 3),)
    rows = pq.read_table(found["1970-01-02"].path)
    assert rows.column_names == ["partition", "offset", "timestamp", "key", "value"]
    assert rows["offset"].to_pylist() == [2, 6, 8]
    assert rows["value"].to_pylist() == [b"value 2", b"value 6", b"value 8"]


def test_rows_without_a_representable_date_have_their_own_directory(tmp_path: Path) -> None:
    written = write_rows("t", [batch(0, [0, 1, 2, 3], [None, 3_000_000, 0, -800_000])], SETTINGS, tmp_path)
    found = {file.date: file for file in written.files}
    assert set(found) == {"1970-01-01", "__HIVE_DEFAULT_PARTITION__"}
    rows = pq.read_table(found["__HIVE_DEFAULT_PARTITION__"].path)
    assert rows["offset"].to_pylist() == [0, 1, 3]
    assert rows["timestamp"].is_null().to_pylist() == [True, False, False]


def test_no_rows_give_no_files(tmp_path: Path) -> None:
    written = write_rows("t", [], SETTINGS, tmp_path)
    assert (written.rows, written.files, list(tmp_path.iterdir())) == (0, [], [])


def test_many_dates_need_few_open_files_and_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_OPEN", 2)
    monkeypatch.setattr(files, "MOST_WAITING", 100)
    offsets = list(range(60))
    batches = [batch(0, offsets[at : at + 6], [0, 1, 2, 3, 4, 5]) for at in range(0, 60, 6)]
    written = write_rows("t", batches, SETTINGS, tmp_path)
    assert sum(file.rows for file in written.files) == 60
    for date in {file.date for file in written.files}:
        spans = sorted((file.spans[0].first, file.spans[0].last) for file in written.files if file.date == date)
        assert all(before[1] < after[0] for before, after in pairwise(spans))


def test_a_file_ends_at_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GROUP_BYTES", 1)
    written = write_rows("t", [batch(0, [n]) for n in range(5)], replace(SETTINGS, file_bytes=1), tmp_path)
    assert [file.rows for file in written.files] == [1] * 5
    assert len({final_name(file.spans) for file in written.files}) == 5


def test_the_list_of_files_survives_the_transfer_through_spark(tmp_path: Path) -> None:
    written = write_rows("t", [batch(0, [1, 2])], SETTINGS, tmp_path)
    assert Written.of(written.text()) == written


def test_an_extent_comes_from_the_file(tmp_path: Path) -> None:
    table = pa.Table.from_batches([batch(2, [7, 9]), batch(4, [3])])
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=2)
    assert extent(tmp_path / "x.parquet", "") == Extent((2, 4), (3, 9))
