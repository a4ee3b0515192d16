"""scripts/compare-copies prints tables and draws plots of its measurement; --help works without optional packages."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perf import compare_copies
from perf.measurement import BARE, KAFKAPY

ROOT = Path(__file__).parents[2]
# Run before perf: an import of one of these fails as in an environment with nothing but kafkapy.
WITHOUT_EXTRAS = """
import runpy, sys
EXTRAS = {"confluent_kafka", "fastavro", "kafka", "kazoo", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark"}
class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing)
sys.argv[:] = ["perf", "--help"]
runpy.run_module(MODULE, run_name="__main__")
"""


@pytest.mark.parametrize("module", ["perf", "perf.compare_copies", "perf.publish"])
def test_help_needs_none_of_the_extras(module):
    code = WITHOUT_EXTRAS.replace("MODULE", repr(module))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--help" in done.stdout


def test_tables_and_plots_have_the_measured_figures(monkeypatch, tmp_path, capsys):
    asked = []

    def measured(words, show):
        asked.extend(words)
        rows = [
            {
                "key": f"zero-copy.{mode}.1.{size}.{what}",
                "medians": {KAFKAPY: 3.0 if mode == "copy" else 6.0, BARE: 8.0},
            }
            for mode in ("sendfile", "copy")
            for size in (4096, 1 << 20)
            for what in ("rate", "cpu")
        ]
        result = {"machine": {"kafkapy": "1.0"}, "run": {}, "rows": rows, "notes": ["a note"]}
        Path(words[words.index("--json") + 1]).write_text(json.dumps(result))
        return 0

    monkeypatch.setattr(compare_copies.suite, "main", measured)
    assert compare_copies.main(["--quick", "--data", "/a/disk", "--results", str(tmp_path)]) == 0
    assert asked == [
        *("zero_copy", "--json", str(tmp_path / "copies.json"), "--data", "/a/disk"),
        *("--brokers", "kafkapy", "--quick"),
    ]
    output = capsys.readouterr().out
    lines = [line.split("  ") for line in output.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert ["responses", "bare loop, sendfile", "kafkapy, sendfile", "bare loop, copy", "kafkapy, copy"] in cells
    assert ["4 KiB", "8 · 8.00", "6 · 6.00", "8 · 8.00", "3 · 3.00"] in cells
    assert ["1 MiB", "1.00 ×", "1.00 ×", "2.00 ×", "2.00 ×"] in cells  # sendfile / copy
    assert "- a note\n" in output
    for name in ("zero_copy.rate.png", "zero_copy.cpu.png"):
        assert f"- plot: {tmp_path / name}\n" in output
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
