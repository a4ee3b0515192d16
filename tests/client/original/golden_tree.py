"""Znodes that Apache Kafka wrote while its consumers ran, for the tests of the original consumer."""

import json
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "data" / "golden"


def znodes(version: str) -> dict[str, bytes]:
    """Return the znodes' data by path."""
    lines = (GOLDEN / f"kafka-{version}" / "znodes.jsonl").read_text().splitlines()
    return {one["path"]: (one["data"] or "").encode() for one in map(json.loads, lines)}


def children(tree: dict[str, bytes], path: str) -> list[str]:
    below = [other.removeprefix(path + "/") for other in tree if other.startswith(path + "/")]
    return [name for name in below if "/" not in name]
