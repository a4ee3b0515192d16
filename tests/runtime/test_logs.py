"""Log lines: one line for each record, quoted fields, and no way for a peer to forge a line."""

import io
import logging
import re

import pytest

from kafkapy.runtime import logs


@pytest.fixture
def lines():
    logger = logging.getLogger("kafkapy")
    before = (logger.handlers[:], logger.level, logger.propagate)
    stream = io.StringIO()
    logs.set_up("info", stream)
    yield lambda: stream.getvalue().splitlines()
    logger.handlers[:], logger.level, logger.propagate = before


def test_a_line_has_time_level_module_message_and_fields(lines) -> None:
    log = logging.getLogger("kafkapy.network.acceptor")
    log.info("refused %d", 3, extra=logs.fields(peer="10.0.0.7:4711", why="too many", empty=""))
    log.debug("not shown")
    (line,) = lines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO  network\.acceptor  refused 3  "
        r'peer=10\.0\.0\.7:4711 why="too many" empty=""',
        line,
    )


def test_line_breaks_in_a_message_or_field_stay_on_the_line(lines) -> None:
    log = logging.getLogger("kafkapy.x")
    log.warning("topic %s", "a\n2026-01-01T00:00:00.000Z ERROR forged", extra=logs.fields(client="b\nc"))
    assert len(lines()) == 1
    assert lines()[0].endswith('client="b\\nc"')


def test_a_traceback_follows_its_line(lines) -> None:
    try:
        raise KeyError("gone")
    except KeyError:
        logging.getLogger("kafkapy.x").exception("failed")
    assert lines()[0].endswith("x  failed")
    assert lines()[-1] == "  KeyError: 'gone'"


# C0 with escape sequences, DEL, C1, line separators, bidirectional marks, invisible characters, a lone surrogate.
NOT_PRINTABLE = [
    "\x00",
    "\t",
    "\x1b[2J",
    "\x7f",
    "\x9b2J",
    "\u2028",
    "\u2029",
    "\u202e",
    "\u2066",
    "\u200b",
    "\ufeff",
    "\udc80",
]


@pytest.mark.parametrize("text", NOT_PRINTABLE, ids=lambda text: f"U+{ord(text[0]):04X}")
def test_text_sent_by_a_client_cannot_control_the_terminal(text) -> None:
    # A logger that pytest does not capture: pytest-xdist cannot send a report with a lone surrogate.
    log, stream = logging.Logger("kafkapy.x"), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.LineFormatter())
    log.addHandler(handler)
    try:
        raise ValueError(f"in an exception: {text}")
    except ValueError:
        log.exception("client %s", f"café {text}!", extra=logs.fields(client=text))
    shown = stream.getvalue().splitlines()
    assert all(line.isprintable() for line in shown)
    escaped = text[0].encode("unicode_escape").decode() + text[1:]
    assert f"client café {escaped}!" in shown[0]
    assert shown[-1] == f"  ValueError: in an exception: {escaped}"


def test_an_exception_cannot_forge_a_line(lines) -> None:
    try:
        raise ValueError("a\n2026-01-01T00:00:00.000Z ERROR forged\rb")
    except ValueError:
        logging.getLogger("kafkapy.x").exception("failed")
    assert [line for line in lines() if not line.startswith("  ")] == lines()[:1]
    assert lines()[-1] == "  2026-01-01T00:00:00.000Z ERROR forged\\rb"


def test_backslashes_that_a_client_sent_are_escaped_too(lines) -> None:
    logging.getLogger("kafkapy.x").warning("%s", "\\x1b is not \x1b")
    assert lines()[0].endswith("\\\\x1b is not \\x1b")


def test_printable_text_stays_as_it_is(lines) -> None:
    logging.getLogger("kafkapy.x").warning("%s", "C:\\data Zürich 東京 🙂")
    assert lines()[0].endswith("C:\\data Zürich 東京 🙂")


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="'loud' is not a log level"):
        logs.set_up("loud")
