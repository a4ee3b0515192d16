"""Tables as people and as `grep` see them."""

import pytest

from kafkapy.tools.output import print_table

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
