"""Tables as people and as `grep` see them."""

import pytest

from kafkapy.tools.common import output
from kafkapy.tools.common.output import print_table, progress

ODD = "[bold]:smile:\a"


def test_in_a_pipe_a_table_is_plain_columns_that_are_never_folded(capsys):
    print_table(["name", "bytes>"], [["日本", 7], ["x" * 300, 12345], [None, None]], title="a title of a few words")
    assert capsys.readouterr().out == (
        f"a title of a few words\nname{' ' * 296}  bytes\n日本{' ' * 296}      7\n{'x' * 300}  12345\n\n"
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_what_is_in_a_cell_is_shown_as_it_is(capsys, monkeypatch, terminal):
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    print_table(["name"], [[ODD]])
    assert "[bold]:smile:" in capsys.readouterr().out


def test_a_cell_stays_in_its_line(capsys):
    print_table(["a", "b"], [["one\ntwo\r", "x"]])
    assert capsys.readouterr().out == "a        b\none two  x\n"


@pytest.fixture
def shown(monkeypatch):
    """What a bar is told while lines of a result come, with a clock of its own."""
    told = []
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("rich.progress.Progress.start", lambda self: told.append("start"))
    monkeypatch.setattr("rich.progress.Progress.stop", lambda self: told.append("stop"))
    monkeypatch.setattr("rich.progress.Progress.update", lambda self, task, completed: told.append(completed))
    return told


def test_a_bar_makes_room_for_lines_and_comes_back_when_none_come(shown, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    with progress("Checking", 50, beside_lines=False) as advance:
        advance(10)
        advance.hide()
        advance.hide()
        advance(20)
        now[0] += 2 * output.QUIET_S
        advance(30)
    assert shown == ["start", 10, "stop", 20, "start", 30, "stop"]


def test_without_a_terminal_there_is_no_bar(capsys):
    with progress("Checking", 50) as advance:
        advance(10)
        advance.hide()
    assert capsys.readouterr() == ("", "")
