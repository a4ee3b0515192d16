"""Tables of the documents are made of the JSON alone."""

import json

import pytest

from perf import tables
from perf.measurement import BARE, KAFKA, KAFKAPY, QUICK, Goal, Row
from perf.report import write_json
from perf.stats import compare


@pytest.fixture
def written(tmp_path):
    """Writes a result with one row and says where."""

    def write(name, key, label="a figure", notes=(), **sides):
        rows = [Row(key, label, "MB/s", "higher", Goal(1.2))]
        measured = {key: sides}
        file = tmp_path / name
        machine = {"machine": "two cores", "kernel": "Linux", "file system": "ext4 at /data, 9 GiB", "TCP": "reno"}
        how = {"command": "python -m perf --runs 2", "scale": QUICK.name, "runs": 2, "seconds": 60.0}
        write_json(file, machine, compare(rows, measured), measured, dict(enumerate(notes)), how)
        return file

    return write


def filled(page, tmp_path, *files):
    path = tmp_path / "page.md"
    path.write_text(page)
    assert tables.main([*map(str, files), "--pages", str(path)]) == 0
    return path.read_text()


def test_a_place_gets_the_rows_that_begin_with_its_name_and_the_rest_stays(written, tmp_path):
    file = written("r.json", "produce.1k.acks1", kafka=[100.0, 110.0], kafkapy=[300.0, 320.0], bare=[500.0])
    page = (
        "before\n<!-- perf: produce. -->\nold\n<!-- /perf -->\nbetween\n<!-- perf: spark. -->\nkept\n<!-- /perf -->\n"
    )
    text = filled(page, tmp_path, file)
    assert "old" not in text
    assert "before\n" in text
    assert "<!-- perf: spark. -->\nkept\n" in text
    line = "| a figure, MB/s | 105 (100–110) | 310 (300–320) | 500 | 2.95 × | ≥ 1.2 × ✓ |"
    assert line in text.splitlines()
    assert filled(text, tmp_path, file) == text


def test_the_file_named_last_counts(written, tmp_path):
    first = written("a.json", "produce.1k.acks1", kafkapy=[1.0])
    second = written("b.json", "produce.1k.acks1", kafkapy=[2.0])
    text = filled("<!-- perf: produce. -->\n<!-- /perf -->\n", tmp_path, first, second)
    assert "2.00" in text
    assert "1.00" not in text


def test_the_headline_says_where_it_was_measured(written, tmp_path):
    file = written("r.json", "consume.1k", kafka=[1000.0, 1000.0], kafkapy=[2000.0, 2000.0])
    text = filled("<!-- perf: headline -->\n<!-- /perf -->\n", tmp_path, file)
    assert "Medians of 2 runs on two cores, Linux, ext4 at /data, TCP reno:" in text
    assert "| consume 1 KiB records, hot, MB/s | 1,000 | 2,000 | 2.00 × |" in text.splitlines()


def test_copies_have_a_line_a_load(tmp_path):
    rows = [
        {"key": f"zero-copy.{mode}.1.4096.{what}", "medians": dict.fromkeys((KAFKA, KAFKAPY, BARE), 1.5)}
        for mode in ("sendfile", "copy")
        for what in ("rate", "cpu")
    ]
    file = tmp_path / "r.json"
    file.write_text(json.dumps({"machine": {}, "run": {}, "rows": rows, "notes": []}))
    text = filled("<!-- perf: copies -->\n<!-- /perf -->\n", tmp_path, file)
    assert "| 4 KiB | 2 · 1.50 | 2 · 1.50 | 2 · 1.50 | 2 · 1.50 | 2 · 1.50 |" in text.splitlines()


def test_growth_steps_and_the_soak_have_their_places(tmp_path):
    curve = {
        "key": "topics.create",
        "label": "making a topic",
        "growth": {KAFKAPY: "1 ms: does not grow"},
        "points": {},
    }
    run, soak, steps = (tmp_path / name for name in ("run.json", "soak.json", "steps.json"))
    run.write_text(json.dumps({"machine": {}, "run": {}, "rows": [], "notes": [], "curves": [curve]}))
    sample = {"samples": [{"minute": 60.0}], "figures": {"p99": 1.0}, "goals": {"p99": 1.2}, "failures": []}
    soak.write_text(json.dumps(sample))
    steps.write_text(json.dumps({"steps": {"broker": {"a request": {"decode": 1.0}}, "bare": {"a request": {}}}}))
    page = "".join(f"<!-- perf: {name} -->\n<!-- /perf -->\n" for name in ("growth topics.", "soak", "steps"))
    text = filled(page, tmp_path, run, soak, steps)
    assert "- making a topic: kafkapy 1 ms: does not grow" in text
    assert "| p99 | 1.00 | ≤ 1.2 | reached |" in text
    assert "| decode | 1.0 |  |" in text


def test_every_row_of_the_headline_is_measured():
    from perf.measurements import ALL

    known = {row.key for each in ALL for row in each.rows}
    assert {key for _, keys in tables.HEADLINE for key in keys} <= known
