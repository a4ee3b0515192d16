"""Plans of resets in files."""

from pathlib import Path

import pytest

from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.groups.plan_file import read_plan, write_plan
from kafkapy.tools.groups.reset_plan import Reset


@pytest.fixture
def file(tmp_path):
    return tmp_path / "plan.csv"


def test_a_plan_of_one_group_is_written_and_read_back(file):
    write_plan(file, [Reset("g", "t", 0, 3, 5, ""), Reset("g", 'a "name", odd', 12, None, 0, "n")], with_group=False)
    assert file.read_text() == 't,0,5\n"a ""name"", odd",12,0\n'
    assert read_plan(file, ["h"]) == {"h": {("t", 0): 5, ('a "name", odd', 12): 0}}


def test_a_plan_of_several_groups_is_written_and_read_back(file):
    write_plan(file, [Reset("g", "t", 0, 3, 5, ""), Reset("h", "t", 0, 3, 6, "")], with_group=True)
    assert read_plan(file, []) == read_plan(file, ["x", "y"]) == {"g": {("t", 0): 5}, "h": {("t", 0): 6}}


def test_lines_with_a_group_are_read_for_one_group_too(file):
    file.write_bytes(b'\n"h","t",0, 6\r\n')
    assert read_plan(file, ["g"]) == {"h": {("t", 0): 6}}


@pytest.mark.parametrize(
    ("text", "groups", "sentence"),
    [
        ("t,0,1\nt,0\n", ["g"], "line 2: 't,0' is not TOPIC,PARTITION,OFFSET"),
        ("t,0,1\n", [], "line 1: 't,0,1' is not GROUP,TOPIC,PARTITION,OFFSET"),
        ("t,0,1\n", ["a", "b"], "line 1: 't,0,1' is not GROUP,TOPIC,PARTITION,OFFSET"),
        ("topic,partition,offset\n", ["g"], "line 1: 'partition' is no partition"),
        ("t,0,-5\n", ["g"], "line 1: '-5' is no offset"),
        ("t,0,9223372036854775808\n", ["g"], "is no offset"),
        (",0,5\n", ["g"], "line 1: ',0,5' has no topic"),
        (",t,0,5\n", [], "line 1: ',t,0,5' has no group"),
        ("t,0,5\nt,0,6\n", ["g"], "line 2: t:0 of group 'g' has an offset already in a line above"),
        ("\n", ["g"], "has no line TOPIC,PARTITION,OFFSET"),
        ('"t,0,5\n', ["g"], "is no file of lines TOPIC,PARTITION,OFFSET"),
    ],
)
def test_the_error_names_an_invalid_line(file, text, groups, sentence):
    file.write_text(text)
    with pytest.raises(ToolError) as error:
        read_plan(file, groups)
    assert str(file) in str(error.value)
    assert sentence in str(error.value)


def test_a_file_that_is_not_text_is_reported(file):
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ToolError, match="is no file of lines TOPIC,PARTITION,OFFSET"):
        read_plan(file, ["g"])


def test_the_error_names_a_file_that_cannot_be_read_or_written(tmp_path):
    with pytest.raises(ToolError, match=r"/none cannot be read: No such file"):
        read_plan(tmp_path / "none", ["g"])
    with pytest.raises(ToolError, match=r"cannot be written: Is a directory"):
        write_plan(tmp_path, [], with_group=False)


def test_a_plan_can_be_written_to_standard_output(capsys):
    write_plan(Path("-"), [Reset("g", "t", 0, 3, 5, "")], with_group=False)
    assert capsys.readouterr().out == "t,0,5\n"
