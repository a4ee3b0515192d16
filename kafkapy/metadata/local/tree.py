"""The metadata tree in an SQLite file, for a broker without ZooKeeper.

Reads come from memory. One thread owns the file. It takes all waiting changes, writes them in one transaction (WAL,
synchronous=FULL: one fsync), then makes them visible to readers and calls their callbacks. After a crash, the file has
all changes whose callback was called, and perhaps those of the transaction that was being written. Ephemeral nodes are
kept in memory only and end with the process, like those of a ZooKeeper session.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kafkapy.metadata.local.overlay import Overlay
from kafkapy.metadata.tree import (
    Done,
    Event,
    Node,
    NoNode,
    Operation,
    Tree,
    TreeError,
    TreeUnavailable,
    TreeUnreachable,
    split_path,
)
from kafkapy.metadata.watches import Watches, call
from kafkapy.runtime.clock import SYSTEM_CLOCK
from kafkapy.runtime.shortage_report import ShortageReport, free_bytes
from kafkapy.runtime.threads import NoThread, Thread

FILE_NAME = "kafkapy-metadata.db"

_APPLICATION_ID = 0x6B61666B  # "kafk"
_FORMAT = 1
_MODE = 0o600
_SCHEMA = """
CREATE TABLE nodes (
    path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL, created INTEGER NOT NULL,
    changed INTEGER NOT NULL, sequence INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO nodes VALUES ('/', x'', 0, 0, 0, 0);
INSERT INTO state VALUES ('session', 0);
"""
_SESSION_SHIFT = 32

log = logging.getLogger("kafkapy.metadata.local")

Pending = tuple[Sequence[Operation], Done]


class LocalTreeError(Exception):
    """Raised if the SQLite file cannot be opened. The message names the file and tells the reason."""


class LocalTree(Tree):
    """A metadata tree in the SQLite file at `path`, which is created if it does not exist. The constructor raises
    LocalTreeError if the file cannot be opened, NoThread if no thread can be started.

    `on_failure(error)` is called once if the file can no longer be written for another reason than a full disk. The
    broker must then stop.
    """

    def __init__(
        self,
        path: Path,
        on_failure: Callable[[Exception], None] | None = None,
        shortage: ShortageReport | None = None,
    ) -> None:
        """Open the file and load its nodes. `shortage` is the report of full-disk errors in the file's directory."""
        self._path = path
        self._shortage = shortage or ShortageReport(str(path.parent), SYSTEM_CLOCK)
        self._on_failure = on_failure
        self._nodes: dict[str, Node] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._sequences: dict[str, int] = {}
        self._watches = Watches()
        self._changed = threading.Condition()
        self._waiting: deque[Pending] = deque()
        self._closed = False
        self._failed = False
        self._database = _open(path)
        try:
            self._load()
            self._number = self._begin_session()
        except sqlite3.Error as error:
            self._database.close()
            raise LocalTreeError(_explain(path, error)) from error
        self._thread = Thread(self._run, "metadata")
        try:
            self._thread.start()
        except NoThread:
            self._database.close()
            raise

    # Reads: from any thread, without a lock. Each is atomic; a change may happen between two reads.

    def find(self, path: str) -> Node | None:
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        names = self._children.get(path)
        if names is None:
            if path not in self._nodes:
                raise NoNode(path)
            return []
        return sorted(names)

    # Changes.

    def submit(self, operations: Sequence[Operation], done: Done) -> None:
        with self._changed:
            if not self._closed:
                self._waiting.append((operations, done))
                self._changed.notify()
                return
        done(None, TreeUnreachable(str(self._path), "the metadata is closed"))

    def watch(self, path: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        return self._watches.add(path, callback)

    def watch_all(self, callback: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        return self._watches.add_for_all(callback)

    def on_new_session(self, callback: Callable[[], None]) -> None:
        pass  # the only session ends with the process

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if not self.on_tree_thread():
            self._thread.join()

    def on_tree_thread(self) -> bool:
        return threading.current_thread() is self._thread

    # The tree's own thread.

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                group = list(self._waiting)
                self._waiting.clear()
            if not group:
                break
            self._commit_group(group)
        try:
            self._database.close()
        except sqlite3.Error as error:
            log.error("closing %s failed: %s", self._path, error)

    def _commit_group(self, group: list[Pending]) -> None:
        overlay = Overlay(self._nodes, self._count_children, self._sequences)
        outcomes: list[tuple[Done, list[Any] | None, TreeError | None]] = []
        number = self._number
        for operations, done in group:
            try:
                outcomes.append((done, overlay.apply(operations, number + 1), None))
                number += 1
            except TreeError as error:
                outcomes.append((done, None, error))
            except Exception as error:  # an invalid change must not end the thread
                outcomes.append((done, None, _unavailable(self._path, f"invalid change: {error}")))
        try:
            self._write(overlay)
        except (sqlite3.Error, MemoryError) as error:
            failure = _unavailable(self._path, _explain(self._path, error))
            outcomes = [(done, None, old or failure) for done, _, old in outcomes]
            overlay = Overlay(self._nodes, self._count_children, self._sequences)
            self._report(error, failure, len(group))
        else:
            self._number = number
        self._publish(overlay)
        self._watches.fire(overlay.events)
        for done, results, problem in outcomes:
            call(done, results, problem)

    def _write(self, overlay: Overlay) -> None:
        """Write the overlay's changes to the file, except for those of ephemeral nodes, and wait until they are on
        disk. Raises sqlite3.Error or MemoryError, after which the file is unchanged."""
        gone, rows = [], []
        for path in overlay.changed.keys() | overlay.new_sequences.keys():
            node = overlay.find(path)
            if node is None:
                before = self._nodes.get(path)
                if before is not None and not before.ephemeral:
                    gone.append((path,))
            elif not node.ephemeral:
                sequence = overlay.new_sequences.get(path, self._sequences.get(path, 0))
                rows.append((path, node.data, node.version, node.created, node.changed, sequence))
        if not gone and not rows:
            return
        database = self._database
        try:
            database.execute("BEGIN IMMEDIATE")
            database.executemany("DELETE FROM nodes WHERE path = ?", gone)
            database.executemany("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?)", rows)
            database.execute("COMMIT")
            if self._shortage.lasts:
                self._shortage.written()
        except (sqlite3.Error, MemoryError):
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def _publish(self, overlay: Overlay) -> None:
        for path, node in overlay.changed.items():
            if node is not None:
                self._insert(path, node)
            elif self._nodes.pop(path, None) is not None:
                self._children.pop(path, None)
                parent, name = split_path(path)
                # The parent may be removed before its last child here: paths are in the order in which they were first
                # changed.
                self._children.get(parent, {}).pop(name, None)
        for path, sequence in overlay.new_sequences.items():
            if sequence:
                self._sequences[path] = sequence
            else:
                self._sequences.pop(path, None)

    def _report(self, error: sqlite3.Error | MemoryError, failure: TreeError, changes: int) -> None:
        # A full disk may have room later, and so may the memory; other errors mean that the directory has failed.
        if _is_full(error):
            self._shortage.refused("changing the metadata", str(error), changes)
            return
        log.error("%s", failure)
        if isinstance(error, sqlite3.Error) and not self._failed and self._on_failure is not None:
            self._failed = True
            self._on_failure(error)

    # Opening.

    def _load(self) -> None:
        query = "SELECT path, data, version, created, changed, sequence FROM nodes ORDER BY path"
        for path, data, version, created, changed, sequence in self._database.execute(query):
            self._insert(path, Node(bytes(data), version, created, changed, False))
            if sequence:
                self._sequences[path] = sequence

    def _begin_session(self) -> int:
        """Return the number (zxid) that precedes this process's first change. All numbers of this process are greater
        than those of earlier processes."""
        (session,) = self._database.execute("SELECT value FROM state WHERE name = 'session'").fetchone()
        self._database.execute("UPDATE state SET value = ? WHERE name = 'session'", (session + 1,))
        return int(session + 1) << _SESSION_SHIFT

    def _insert(self, path: str, node: Node) -> None:
        self._nodes[path] = node
        if path != "/":
            parent, name = split_path(path)
            self._children.setdefault(parent, {})[name] = None

    def _count_children(self, path: str) -> int:
        return len(self._children.get(path, ()))


def _open(path: Path) -> sqlite3.Connection:
    _keep_private(path)
    try:
        database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise LocalTreeError(_explain(path, error)) from error
    try:
        # Exclusive: the first access locks the file while it is open, and no shared memory file is needed.
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (form,) = database.execute("PRAGMA user_version").fetchone()
        if (application, form) == (0, 0):
            if database.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
                raise LocalTreeError(f"{path} is an SQLite file of another program")
            header = f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {_FORMAT};"
            database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} {header} COMMIT;")
        elif application != _APPLICATION_ID:
            raise LocalTreeError(f"{path} is an SQLite file of another program")
        elif form != _FORMAT:
            raise LocalTreeError(f"{path} has format {form}; this version of kafkapy reads format {_FORMAT}")
    except sqlite3.Error as error:
        database.close()
        raise LocalTreeError(_explain(path, error)) from error
    except LocalTreeError:
        database.close()
        raise
    return database


def _keep_private(path: Path) -> None:
    """Let only the owner read and write the file, which holds users' keys and passwords. SQLite gives the files beside
    it the same mode. Another owner's file keeps its mode; opening the file reports an error of the directory."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE))
        for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
            if file.exists() and stat.S_IMODE(file.stat().st_mode) & ~_MODE:
                file.chmod(_MODE)
    except OSError:
        pass


def _is_full(error: sqlite3.Error | MemoryError) -> bool:
    return getattr(error, "sqlite_errorname", "") == "SQLITE_FULL" or "full" in str(error)


def _explain(path: Path, error: sqlite3.Error | MemoryError) -> str:
    text = str(error) or "there is not enough memory"
    if _is_full(error):
        return f"{path} cannot be written ({text}); bytes free: {free_bytes(str(path.parent))}; free some space"
    if "locked" in text:
        return f"{path} is in use by another broker"
    if "not a database" in text or "malformed" in text:
        return f"{path} is damaged ({text}); restore it from a copy"
    if "unable to open" in text:
        return f"{path} cannot be opened: check that the directory is there and can be written"
    return f"{path}: {text}"


def _unavailable(path: Path, message: str) -> TreeUnavailable:
    return TreeUnavailable(str(path), message)
