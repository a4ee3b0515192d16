"""Avro schemas: converts them to the Arrow schema of the columns, and says which schema a value was written with.

Source: the Avro 1.11 specification, and the wire format of schema registries (a zero byte and the four bytes of the
schema's id before the value).
"""

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kafkapy.spark.load.errors import WrongOption

_PRIMITIVE = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
}
ANY_ID = -1


@dataclass(frozen=True)
class AvroValues:
    """The Avro schemas of a topic's values, which are decoded to columns. The last given schema defines the columns.

    Attributes:
        plain: The schema (JSON) of values without a prefix. None if values have the 5-byte prefix of a schema
            registry.
        by_id: The schemas (JSON) of values with the prefix, by id. ANY_ID stands for all other ids.
    """

    plain: str | None = None
    by_id: tuple[tuple[int, str], ...] = ()

    def reader(self) -> str:
        """Return the schema (JSON) whose fields become the columns."""
        return self.plain if self.plain is not None else self.by_id[-1][1]

    def fields(self) -> pa.Schema:
        """Return the Arrow schema of the columns.

        Raises WrongOption if the Avro schema is malformed, is not a record's, or has a type that no column can have.
        """
        parsed = _parsed(self.reader())
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise WrongOption("the Avro schema is not that of a record, whose fields would become columns")
        try:
            return pa.schema(_Columns().of(parsed, "", "").fields)
        except KeyError as error:
            raise WrongOption(f"the Avro schema lacks {error}, which is required") from error


def _parsed(text: str) -> Any:
    """Return an Avro schema as parsed JSON. Raise WrongOption if the text is not JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise WrongOption(f"the Avro schema is not JSON: {error}") from error


class _Columns:
    """Converts Avro types to Arrow types. Remembers named types, because a schema may use them again by name.

    The argument `space` of its methods is the enclosing namespace.
    """

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType] = {}

    def of(self, schema: Any, where: str, space: str) -> pa.DataType:
        """Return the Arrow type of an Avro type. Raises WrongOption if the type is unknown or no column can have it.

        `where` names the field, for messages.
        """
        if isinstance(schema, list):
            return self._union(schema, where, space)
        if isinstance(schema, str):
            if (known := _PRIMITIVE.get(schema, self._named.get(_full(schema, space)))) is None:
                raise WrongOption(f"the Avro schema names the type {schema!r}{where}, which it does not define before")
            return known
        if not isinstance(schema, dict) or "type" not in schema:
            raise WrongOption(f"the Avro schema has {json.dumps(schema)}{where}, which is not a type")
        kind = schema["type"]
        space = schema.get("namespace", space)
        if kind == "record":
            fields = [
                pa.field(field["name"], self.of(field["type"], f" in field {field['name']!r}", space))
                for field in schema["fields"]
            ]
            return self._name(schema, space, pa.struct(fields))
        if kind == "enum":
            return self._name(schema, space, pa.string())
        if kind == "array":
            return pa.list_(self.of(schema["items"], where, space))
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"], where, space))
        if schema.get("logicalType") == "decimal" and schema.get("precision", 99) <= 38:
            found = pa.decimal128(schema["precision"], schema.get("scale", 0))
            return self._name(schema, space, found) if kind == "fixed" else found
        if kind == "fixed":
            return self._name(schema, space, pa.binary(schema["size"]))
        if isinstance(kind, str):
            return _LOGICAL.get((kind, str(schema.get("logicalType")))) or self.of(kind, where, space)
        return self.of(kind, where, space)

    def _union(self, branches: list[Any], where: str, space: str) -> pa.DataType:
        """Return the Arrow type of a union of null and at most one other type. Raise WrongOption for other unions."""
        others = [branch for branch in branches if branch != "null"]
        if len(others) > 1:
            raise WrongOption(
                f"the Avro schema has a union of several types{where}, which cannot be a column; "
                "only a type or null is supported"
            )
        return self.of(others[0], where, space) if others else pa.null()

    def _name(self, schema: dict[str, Any], space: str, found: pa.DataType) -> pa.DataType:
        """Remember `found` as the Arrow type of the named Avro type `schema`, and return it."""
        self._named[_full(schema["name"], space)] = found
        return found


def _full(name: str, space: str) -> str:
    """Return the full name of an Avro type, which includes its namespace."""
    return name if "." in name or not space else f"{space}.{name}"
