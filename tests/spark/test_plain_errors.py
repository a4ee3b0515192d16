"""kafkapy's errors leave the methods that Spark calls without a traceback through kafkapy; other errors keep theirs."""

import traceback

import pyarrow as pa
import pytest

from kafkapy.arrow.encode import RowEncoder
from kafkapy.arrow.rows import DamagedRows
from kafkapy.spark.plain_errors import without_traceback


def frames(error):
    """Return the names of the functions in the error's traceback, without those of this module."""
    return [frame.name for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]


def test_a_row_that_cannot_be_a_record_is_reported_without_traceback():
    @without_traceback
    def write():
        rows = pa.record_batch({"value": ["a"], "partition": pa.array([9], pa.int32())})
        return list(RowEncoder(lambda topic: 1, topic="orders").feed(rows))

    with pytest.raises(ValueError, match=r"row 0, for topic 'orders', is for partition 9") as raised:
        write()
    assert frames(raised.value) == ["called"]


def test_damage_found_while_rows_are_read_is_reported_without_traceback():
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


def test_an_error_that_is_not_kafkapys_keeps_its_traceback():
    @without_traceback
    def read():
        yield int("x")

    with pytest.raises(ValueError, match="invalid literal") as raised:
        next(read())
    assert [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)][-1] == "read"
