"""Decodes Avro values to Arrow columns with fastavro, one value at a time."""

import io
import json
from typing import Any, cast

import pyarrow as pa

from kafkapy.extras import how_to_install
from kafkapy.spark.load.avro_schema import ANY_ID, AvroValues
from kafkapy.spark.load.decoding import Decoded
from kafkapy.spark.load.errors import LoadError

PREFIX_BYTES = 5


class AvroDecoder:
    """Decodes Avro values to Arrow columns. It implements the interface Decoder."""

    def __init__(self, values: AvroValues) -> None:
        """Raise LoadError if fastavro is not installed or refuses a schema."""
        try:
            import fastavro
        except ImportError as error:
            raise LoadError(f"--avro needs fastavro, which is missing ({error}): {how_to_install('avro')}") from error
        self.fields = values.fields()
        self._reads = fastavro.schemaless_reader
        try:
            self._reader = fastavro.parse_schema(json.loads(values.reader()))
            self._plain = None if values.plain is None else self._reader
            self._by_id = {id: fastavro.parse_schema(json.loads(text)) for id, text in values.by_id}
        except Exception as error:  # fastavro raises errors of many types
            raise LoadError(f"the Avro schema is wrong: {error}") from error

    def decode(self, values: pa.Array) -> Decoded:
        rows: list[dict[str, Any]] = []
        places: list[int] = []
        bad: list[tuple[int, str]] = []
        for place, value in enumerate(values.to_pylist()):
            try:
                rows.append({} if value is None else self._one(value))
                places.append(place)
            except Exception as error:  # fastavro raises errors of many types for malformed data
                bad.append((place, _reason(error)))
        return self._columns(rows, places, bad)

    def _columns(self, rows: list[dict[str, Any]], places: list[int], bad: list[tuple[int, str]]) -> Decoded:
        """Return decoded values as Arrow columns. `places` has the index of each value in the batch.

        A value that Arrow refuses, such as a time out of range, is found by bisection and added to `bad`.
        """
        try:
            return Decoded(pa.Table.from_pylist(rows, schema=self.fields), bad)
        except (ValueError, TypeError, OverflowError) as error:  # such as a time out of range
            if len(rows) == 1:
                return Decoded(self.fields.empty_table(), sorted([*bad, (places[0], _reason(error))]))
        half = len(rows) // 2
        first = self._columns(rows[:half], places[:half], bad)
        second = self._columns(rows[half:], places[half:], first.bad)
        return Decoded(pa.concat_tables([first.rows, second.rows]), second.bad)

    def _one(self, value: bytes) -> dict[str, Any]:
        """Return the fields of one Avro value. Raise ValueError or an error of fastavro if it is malformed."""
        schema, start = self._plain, 0
        if schema is None:
            if len(value) < PREFIX_BYTES or value[0]:
                raise ValueError("it does not begin with a registry's prefix, a zero byte and a schema id")
            id, start = int.from_bytes(value[1:PREFIX_BYTES], "big"), PREFIX_BYTES
            schema = self._by_id.get(id, self._by_id.get(ANY_ID))
            if schema is None:
                raise ValueError(f"it was written with schema {id}, which was not given")
        source = io.BytesIO(value)
        source.seek(start)
        row = self._reads(source, schema, self._reader)
        if left := len(value) - source.tell():
            raise ValueError(f"{left} bytes are left over after the record")
        return cast("dict[str, Any]", row)


def _reason(error: Exception) -> str:
    """Return a phrase that says why a value could not be decoded."""
    if isinstance(error, EOFError):
        return "it ends within the record"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
