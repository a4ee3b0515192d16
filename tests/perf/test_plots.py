"""Plots are made of the JSON alone."""

import json

import pytest

from perf import plots
from perf.curves import Curve
from perf.measurement import KAFKA, KAFKAPY


@pytest.fixture
def result(tmp_path):
    curve = Curve("clean stop", "s", "partitions")
    for side, cost in ((KAFKA, 2.0), (KAFKAPY, 1.0)):
        for size in (1, 10, 100):
            curve.add(side, size, cost * size)
    file = tmp_path / "result.json"
    file.write_text(json.dumps({"curves": [curve.as_json("partitions.stop")]}))
    return file


def test_each_curve_becomes_a_picture(result, tmp_path, capsys):
    file = tmp_path / "plots" / "partitions.stop.png"
    assert plots.main([str(result), str(file.parent)]) == 0
    assert capsys.readouterr().out.strip() == str(file)
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_result_without_curves_is_an_error_in_a_sentence(tmp_path, capsys):
    file = tmp_path / "none.json"
    file.write_text("{}")
    with pytest.raises(SystemExit):
        plots.main([str(file), str(tmp_path)])
    assert "holds no curve" in capsys.readouterr().err
