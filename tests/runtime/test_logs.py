"""Log lines: one line a record, fields quoted, nothing a peer sends can forge a line."""

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
    assert lines()[-1] == "KeyError: 'gone'"


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="'loud' is not a log level"):
        logs.set_up("loud")
