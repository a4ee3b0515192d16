"""Tables on a terminal and in a pipe."""

import json

import pytest

from kafkapy.tools.common import output
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.common.output import print_json, print_table, progress
from kafkapy.tools.groups.interface import DescribedGroup
from kafkapy.tools.groups.tables import print_members, print_offsets
from kafkapy.tools.main import sentence_of

ODD = "[bold]:smile:\a"


def test_in_a_pipe_a_table_is_plain_columns_that_are_never_folded(capsys):
    print_table(["name", "bytes>"], [["日本", 7], ["x" * 300, 12345], [None, None]], title="a title of a few words")
    assert capsys.readouterr().out == (
        f"a title of a few words\nname{' ' * 296}  bytes\n日本{' ' * 296}      7\n{'x' * 300}  12345\n\n"
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_the_contents_of_a_cell_are_shown_unchanged(capsys, monkeypatch, terminal):
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    print_table(["name"], [[ODD]])
    assert "[bold]:smile:" in capsys.readouterr().out


def test_a_cell_stays_on_one_line(capsys):
    print_table(["a", "b"], [["one\ntwo\r", "x"]])
    assert capsys.readouterr().out == f"a{' ' * 11}b\none\\ntwo\\r  x\n"


HOSTILE = "g\x1b[31mred\x1b]0;title\x07\x9b2J\u202e"
ESCAPED = r"g\x1b[31mred\x1b]0;title\x07\x9b2J\u202e"


@pytest.mark.parametrize("terminal", [True, False])
def test_text_from_clients_cannot_control_the_terminal(capsys, monkeypatch, terminal):
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    print_table(["name"], [[HOSTILE]], title=HOSTILE)
    written = capsys.readouterr().out
    assert written.count(ESCAPED) == 2
    assert not any(code in written for code in ("\x1b[31m", "\x1b]", "\x07", "\x9b", "\u202e"))


def test_errors_cannot_control_the_terminal_either():
    assert sentence_of(ToolError(f"there is no group {HOSTILE}\nand no other")) == (
        f"there is no group {ESCAPED}\nand no other."
    )


def test_headlines_of_groups_are_escaped_too(capsys):
    group = {"group": HOSTILE, "state": "Empty", "members": [], "offsets": []}
    print_offsets(DescribedGroup(group, None))
    print_members(DescribedGroup(group, None))
    assert capsys.readouterr().out.count(f"Group {ESCAPED}: Empty, no members") == 2


def test_json_has_the_unescaped_text(capsys):
    print_json({"group": HOSTILE})
    assert json.loads(capsys.readouterr().out) == {"group": HOSTILE}


@pytest.fixture
def shown(monkeypatch):
    """Return the calls that a progress bar gets while lines of a result are printed, with a clock of the test."""
    messages = []
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("rich.progress.Progress.start", lambda self: messages.append("start"))
    monkeypatch.setattr("rich.progress.Progress.stop", lambda self: messages.append("stop"))
    monkeypatch.setattr("rich.progress.Progress.update", lambda self, task, completed: messages.append(completed))
    return messages


def test_a_bar_is_hidden_while_lines_are_printed_and_shown_again_after_them(shown, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    with progress("Checking", 50, prints_lines=False) as advance:
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
