"""The file of the local tree: files that are refused, a full or lost disk, and missing memory."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from kafkapy.metadata.local.tree import FILE_NAME, LocalTree, LocalTreeError
from kafkapy.metadata.tree import Create, Set, Tree, TreeUnavailable
from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.shortage_report import QUIET_S, ShortageReport
from tests.harness.tree_suite import Reopen, TreeSuite


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[LocalTree]:
    tree = LocalTree(tmp_path / FILE_NAME)
    yield tree
    tree.close()


@pytest.fixture
def reopened(tmp_path: Path) -> Reopen:
    def reopen(tree: Tree) -> Tree:
        tree.close()
        return LocalTree(tmp_path / FILE_NAME)

    return reopen


class TestLocalTree(TreeSuite):
    pass


def test_a_second_broker_on_the_same_file_is_refused(tree: LocalTree, tmp_path: Path) -> None:
    with pytest.raises(LocalTreeError, match="in use by another broker"):
        LocalTree(tmp_path / FILE_NAME)


def test_a_foreign_file_is_refused_by_name(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"not a database at all, but long enough to look like one" * 50)
    with pytest.raises(LocalTreeError, match=r"garbage\.db is damaged"):
        LocalTree(garbage)
    foreign = tmp_path / "foreign.db"
    database = sqlite3.connect(foreign)
    database.execute("CREATE TABLE t (x)")
    database.close()
    with pytest.raises(LocalTreeError, match=r"foreign\.db is an SQLite file of another program"):
        LocalTree(foreign)
    with pytest.raises(LocalTreeError, match=r"cannot be opened"):
        LocalTree(tmp_path / "no such directory" / "x.db")


def test_a_file_of_a_newer_version_is_refused(tree: LocalTree, tmp_path: Path) -> None:
    tree.close()
    database = sqlite3.connect(tmp_path / FILE_NAME)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(LocalTreeError, match="format 99"):
        LocalTree(tmp_path / FILE_NAME)


def test_a_full_disk_fails_the_change_and_nothing_else(
    tmp_path: Path, reopened: Reopen, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[Exception] = []
    clock = ManualClock()
    tree = LocalTree(tmp_path / FILE_NAME, failures.append, ShortageReport(str(tmp_path), clock))
    tree.commit([Create("/a")])
    database = tree._database
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages + 1}")  # as if the disk were full
    for _ in range(3):
        with pytest.raises(TreeUnavailable, match=r"database or disk is full\); bytes free: \d+; free some space"):
            tree.commit([Create("/big", b"x" * 1_000_000)])
    assert not tree.exists("/big")
    (warning,) = caplog.messages
    assert warning.startswith(f"{tmp_path} cannot be written: database or disk is full; ")
    assert "Refused: changing the metadata, " in warning
    clock.advance(QUIET_S)
    database.execute("PRAGMA max_page_count = 1000000")
    tree.commit([Create("/big", b"x" * 1_000_000)])
    assert "writes refused: 3, in 0 s" in caplog.messages[1]
    again = reopened(tree)
    assert again.get("/big").data == b"x" * 1_000_000
    assert failures == []
    again.close()


def test_a_lost_file_is_reported_once_and_fails_every_change(tmp_path: Path) -> None:
    failures: list[Exception] = []
    tree = LocalTree(tmp_path / FILE_NAME, failures.append)
    tree.commit([Create("/a", b"x")])
    tree._database.close()  # as if the disk were gone
    for _ in range(2):
        with pytest.raises(TreeUnavailable):
            tree.commit([Set("/a", b"y")])
    assert tree.get("/a").data == b"x"
    assert len(failures) == 1
    tree.close()


def test_a_change_that_finds_no_memory_fails_and_the_next_one_is_made(
    tree: LocalTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = tree._write
    monkeypatch.setattr(tree, "_write", Mock(side_effect=MemoryError))
    with pytest.raises(TreeUnavailable, match="not enough memory"):
        tree.commit([Create("/x")])
    monkeypatch.setattr(tree, "_write", write)
    assert tree.commit([Create("/x")]) == ["/x"]
