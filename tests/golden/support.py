"""Read the descriptions of the golden directories: expected batches, consumer views."""

import base64
import json
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
# The folders with segments of Kafka's own three message formats.
FOLDERS = {
    "kafka-3.9.1-v2": "data",
    "kafka-3.9.1-v0-v1": "data",
    "kafka-3.9.1-recovery": "after",
    "kafka-0.10.2.2": "data",
    "kafka-0.8.2.2": "data",
}


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def expected(folder):
    """Return {partition's directory: its batches in order}, as in expected/*.jsonl."""
    return {path.stem: lines_of(path) for path in sorted((GOLDEN / folder / "expected").glob("*.jsonl"))}


def bytes_of(text):
    """Return the bytes of a key, value or header value as `expected` writes it."""
    if text is None:
        return None
    return text.encode() if isinstance(text, str) else base64.b64decode(text["base64"])


def records_of(batches):
    """Return (offset, timestamp, key, value, headers) of the batches' records without control records."""
    return [
        (
            record["offset"],
            -1 if record["timestamp"] is None else record["timestamp"],
            bytes_of(record["key"]),
            bytes_of(record["value"]),
            tuple((name, bytes_of(value)) for name, value in record.get("headers", ())),
        )
        for batch in batches
        if not batch.get("control")
        for record in batch["records"]
    ]
