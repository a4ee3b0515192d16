"""Errors leave the methods that Spark calls without the way through our modules, unless they are no errors of ours."""

import traceback

import pyarrow as pa
import pytest

from kafkapy.arrow.encode import RowEncoder
from kafkapy.arrow.rows import DamagedRows
from kafkapy.spark.plain_errors import without_traceback


def frames(error):
    """The names of the functions that a traceback of it shows, this module's left out."""
    return [frame.name for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]


def test_a_row_that_cannot_be_a_record_is_told_without_traceback():
    @without_traceback
    def write():
        rows = pa.record_batch({"value": ["a"], "partition": pa.array([9], pa.int32())})
        return list(RowEncoder(lambda topic: 1, topic="orders").feed(rows))

    with pytest.raises(ValueError, match=r"row 0, for topic 'orders', is for partition 9") as raised:
        write()
    assert frames(raised.value) == ["called"]


def test_damage_that_is_found_while_rows_are_read_is_told_without_traceback():
    @without_traceback
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


def test_an_error_that_is_none_of_ours_keeps_its_traceback():
    @without_traceback
    def read():
        yield int("x")

    with pytest.raises(ValueError, match="invalid literal") as raised:
        next(read())
    assert [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)][-1] == "read"
