"""A log handler that writes to a file of its own."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.runtime import log_file
from kafkapy.runtime.log_file import LogFile
from kafkapy.runtime.logs import JsonFormatter, LineFormatter, as_json, fields
from tests.harness.waiting import eventually

PLAIN = logging.Formatter("%(message)s")


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.Logger("test.log_file", logging.DEBUG)
    yield logger
    for handler in logger.handlers:
        handler.close()


def log_to(logger: logging.Logger, path: Path, formatter: logging.Formatter = PLAIN, **kwargs) -> LogFile:
    handler = LogFile(path, formatter, **kwargs)
    logger.addHandler(handler)
    return handler


def written(handler: LogFile) -> None:
    """Wait until all records are written."""
    done = threading.Event()

    class Last(logging.LogRecord):
        def getMessage(self) -> str:
            done.set()
            return "written"

    handler.emit(Last("last", logging.INFO, "", 0, "", (), None))
    assert done.wait(20)


def test_lines_are_written_and_the_file_is_for_its_owner_only(logger: logging.Logger, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    handler = log_to(logger, path)
    for number in range(1000):
        logger.info("line %d", number)
    handler.close()
    handler.close()
    assert path.read_text().splitlines() == [f"line {number}" for number in range(1000)]
    assert path.stat().st_mode & 0o777 == 0o600
    logger.info("after the end")
    assert handler.lost == 1


def test_a_large_file_is_renamed_and_few_are_kept(logger: logging.Logger, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    handler = log_to(logger, path, max_bytes=100, count=2)
    for number in range(50):
        logger.info("%09d", number)
    handler.close()
    files = {one.name: one.read_text().split() for one in tmp_path.iterdir()}
    assert sorted(files) == ["audit.log", "audit.log.1", "audit.log.2"]
    kept = files["audit.log.2"] + files["audit.log.1"] + files["audit.log"]
    assert kept == [f"{number:09d}" for number in range(20, 50)]


def test_without_kept_files_the_file_begins_again(logger: logging.Logger, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    handler = log_to(logger, path, max_bytes=25, count=0)
    for number in range(5):
        logger.info("%09d", number)
    handler.close()
    assert [one.name for one in tmp_path.iterdir()] == ["audit.log"]
    assert path.read_text().split() == ["000000004"]


@pytest.mark.parametrize("how", ["renamed", "removed"])
def test_the_file_is_opened_again_after_another_program_took_it(
    logger: logging.Logger, tmp_path: Path, how: str
) -> None:
    path = tmp_path / "audit.log"
    handler = log_to(logger, path)
    logger.info("before")
    written(handler)
    if how == "renamed":
        path.rename(tmp_path / "audit.old")
    else:
        path.unlink()
    logger.info("after")
    handler.close()
    assert path.read_text() == "after\n"


def test_a_full_disk_loses_lines_and_is_logged_once(
    logger: logging.Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.log"
    handler = log_to(logger, path)
    logger.info("first")
    written(handler)
    real, room = os.write, [3]

    def write(fd: int, data: memoryview) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        size, room[0] = room[0], 0
        return real(fd, data[:size])

    with monkeypatch.context() as full:
        full.setattr(log_file.os, "write", write)
        for number in range(3):
            logger.info("lost")
            eventually(lambda n=number: handler.lost == n + 1)
    logger.info("last")
    handler.close()
    assert path.read_text() == "first\nwritten\nlos\nlast\n"
    assert [record.getMessage() for record in caplog.records if "lines are lost" in record.getMessage()] == [
        f"cannot write to {path}, so lines are lost: [Errno 28] No space left on device"
    ]


def test_no_caller_waits_for_a_slow_disk(
    logger: logging.Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "MOST_WAITING", 10)
    writing, go_on, real = threading.Event(), threading.Event(), os.write

    def write(fd: int, data: memoryview) -> int:
        writing.set()
        assert go_on.wait(20)
        return real(fd, data)

    path = tmp_path / "audit.log"
    handler = log_to(logger, path)
    written(handler)
    monkeypatch.setattr(log_file.os, "write", write)
    logger.info("first")
    assert writing.wait(20)
    for number in range(15):
        logger.info("%d", number)
    assert handler.lost == 5
    go_on.set()
    handler.close()
    assert path.read_text().split() == ["written", "first", *map(str, range(10))]


def test_lines_of_json_have_values_or_the_message(logger: logging.Logger, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    handler = log_to(logger, path, JsonFormatter())
    logger.info("not shown", extra=as_json({"principal": "User:a\nb\x1b", "count": 3}))
    logger.warning("a %s", "message", extra=fields(peer="10.0.0.1:4"))
    handler.close()
    first, second = map(json.loads, path.read_text().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {"level": "INFO", "logger": "test.log_file", "principal": "User:a\nb\x1b", "count": 3}
    assert (second["message"], second["peer"], second["level"]) == ("a message", "10.0.0.1:4", "WARNING")


def test_names_with_control_characters_forge_no_line(logger: logging.Logger, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    handler = log_to(logger, path, LineFormatter())
    logger.info("Principal = %s", "User:a\nPrincipal = User:admin is Allowed\r\x1b[2J\u2028\ud800")
    handler.close()
    (line,) = path.read_text().splitlines()
    assert r"User:a\nPrincipal = User:admin is Allowed\r\x1b[2J\u2028" in line


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LogFile(tmp_path / "missing" / "audit.log", PLAIN)
