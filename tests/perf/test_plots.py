"""Plots are drawn from the JSON files alone."""

import json

import pytest

from perf import publish
from perf.curves import Curve
from perf.measurement import BARE, KAFKA, KAFKAPY

COPIES = [
    {"key": f"zero-copy.{mode}.1.{size}.{what}", "medians": {KAFKAPY: 1.0 * size, BARE: 2.0 * size}}
    for mode in ("sendfile", "copy")
    for size in (4096, 1 << 20)
    for what in ("rate", "cpu")
]


@pytest.fixture
def written(tmp_path):
    """Return a function that writes the result of a run and returns its path."""

    def write(name="result.json", **parts):
        file = tmp_path / name
        file.write_text(json.dumps({"machine": {}, "run": {}, "rows": [], "notes": []} | parts))
        return str(file)

    return write


def test_curves_copies_and_the_soak_become_plots(written, tmp_path, capsys):
    curve = Curve("clean stop", "s", "partitions")
    for side, cost in ((KAFKA, 2.0), (KAFKAPY, 1.0)):
        for size in (1, 10, 100):
            curve.add(side, size, cost * size)
    run = written(curves=[curve.as_json("partitions.stop")], rows=COPIES)
    soak = written("soak.json", samples=[{"minute": minute, "rss_mib": 30.0, "p99_ms": 1.0} for minute in (1, 2)])
    to = tmp_path / "plots"
    assert publish.main([run, soak, "--pages", "--plots", str(to), "--published", str(tmp_path / "p.json")]) == 0
    lines = capsys.readouterr().out.split()
    assert sorted(lines) == sorted(map(str, to.iterdir()))
    names = ["partitions.stop", "soak.p99_ms", "soak.rss_mib", "zero_copy.cpu", "zero_copy.rate"]
    assert sorted(file.stem for file in to.iterdir()) == names
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in to.iterdir())


def test_an_error_names_a_file_that_is_not_a_result(tmp_path):
    file = tmp_path / "other.json"
    file.write_text("{}")
    with pytest.raises(SystemExit, match=r"other\.json cannot be read as a result"):
        publish.main([str(file), "--published", str(tmp_path / "published.json")])
