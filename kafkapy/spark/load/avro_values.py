"""Avro values to columns with fastavro, a value at a time."""

import io
import json
from typing import Any, cast

import pyarrow as pa

from kafkapy.spark.load.avro_schema import ANY_ID, AvroValues
from kafkapy.spark.load.decoding import Decoded
from kafkapy.spark.load.errors import LoadError

PREFIX_BYTES = 5


class AvroDecoder:
    def __init__(self, values: AvroValues) -> None:
        """Raises LoadError where fastavro is missing, or finds a schema wrong."""
        try:
            import fastavro
        except ImportError as error:
            raise LoadError(
                f"--avro needs fastavro, which is not there ({error}): pip install 'kafkapy[avro]'"
            ) from error
        self.fields = values.fields()
        self._reads = fastavro.schemaless_reader
        try:
            self._reader = fastavro.parse_schema(json.loads(values.reader()))
            self._plain = None if values.plain is None else self._reader
            self._by_id = {id: fastavro.parse_schema(json.loads(text)) for id, text in values.by_id}
        except Exception as error:  # fastavro raises what it finds, of many kinds
            raise LoadError(f"the Avro schema is wrong: {error}") from error

    def decode(self, values: pa.Array) -> Decoded:
        rows: list[dict[str, Any]] = []
        places: list[int] = []
        bad: list[tuple[int, str]] = []
        for place, value in enumerate(values.to_pylist()):
            try:
                rows.append({} if value is None else self._one(value))
                places.append(place)
            except Exception as error:  # whatever fastavro raises about bytes that are no such record
                bad.append((place, _reason(error)))
        return self._columns(rows, places, bad)

    def _columns(self, rows: list[dict[str, Any]], places: list[int], bad: list[tuple[int, str]]) -> Decoded:
        try:
            return Decoded(pa.Table.from_pylist(rows, schema=self.fields), bad)
        except (ValueError, TypeError, OverflowError) as error:  # as of a time that is out of range
            if len(rows) == 1:
                return Decoded(self.fields.empty_table(), sorted([*bad, (places[0], _reason(error))]))
        half = len(rows) // 2
        first = self._columns(rows[:half], places[:half], bad)
        second = self._columns(rows[half:], places[half:], first.bad)
        return Decoded(pa.concat_tables([first.rows, second.rows]), second.bad)

    def _one(self, value: bytes) -> dict[str, Any]:
        schema, start = self._plain, 0
        if schema is None:
            if len(value) < PREFIX_BYTES or value[0]:
                raise ValueError("it does not begin with the five bytes of a registry, a zero and the id of the schema")
            id, start = int.from_bytes(value[1:PREFIX_BYTES], "big"), PREFIX_BYTES
            schema = self._by_id.get(id, self._by_id.get(ANY_ID))
            if schema is None:
                raise ValueError(f"it was written with schema {id}, which is not among those given")
        source = io.BytesIO(value)
        source.seek(start)
        row = self._reads(source, schema, self._reader)
        if left := len(value) - source.tell():
            raise ValueError(f"{left} bytes are left over behind the record")
        return cast("dict[str, Any]", row)


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "it ends within the record"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
