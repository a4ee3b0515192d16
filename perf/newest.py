"""Results of several runs as one: of each row and curve what the file says that was named last."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Newest:
    """`rows` and `curves` by their key, as in the files; `steps` and `soak` whole; `said`: how each file was made.

    Each of them has a key `by`: the kafkapy that was measured; rows and curves `run`: which of `said` they are of.
    """

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    curves: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    steps: dict[str, Any] | None = None
    soak: dict[str, Any] | None = None
    said: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)

    def those(self, prefix: str) -> list[dict[str, Any]]:
        """Rows whose key begins with it."""
        return [row for key, row in self.rows.items() if key.startswith(prefix)]

    def median(self, key: str, side: str) -> float | None:
        found: float | None = self.rows.get(key, {}).get("medians", {}).get(side)
        return found


def made_by(parts: Iterable[dict[str, Any]]) -> str:
    """Of which kafkapy these parts tell: without it a reader would take what an older run left for the newest."""
    return " and ".join(dict.fromkeys(part["by"] for part in parts if part.get("by")))


def load(files: Sequence[Path]) -> Newest:
    """SystemExit with a sentence for a file that is none of ours."""
    found = Newest()
    for file in files:
        try:
            result = json.loads(file.read_text())
            by: dict[str, Any] = {"by": result.get("machine", {}).get("kafkapy", "")}
            if "samples" in result:
                found.soak = result | by
            elif "steps" in result:
                found.steps = result["steps"] | by
            else:
                by["run"] = len(found.said)
                found.rows |= {row["key"]: row | by for row in result["rows"]}
                found.curves |= {curve["key"]: curve | by for curve in result.get("curves", [])}
                found.notes += [note for note in result["notes"] if note not in found.notes]
                found.said.append((result["machine"], result["run"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SystemExit(f"perf: {file} cannot be read as a result of python -m perf: {error}") from None
    return found
