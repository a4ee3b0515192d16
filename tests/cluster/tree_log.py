"""Reads ZooKeeper's transaction logs, which have every change of the tree in order, and checks controllers' changes.

A watcher would miss the first of two quick changes; the logs have both. Their format is that of ZooKeeper 3.8
(FileTxnLog, and zookeeper.jute).
"""

import json
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_HEADER = 4 + 4 + 8  # magic, version, database id
_TXN = struct.Struct(">qiqqi")  # session, cxid, zxid, time, type
_ERROR, _CREATE, _DELETE, _SET, _MULTI, _CREATE2 = -1, 1, 2, 5, 14, 15
_STATE = re.compile(r"/brokers/topics/(?P<topic>[^/]+)/partitions/(?P<partition>\d+)/state")
_TOPIC = re.compile(r"/brokers/topics/(?P<topic>[^/]+)")


class Write(NamedTuple):
    """A change of a node by a session: "create", "set", or "delete", which has no data. Changes of one transaction have
    the same zxid. Ephemeral nodes that a session's end deletes have no Write."""

    zxid: int
    session: int
    kind: str
    path: str
    data: bytes = b""


class _Record:
    """Decodes values that jute has encoded."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        (number,) = struct.unpack_from(">i", self._data, self._at)
        self._at += 4
        return int(number)

    def buffer(self) -> bytes:
        size = max(self.number(), 0)
        self._at += size
        return self._data[self._at - size : self._at]


def read_directories(directories: Iterable[Path]) -> list[Write]:
    """Return the changes in the logs of all servers, in order. A server may lack changes that others have."""
    found: dict[int, list[Write]] = {}
    for directory in directories:
        for file in sorted(directory.glob("log.*")):
            for zxid, writes in read_file(file.read_bytes()):
                found[zxid] = writes
    return [write for zxid in sorted(found) for write in found[zxid]]


def read_file(data: bytes) -> Iterator[tuple[int, list[Write]]]:
    """Return the zxid and the changes of each transaction in a log file."""
    at = _HEADER
    while at + 12 <= len(data):
        (size,) = struct.unpack_from(">i", data, at + 8)
        end = at + 12 + size
        if size == 0 or end >= len(data):  # the file ends with zeros, or with an unfinished transaction
            return
        session, _, zxid, _, kind = _TXN.unpack_from(data, at + 12)
        yield zxid, list(_changes(zxid, session, kind, data[at + 12 + _TXN.size : end]))
        at = end + 1


def _changes(zxid: int, session: int, kind: int, data: bytes) -> Iterator[Write]:
    record = _Record(data)
    if kind == _MULTI:
        parts = [(record.number(), record.buffer()) for _ in range(record.number())]
        if any(part == _ERROR for part, _ in parts):  # a refused transaction, although its first parts look valid
            return
        for part, asked in parts:
            yield from _changes(zxid, session, part, asked)
    elif kind in (_CREATE, _CREATE2):
        yield Write(zxid, session, "create", record.buffer().decode(), record.buffer())
    elif kind == _SET:
        yield Write(zxid, session, "set", record.buffer().decode(), record.buffer())
    elif kind == _DELETE:
        yield Write(zxid, session, "delete", record.buffer().decode())


def check_tree(writes: Sequence[Write]) -> list[str]:
    """Return a sentence for each change that breaks a rule: the controller epoch rises by one with each controller,
    each epoch has one controller, only its session writes partition states, and their leader epochs only rise."""
    problems = []
    epoch, owner = 0, 0
    elected: dict[int, int] = {}  # the session that created /controller, by zxid
    leader_epochs: dict[str, int] = {}
    for write in writes:
        if write.path == "/controller" and write.kind == "create":
            elected[write.zxid] = write.session
        elif write.path == "/controller_epoch" and write.kind != "delete":
            new = int(write.data)
            if write.kind == "set" and new != epoch + 1:
                problems.append(f"the controller epoch went from {epoch} to {new}")
            if write.kind == "set":
                if elected.get(write.zxid) != write.session:
                    problems.append(f"session {write.session:#x} began epoch {new} without becoming the controller")
                owner = write.session
            epoch = new
        elif match := _STATE.fullmatch(write.path):
            if write.kind == "delete":
                leader_epochs.pop(write.path, None)
                continue
            state = json.loads(write.data)
            what = f"the state of {match['topic']}-{match['partition']}, leader epoch {state['leader_epoch']},"
            if state["controller_epoch"] != epoch:
                problems.append(f"{what} was written in the name of epoch {state['controller_epoch']} during {epoch}")
            if write.session != owner:
                problems.append(f"{what} was written by session {write.session:#x}, not by the controller of {epoch}")
            before = leader_epochs.get(write.path, -1)
            if state["leader_epoch"] < before:
                problems.append(f"{what} came after leader epoch {before}")
            leader_epochs[write.path] = state["leader_epoch"]
    begun = {write.zxid for write in writes if write.path == "/controller_epoch" and write.kind == "set"}
    problems += [
        f"session {elected[zxid]:#x} became the controller without a new epoch" for zxid in elected.keys() - begun
    ]
    return problems[:20]


def controllers(writes: Sequence[Write]) -> list[tuple[int, int]]:
    """Return the epoch and the broker id of each controller."""
    epochs = {write.zxid: int(write.data) for write in writes if write.path == "/controller_epoch"}
    return [
        (epochs.get(write.zxid, -1), json.loads(write.data)["brokerid"])
        for write in writes
        if write.path == "/controller" and write.kind == "create"
    ]
