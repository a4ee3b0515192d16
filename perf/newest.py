"""Merges the results of several runs: for each row and curve, the last named file that has it counts.

What is published is kept in one file (`perf/published.json`): it has the newest figures of each row and curve, and the
machine and the run that they are from. So a run of some measurements replaces only their figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Newest:
    """Merged results: `rows` and `curves` by key, as in the files; `steps` and `soak`; `origins`: the machine and the
    run of each file.

    All have a key `by`, the kafkapy that was measured. Rows and curves have a key `run`, their index in `origins`.
    """

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    curves: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    steps: dict[str, Any] | None = None
    soak: dict[str, Any] | None = None
    origins: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)

    def save(self, file: Path) -> None:
        """Write everything into one file, a line for each row and curve, without the origins that nothing refers to."""
        parts = [*self.rows.values(), *self.curves.values()]
        numbers = {old: new for new, old in enumerate(sorted({part["run"] for part in parts}))}
        lists = {
            "origins": [self.origins[number] for number in numbers],
            "rows": [row | {"run": numbers[row["run"]]} for row in self.rows.values()],
            "curves": [curve | {"run": numbers[curve["run"]]} for curve in self.curves.values()],
            "steps": [self.steps] if self.steps else [],
            "soak": [self.soak] if self.soak else [],
        }
        texts = (f'"{name}": [\n' + ",\n".join(map(json.dumps, parts)) + "\n]" for name, parts in lists.items())
        file.write_text("{\n" + ",\n".join(texts) + "\n}\n")

    def those(self, prefix: str) -> list[dict[str, Any]]:
        """Return the rows whose key begins with `prefix`."""
        return [row for key, row in self.rows.items() if key.startswith(prefix)]

    def median(self, key: str, side: str) -> float | None:
        found: float | None = self.rows.get(key, {}).get("medians", {}).get(side)
        return found


def made_by(parts: Iterable[dict[str, Any]]) -> str:
    """Return which kafkapy the parts were measured with, so that readers can tell old figures from the newest."""
    return " and ".join(dict.fromkeys(part["by"] for part in parts if part.get("by")))


def load(files: Sequence[Path]) -> Newest:
    """Read and merge the files. Raise SystemExit with a message for a file that is not a result of perf, or is that of
    a run with --profile."""
    found = Newest()
    for file in files:
        try:
            result = json.loads(file.read_text())
            by: dict[str, Any] = {"by": result.get("machine", {}).get("kafkapy", "")}
            if "origins" in result:
                _add_saved(found, result)
            elif "samples" in result:
                found.soak = result | by
            elif "steps" in result:
                found.steps = result["steps"] | by
            else:
                if "--profile" in result["run"].get("command", "").split():
                    raise SystemExit(
                        f"perf: {file} was made with --profile, which slows the brokers down, so its figures do not "
                        "count: measure again without --profile"
                    )
                by["run"] = len(found.origins)
                found.rows |= {row["key"]: row | by for row in result["rows"]}
                found.curves |= {curve["key"]: curve | by for curve in result.get("curves", [])}
                found.notes += [note for note in result["notes"] if note not in found.notes]
                found.origins.append((result["machine"], result["run"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SystemExit(f"perf: {file} cannot be read as a result of python -m perf: {error}") from None
    return found


def _add_saved(found: Newest, saved: dict[str, Any]) -> None:
    first = len(found.origins)
    found.origins += [(machine, run) for machine, run in saved["origins"]]
    found.rows |= {row["key"]: row | {"run": first + row["run"]} for row in saved["rows"]}
    found.curves |= {curve["key"]: curve | {"run": first + curve["run"]} for curve in saved["curves"]}
    found.steps = next(iter(saved["steps"]), found.steps)
    found.soak = next(iter(saved["soak"]), found.soak)
