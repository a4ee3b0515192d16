"""A record as one line of JSON, as `consume --json` prints and `produce --json` reads it."""

import base64
import binascii
import json
from typing import Any, NamedTuple

from kafkapy.client.fetching.consumer import ConsumerRecord
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.common.options import timestamp_of
from kafkapy.tools.log.decoders.values import readable


class RecordLine(NamedTuple):
    """The fields of a record in a line of JSON. Partition and timestamp are None if the line has none; the producer
    then chooses them."""

    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp: int | None


_KNOWN = {"value", "key", "headers", "partition", "timestamp"}
_PLACE = {"topic", "offset"}  # printed by consume; produce ignores them


def parse_record(line: bytes, number: int) -> RecordLine:
    """Return the record in a line of JSON. Raises ToolError, with the line number, for a line that is not a valid
    record."""
    try:
        given = json.loads(line)
    except ValueError as error:
        raise ToolError(f"line {number} is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise ToolError(f"line {number} is not a JSON object, as in {{'key': 'k', 'value': 'v'}}")
    if unknown := given.keys() - _KNOWN - _PLACE:
        raise ToolError(f"line {number} has {sorted(unknown)[0]!r}; a record has {', '.join(sorted(_KNOWN))}")
    try:
        return RecordLine(
            _bytes(given.get("value")),
            _bytes(given.get("key")),
            _headers(given.get("headers")),
            _partition(given.get("partition")),
            _timestamp(given.get("timestamp")),
        )
    except ValueError as error:
        raise ToolError(f"line {number}: {error}") from error


def record_line(record: ConsumerRecord) -> str:
    """Return a consumed record as a line of JSON, without line end."""
    return json.dumps(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": readable(record.key),
            "value": readable(record.value),
            "headers": [[name, readable(value)] for name, value in record.headers],
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (TypeError, ValueError, binascii.Error) as error:
            raise ValueError(f"{value['base64']!r} is not base64") from error
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _headers(value: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers in the JSON value: an object, or a list of [name, value] if a name repeats or the order
    matters. Raises ValueError for another value, and for a name that the producer cannot encode."""
    pairs = list(value.items()) if isinstance(value, dict) else value or []
    if not isinstance(pairs, list) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
    ):
        raise ValueError(f"headers {value!r} are neither an object nor a list of [name, value]")
    for name, _ in pairs:
        name.encode("utf-8", "surrogateescape")  # as the producer encodes it; UnicodeEncodeError is a ValueError
    return tuple((name, _bytes(content)) for name, content in pairs)


def _partition(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ValueError(f"partition {value!r} is not a number from 0 on")
    return value


def _timestamp(value: Any) -> int | None:
    found = timestamp_of(value) if isinstance(value, str) else value
    if found is not None and (isinstance(found, bool) or not isinstance(found, int) or not -(2**63) <= found < 2**63):
        raise ValueError(f"timestamp {value!r} is neither milliseconds since 1970 nor an ISO 8601 time")
    return found
