"""The tables of the documents are made from the JSON files alone."""

import json

import pytest

from perf import __main__ as perf_command
from perf import publish, tables
from perf.measurement import BARE, KAFKA, KAFKA_4, KAFKAPY, QUICK, Goal, Row
from perf.report import write_json
from perf.stats import compare


@pytest.fixture
def written(tmp_path):
    """Return a function that writes a result with one row and returns its path."""

    def write(name, key, label="a figure", notes=(), busiest=0.0, **sides):
        rows = [Row(key, label, "MB/s", "higher", Goal(1.2), client=f"{key}.busiest")]
        measured = {key: sides, f"{key}.busiest": {KAFKAPY: [busiest]}}
        file = tmp_path / name
        machine = {
            "kafkapy": f"1.0 at {name}",
            "machine": "two cores",
            "kernel": "Linux",
            "file system": "ext4 at /data, 9 GiB",
            "TCP": "reno",
        }
        how = {
            "command": "python -m perf --runs 2",
            "scale": QUICK.name,
            "runs": 2,
            "seconds": 60.0,
            "date": "2026-11-27",
        }
        write_json(file, machine, compare(rows, measured), measured, dict(enumerate(notes)), how)
        return file

    return write


def filled(page, tmp_path, *files):
    path = tmp_path / "page.md"
    path.write_text(page)
    where = ["--pages", str(path), "--plots", str(tmp_path / "plots"), "--published", str(tmp_path / "published.json")]
    assert publish.main([*map(str, files), *where]) == 0
    return path.read_text()


def test_a_place_gets_the_rows_whose_keys_begin_with_its_name_and_other_text_stays(written, tmp_path):
    file = written("r.json", "produce.1k.acks1", kafka=[100.0, 110.0], kafkapy=[300.0, 320.0], bare=[500.0])
    page = (
        "before\n<!-- perf: produce. -->\nold\n<!-- /perf -->\nbetween\n<!-- perf: spark. -->\nkept\n<!-- /perf -->\n"
    )
    text = filled(page, tmp_path, file)
    assert "old" not in text
    assert "before\n" in text
    assert "<!-- perf: spark. -->\nkept\n" in text
    line = "| a figure, MB/s | 1 to 2 | 105 (100–110) | 310 (300–320) | 500 | 2.95 × | ≥ 1.2 × ✓ |"
    assert line in text.splitlines()
    assert filled(text, tmp_path, file) == text


def test_the_file_named_last_counts(written, tmp_path):
    first = written("a.json", "produce.1k.acks1", kafkapy=[1.0])
    second = written("b.json", "produce.1k.acks1", kafkapy=[2.0])
    page = "<!-- perf: produce. -->\n<!-- /perf -->\n<!-- perf: machine -->\n<!-- /perf -->\n"
    text = filled(page, tmp_path, first, second)
    assert text.count("| b.json | 2026-11-27 | `python -m perf --runs 2` | quick, up to 2 runs, 60 s |") == 1
    assert "a.json" not in text
    assert text.count("file system    ext4 at /data\n") == 1
    assert "2.00" in text
    assert "1.00" not in text
    assert "*kafkapy 1.0 at b.json*" in text


def test_missed_goals_are_listed_and_tables_of_older_runs_keep_their_revision(written, tmp_path):
    first = written("a.json", "produce.1k.acks1", kafka=[100.0], kafkapy=[90.0])
    second = written("b.json", "consume.1k", kafka=[100.0], kafkapy=[200.0])
    page = "<!-- perf: missed -->\n<!-- /perf -->\n<!-- perf: produce. -->\n<!-- /perf -->\n"
    text = filled(page, tmp_path, first, second)
    assert "| a figure, MB/s | 90.0 | 0.90 × | ≥ 1.2 × |" in text.splitlines()
    again = filled(text, tmp_path, second)
    assert again.partition("perf: produce.")[2] == text.partition("perf: produce.")[2]
    assert "1.0 at a.json" in again


def test_a_run_of_one_row_keeps_the_others_of_its_table_with_their_revision(written, tmp_path):
    page = "<!-- perf: consume. -->\n<!-- /perf -->\n<!-- perf: machine -->\n<!-- /perf -->\n"
    old = written("a.json", "consume.1k", kafka=[100.0], kafkapy=[200.0])
    new = written("b.json", "consume.1k.cpu", "its CPU", kafka=[1.0], kafkapy=[0.5])
    unrelated = written("c.json", "produce.1k.acks1", kafkapy=[1.0])
    text = filled(page, tmp_path, unrelated, old)
    text = filled(text, tmp_path, new)
    assert "| a figure, MB/s | 1 | 100 | 200 | 2.00 × | ≥ 1.2 × ✓ (one run) | a.json |" in text.splitlines()
    assert "| its CPU, MB/s | 1 | 1.00 | 0.500 | 0.50 × | ≥ 1.2 × missed | b.json |" in text.splitlines()
    assert text.count("| `python -m perf --runs 2` |") == 3  # the third is the run whose row has no place in this page
    assert text.count("file system    ext4 at /data\n") == 1
    replaced = written("d.json", "consume.1k", kafka=[100.0], kafkapy=[300.0])
    text = filled(text, tmp_path, replaced)
    assert "a.json" not in text
    assert [line.partition(" |")[0] for line in text.splitlines() if "python -m perf" in line] == [
        "| c.json",
        "| b.json",
        "| d.json",
    ]


def test_the_headline_says_where_it_was_measured(written, tmp_path):
    file = written("r.json", "consume.1k", kafka=[1000.0, 1000.0], kafkapy=[2000.0, 2000.0])
    text = filled("<!-- perf: headline -->\n<!-- /perf -->\n", tmp_path, file)
    assert "Medians of 2 runs on two cores, Linux, ext4 at /data, TCP reno, 2026-11-27:" in text
    assert "| consume 1 KiB records, hot, MB/s | 1,000 | 2,000 | 2.00 × |" in text.splitlines()


def test_the_headline_names_every_machine_and_day(written, tmp_path):
    first = written("a.json", "consume.1k", kafka=[1000.0], kafkapy=[2000.0])
    second = written("b.json", "requests.rate", kafka=[1000.0], kafkapy=[2000.0])
    result = json.loads(second.read_text())
    result["machine"]["machine"], result["run"]["date"] = "four cores", "2026-11-28"
    second.write_text(json.dumps(result))
    text = filled("<!-- perf: headline -->\n<!-- /perf -->\n", tmp_path, first, second)
    here, there = (f"{words}, Linux, ext4 at /data, TCP reno" for words in ("two cores", "four cores"))
    assert f"Medians of 1 run on {here}, 2026-11-27; and on {there}, 2026-11-28:" in text.splitlines()


def test_a_figure_of_the_headline_keeps_its_place_where_another_one_is_missing(written, tmp_path):
    file = written("r.json", "java.1k.acks1", kafka=[100.0], kafkapy=[200.0])
    lines = filled("<!-- perf: headline -->\n<!-- /perf -->\n", tmp_path, file).splitlines()
    assert "| produce 1 KiB records, acks=1, librdkafka / Java, MB/s | – / 100 | – / 200 | – / 2.00 × |" in lines


def test_the_headline_marks_figures_that_the_client_limits(written, tmp_path):
    file = written("r.json", "java.1k.acks1", busiest=90.0, kafka=[100.0], kafkapy=[200.0])
    lines = filled("<!-- perf: headline -->\n<!-- /perf -->\n", tmp_path, file).splitlines()
    assert "| produce 1 KiB records, acks=1, librdkafka / Java, MB/s | – / 100 | – / 200† | – / 2.00 × |" in lines
    assert "(†: the client is the limit; its busiest thread uses 90 % of a core or more.)" in lines


def test_ratios_are_to_kafka_also_if_another_checkout_was_measured(written, tmp_path):
    file = written("r.json", "consume.1k", kafka=[100.0], other=[200.0], kafkapy=[200.0])
    page = "<!-- perf: headline -->\n<!-- /perf -->\n<!-- perf: consume. -->\n<!-- /perf -->\n"
    lines = filled(page, tmp_path, file).splitlines()
    assert "| consume 1 KiB records, hot, MB/s | 100 | 200 | 2.00 × |" in lines
    assert "| a figure, MB/s | 1 | 100 | 200 | 2.00 × | ≥ 1.2 × ✓ (one run) |" in lines


def test_both_versions_of_kafka_have_a_column_and_a_ratio(written, tmp_path):
    both = {KAFKA: [100.0], KAFKA_4: [200.0], KAFKAPY: [300.0]}
    file = written("r.json", "consume.1k", **both)
    older = written("o.json", "produce.1k.acks1", kafka=[100.0], kafkapy=[200.0])
    page = "<!-- perf: headline -->\n<!-- /perf -->\n<!-- perf: consume. -->\n<!-- /perf -->\n"
    page += "<!-- perf: produce. -->\n<!-- /perf -->\n"
    lines = filled(page, tmp_path, older, file).splitlines()
    assert "| figure | Apache Kafka 3.9.1 | Apache Kafka 4.4.0 | kafkapy | ratio | ratio to 4.4.0 |" in lines
    assert "| consume 1 KiB records, hot, MB/s | 100 | 200 | 300 | 3.00 × | 1.50 × |" in lines
    assert "| produce 1 KiB records, acks=1 / all, MB/s | 100 / – |  | 200 / – | 2.00 / – × |  |" in lines
    assert (
        "| figure | runs | Apache Kafka 3.9.1 | Apache Kafka 4.4.0 | kafkapy | ratio | ratio to 4.4.0 | goal |" in lines
    )
    assert "| a figure, MB/s | 1 | 100 | 200 | 300 | 3.00 × | 1.50 × | ≥ 1.2 × ✓ (one run) |" in lines
    assert "| a figure, MB/s | 1 | 100 | 200 | 2.00 × | ≥ 1.2 × ✓ (one run) |" in lines


def test_a_difference_within_the_spread_is_no_win(written, tmp_path):
    file = written("r.json", "consume.1k", kafka=[100.0, 200.0], kafkapy=[190.0, 210.0])
    page = "".join(f"<!-- perf: {name} -->\n<!-- /perf -->\n" for name in ("headline", "consume.", "missed"))
    lines = filled(page, tmp_path, file).splitlines()
    assert "| consume 1 KiB records, hot, MB/s | 150 | 200 | no difference |" in lines
    assert lines.count("(“no difference”: the medians differ by less than the runs of one side do.)") == 1
    assert [line.rpartition(" | ")[2] for line in lines if "a figure" in line] == [
        "≥ 1.2 × no difference |",
        "≥ 1.2 × |",
    ]


@pytest.mark.parametrize(
    ("kafka", "kafkapy", "goal"),
    [
        ([100.0, 100.0], [200.0, 200.0], "≥ 1.2 × ✓"),
        ([100.0, 100.0], [200.0], "≥ 1.2 × ✓ (one run)"),
        ([100.0], [200.0, 200.0], "≥ 1.2 × ✓ (one run)"),
        ([100.0], [110.0], "≥ 1.2 × missed"),
    ],
)
def test_a_goal_that_is_reached_in_one_run_says_so(written, tmp_path, kafka, kafkapy, goal):
    file = written("r.json", "consume.1k", kafka=kafka, kafkapy=kafkapy)
    lines = filled("<!-- perf: consume. -->\n<!-- /perf -->\n", tmp_path, file).splitlines()
    assert [line.split(" | ")[-1] for line in lines if "a figure" in line] == [f"{goal} |"]


def test_figures_of_a_run_with_a_profiler_are_not_published(written, tmp_path):
    file = written("r.json", "consume.1k", kafka=[100.0], kafkapy=[200.0])
    result = json.loads(file.read_text())
    result["run"]["command"] = perf_command._command(perf_command._options(["consume", "--profile", "profiles"]))
    file.write_text(json.dumps(result))
    with pytest.raises(SystemExit, match=r"r\.json was made with --profile.* measure again without --profile"):
        filled("<!-- perf: consume. -->\n<!-- /perf -->\n", tmp_path, file)


def test_a_goal_says_that_the_client_is_the_limit(written, tmp_path):
    file = written("r.json", "produce.1k.acks1", kafka=[100.0], kafkapy=[100.0], busiest=97.0)
    page = "<!-- perf: produce. -->\n<!-- /perf -->\n<!-- perf: missed -->\n<!-- /perf -->\n"
    lines = filled(page, tmp_path, file).splitlines()
    assert "| a figure, MB/s | 1 | 100 | 100 | 1.00 × | ≥ 1.2 × (the client is the limit) missed |" in lines
    assert "| a figure, MB/s | 100 | 1.00 × | ≥ 1.2 × (the client is the limit) |" in lines


def test_a_row_without_a_goal_says_that_the_client_is_the_limit_too(written, tmp_path):
    file = written("r.json", "produce.1k.acks1", kafka=[100.0], kafkapy=[100.0], busiest=97.0)
    result = json.loads(file.read_text())
    result["rows"][0] |= {"goal": None, "verdict": None, "reached": None}
    file.write_text(json.dumps(result))
    lines = filled("<!-- perf: produce. -->\n<!-- /perf -->\n", tmp_path, file).splitlines()
    assert "| a figure, MB/s | 1 | 100 | 100 | 1.00 × | (the client is the limit) |" in lines


def test_copies_have_a_line_per_load_and_another_with_the_ratios(tmp_path):
    rows = [
        {"key": f"zero-copy.{mode}.1.4096.{what}", "medians": dict.fromkeys((KAFKA, KAFKAPY, BARE), figure)}
        for mode, figure in (("sendfile", 1.5), ("copy", 3.0))
        for what in ("rate", "cpu")
    ]
    file = tmp_path / "r.json"
    file.write_text(json.dumps({"machine": {}, "run": {}, "rows": rows, "notes": []}))
    lines = filled("<!-- perf: copies -->\n<!-- /perf -->\n", tmp_path, file).splitlines()
    assert "| 4 KiB | 2 · 1.50 | 2 · 1.50 | 2 · 1.50 | 3 · 3.00 | 3 · 3.00 |" in lines
    assert "| 4 KiB | 0.50 × | 0.50 × | 0.50 × | 0.50 × |" in lines


def test_threads_have_a_line_per_setting_and_the_best_of_each_column(written, tmp_path):
    first = written("a.json", "threads.1.0.5.rate", kafkapy=[100.0])
    second = written("b.json", "threads.2.5.rate", kafkapy=[200.0, 220.0])
    text = filled("<!-- perf: threads -->\n<!-- /perf -->\n", tmp_path, first, second)
    assert "| 1 network thread, 0.5 ms | 100 |  |  |  |  |" in text.splitlines()
    assert "| 2 network threads, 5 ms | 210 (200–220) |  |  |  |  |" in text.splitlines()
    assert "The best of each column: requests/s: 2 network threads, 5 ms." in text.splitlines()


NAMES = ("growth topics.", "soak", "steps", "plots topics.create topics.delete soak.rss_mib", "plots zero_copy.rate")


def test_growth_steps_and_the_soak_have_their_places(tmp_path):
    curve = {
        "key": "topics.create",
        "label": "making a topic",
        "of": "topics",
        "unit": "ms",
        "growth": {KAFKAPY: "1 ms: does not grow"},
        "points": {},
    }
    run, soak, steps = (tmp_path / name for name in ("run.json", "soak.json", "steps.json"))
    run.write_text(json.dumps({"machine": {}, "run": {}, "rows": [], "notes": [], "curves": [curve]}))
    sample = {
        "samples": [{"minute": 60.0, "rss_mib": 30.0, "p99_ms": 1.0}],
        "figures": {"p99": 1.0},
        "goals": {"p99": 1.2},
        "failures": [],
    }
    soak.write_text(json.dumps(sample))
    steps.write_text(json.dumps({"steps": {"broker": {"a request": {"decode": 1.0}}, "bare": {"a request": {}}}}))
    page = "".join(f"<!-- perf: {name} -->\n<!-- /perf -->\n" for name in NAMES)
    text = filled(page, tmp_path, run, soak, steps)
    assert "- making a topic: kafkapy 1 ms: does not grow" in text
    assert "| median p99 of acks, last ten minutes / minutes 10 to 20 | 1.00 | ≤ 1.2 | reached |" in text
    assert "| decode | 1.0 |  |" in text
    pictures = [line for line in text.splitlines() if line.startswith("![")]
    assert pictures == [
        "![making a topic](plots/topics.create.png)",
        "![soak: resident memory](plots/soak.rss_mib.png)",
    ]
    assert all((tmp_path / picture.partition("(")[2][:-1]).exists() for picture in pictures)


def test_every_row_of_the_headline_is_measured():
    from perf.measurements import ALL

    known = {row.key for each in ALL for row in each.rows}
    assert {key for _, keys in tables.HEADLINE for key in keys} <= known


def test_a_rate_of_a_client_in_this_process_has_the_share_of_the_client_in_a_row_of_its_measurement():
    from perf.measurements import ALL

    clients = {}
    for each in ALL:
        of_rows = {row.key: row.client for row in each.rows}
        clients |= of_rows
        assert set(filter(None, of_rows.values())) <= set(of_rows)
    of_raw_client = [f"produce.{size}.acks{acks}" for size in ("1k", "100b") for acks in ("1", "all")]
    of_raw_client += ["requests.rate", "consume.1k", "connections.accept"]
    of_raw_client += [f"small.{kind}.{count}.rate" for kind in ("produce", "tail") for count in (1, 16, 64, 256)]
    of_raw_client += [f"commits.{count}.rate" for count in (1, 10, 100)]
    assert all(clients[key].endswith(".busiest") for key in of_raw_client)
