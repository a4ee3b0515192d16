"""The methods that Spark calls: kafkapy's errors leave them without a traceback through kafkapy, other errors keep
theirs; and a process that Spark reuses spends less on its next call."""

import gc
import importlib
import sys
import traceback
from zipfile import ZipFile
from zipimport import zipimporter

import pyarrow as pa
import pytest

from kafkapy.arrow.encode import RowEncoder
from kafkapy.arrow.rows import DamagedRows
from kafkapy.spark.entry_points import entry_point


def frames(error):
    """Return the names of the functions in the error's traceback, without those of this module."""
    return [frame.name for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]


def test_a_row_that_cannot_be_a_record_is_reported_without_traceback():
    @entry_point
    def write():
        rows = pa.record_batch({"value": ["a"], "partition": pa.array([9], pa.int32())})
        return list(RowEncoder(lambda topic: 1, topic="orders").feed(rows))

    with pytest.raises(ValueError, match=r"row 0, for topic 'orders', is for partition 9") as raised:
        write()
    assert frames(raised.value) == ["called"]


def test_damage_found_while_rows_are_read_is_reported_without_traceback():
    @entry_point
    def read():
        yield 1
        raise DamagedRows("orders", 0, 42, "has a wrong checksum")

    rows = read()
    assert next(rows) == 1
    with pytest.raises(
        DamagedRows, match=r"orders-0 is damaged at offset 42: the batch has a wrong checksum\."
    ) as raised:
        next(rows)
    assert frames(raised.value) == ["iterated"]


def test_an_error_that_is_not_kafkapys_keeps_its_traceback():
    @entry_point
    def read():
        yield int("x")

    with pytest.raises(ValueError, match="invalid literal") as raised:
        next(read())
    assert [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)][-1] == "read"


@pytest.fixture
def pyspark_zip(monkeypatch, tmp_path):
    """Put a file pyspark.zip with two modules on the import path, and its importer into the interpreter's cache."""
    archive = tmp_path / "pyspark.zip"
    with ZipFile(archive, "w") as made:
        made.writestr("module_of_zip.py", "")
        made.writestr("other_of_zip.py", "")
    monkeypatch.syspath_prepend(archive)
    importlib.import_module("module_of_zip")
    yield str(archive)
    for name in ("module_of_zip", "other_of_zip"):
        sys.modules.pop(name, None)


def test_a_process_that_spark_reuses_excludes_its_objects_from_garbage_collection_once(monkeypatch):
    frozen = []
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    monkeypatch.setattr(gc, "get_freeze_count", lambda: len(frozen))
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    call = entry_point(lambda: None)
    call()
    call()
    assert frozen == [1]


def test_a_process_that_spark_reuses_does_not_read_the_directory_of_pyspark_zip_again(monkeypatch, pyspark_zip):
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    monkeypatch.setattr(gc, "freeze", lambda: None)
    assert isinstance(sys.path_importer_cache[pyspark_zip], zipimporter)
    entry_point(lambda: None)()
    assert pyspark_zip not in sys.path_importer_cache
    assert importlib.import_module("other_of_zip").__file__.startswith(pyspark_zip)


def test_a_process_of_the_user_is_left_alone(monkeypatch, pyspark_zip):
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    frozen = gc.get_freeze_count()
    entry_point(lambda: None)()
    assert pyspark_zip in sys.path_importer_cache
    assert gc.get_freeze_count() == frozen
