"""Logs that Kafka 0.7.2 wrote, and the messages that its consumer read from them."""

import base64
import json
from pathlib import Path

GOLDEN_07 = Path(__file__).parents[1] / "data" / "golden" / "kafka-0.7.2"
TOPICS_07 = ["none", "gzip", "snappy", "small-segments", "gzip-segments", "magic0", "mixed"]  # topics of one partition


def expected(partition: str) -> list[tuple[int, int, bytes]]:
    """Return (offset of the stored message, offset of the next stored message, payload) of each message."""
    found = []
    for stored in map(json.loads, (GOLDEN_07 / "expected" / f"{partition}.jsonl").read_text().splitlines()):
        for message in stored["messages"]:
            found.append((stored["offset"], stored["nextOffset"], _bytes(message["payload"])))
    return found


def _bytes(payload: object) -> bytes:
    return base64.b64decode(payload["base64"]) if isinstance(payload, dict) else str(payload).encode()
