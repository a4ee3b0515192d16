"""A disk whose power is cut: every change is recorded, and replayed to a state that a cut after that change may leave.

Only synced data is certain to be there. Any part of the rest may be there too: blocks reach the disk in any order, so
each block of a file has any of its versions since the last sync of the file; the file's size is any of its sizes since
then, whether the blocks up to it are there or not (missing blocks read as zeros); a name that was created, renamed or
removed since the last sync of its directory may be changed or not. What a real file
system promises beyond that (ext4 keeps the order of its metadata, and a sync of a new file keeps its name too) is not
relied upon.

The log works on a real directory meanwhile, for kafkapy._ext.segment_scan reads descriptors.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from kafkapy.log.storage.files import Buffer, Files
from kafkapy.record.file_region import FileHandle

ROOT = 0


class Link(NamedTuple):
    """A new name for a new node; `directory` and `node` are numbers assigned by the recorder."""

    directory: int
    name: str
    node: int
    is_dir: bool


class Unlink(NamedTuple):
    directory: int
    name: str


class Rename(NamedTuple):
    """A rename within one directory, the only kind that logs do. It replaces a file with the new name."""

    directory: int
    old: str
    new: str


class Write(NamedTuple):
    node: int
    position: int
    data: bytes


class Truncate(NamedTuple):
    node: int
    size: int


class Sync(NamedTuple):
    """A sync of a file with its size, or of the names in a directory."""

    node: int


Change = Link | Unlink | Rename | Write | Truncate | Sync


class RecordingFiles(Files):
    """Files in `root` that record every change in `journal`; the contents of `root` at the start count as synced.

    After a kill they do not. Then `killed` is the disk as the killed process left it, and `root` the result of
    `killed.cut` with Loss.NOTHING: changes that the process had not synced can still be lost. The journal continues
    that process's journal. Threads make changes one at a time, so the journal has the order of the changes.
    """

    def __init__(self, root: Path, killed: Platter | None = None) -> None:
        self.root = str(root)
        self._lock = threading.RLock()
        self.journal: list[Change] = []
        self._last_node = ROOT
        self._inodes: dict[int, int] = {os.stat(root).st_ino: ROOT}
        if killed is None:
            self._take_as_synced()
        else:
            self._continue_after(killed)
        self.begin = len(self.journal)
        """Where the changes begin that were made through this object."""

    def _take_as_synced(self) -> None:
        for path, _ in _walk(self.root):
            self._link(path, os.path.isdir(path))
            if not os.path.isdir(path) and os.path.getsize(path):
                self.journal.append(Write(self._last_node, 0, Path(path).read_bytes()))
        self.journal += [Sync(node) for node in range(self._last_node + 1)]

    def _continue_after(self, killed: Platter) -> None:
        self.journal += killed.played
        self._last_node = max((change.node for change in self.journal if isinstance(change, Link)), default=ROOT)
        nodes = dict(killed.paths())
        for path, _ in _walk(self.root):
            self._inodes[os.stat(path).st_ino] = nodes[os.path.relpath(path, self.root)]

    def _node(self, path_or_fd: str | int) -> int:
        return self._inodes[os.stat(path_or_fd).st_ino]

    def _place(self, path: str) -> tuple[int, str]:
        return self._node(os.path.dirname(path)), os.path.basename(path)

    def _link(self, path: str, is_dir: bool) -> None:
        self._last_node += 1
        self._inodes[os.stat(path).st_ino] = self._last_node
        self.journal.append(Link(*self._place(path), self._last_node, is_dir))

    # --- changes

    def make_dir(self, path: str) -> None:
        with self._lock:
            if not os.path.isdir(path):
                self.make_dir(os.path.dirname(path))
                os.mkdir(path)
                self._link(path, True)

    def rename(self, old: str, new: str) -> None:
        with self._lock:
            directory, name = self._place(old)
            assert os.path.dirname(old) == os.path.dirname(new)
            super().rename(old, new)
            self.journal.append(Rename(directory, name, os.path.basename(new)))

    def unlink(self, path: str) -> bool:
        with self._lock:
            if not super().unlink(path):
                return False
            self.journal.append(Unlink(*self._place(path)))
            return True

    def remove_tree(self, path: str) -> None:
        with self._lock:
            if not os.path.isdir(path):
                return
            for below, _ in reversed(list(_walk(path))):
                if os.path.isdir(below):
                    self._remove_dir(below)
                else:
                    self.unlink(below)
            self._remove_dir(path)

    def _remove_dir(self, path: str) -> None:
        os.rmdir(path)
        self.journal.append(Unlink(*self._place(path)))

    def sync_dir(self, path: str) -> None:
        with self._lock:
            if path != os.path.dirname(self.root):  # the root's own name is never lost
                self.journal.append(Sync(self._node(path)))

    def open(self, path: str, *, create: bool = False) -> FileHandle:
        with self._lock:
            is_new = create and not os.path.exists(path)
            handle = super().open(path, create=create)
            if is_new:
                self._link(path, False)
            return handle

    def pwritev(self, file: FileHandle, buffers: Sequence[Buffer], position: int) -> int:
        with self._lock:
            written = super().pwritev(file, buffers, position)
            self.journal.append(Write(self._node(file.fd), position, b"".join(buffers)[:written]))
            return written

    def truncate(self, file: FileHandle, size: int) -> None:
        with self._lock:
            super().truncate(file, size)
            self.journal.append(Truncate(self._node(file.fd), size))

    def sync(self, file: FileHandle) -> None:
        with self._lock:
            self.journal.append(Sync(self._node(file.fd)))


class UnsyncedFiles(Files):
    """Files without syncs, for checks after a cut, while the machine stays on."""

    def sync(self, file: FileHandle) -> None:
        pass

    def sync_dir(self, path: str) -> None:
        os.stat(path)


class Loss(Enum):
    """How much of the unsynced data a cut loses."""

    ALL = "all of it"
    NOTHING = "nothing, as when only the process dies"
    LATEST_NAMES = "any blocks and sizes, and the latest changes of names"
    ANY = "any blocks, sizes and changes of names"


class _File:
    """A file's content at its last sync, and the changes since then."""

    def __init__(self) -> None:
        self.synced = b""
        self.content = bytearray()
        self.since: list[tuple[int, int, bytes]] = []  # (position, size afterwards, data; to there zeros)

    def write(self, position: int, data: bytes) -> None:
        missing = position + len(data) - len(self.content)
        self.content.extend(bytes(max(missing, 0)))
        self.content[position : position + len(data)] = data
        self.since.append((position, len(self.content), data))

    def truncate(self, size: int) -> None:
        cut = len(self.content) - size
        if cut > 0:
            del self.content[size:]
        else:
            self.content.extend(bytes(-cut))
        self.since.append((size, size, bytes(max(cut, 0))))

    def sync(self) -> None:
        self.synced = bytes(self.content)
        self.since.clear()

    def after(self, loss: Loss, block: int, rng: random.Random) -> bytes:
        """Return a possible content of the file after a cut, on a disk that writes blocks of `block` bytes."""
        if loss is Loss.NOTHING:
            return bytes(self.content)
        if loss is Loss.ALL or not self.since:
            return self.synced
        count = len(self.since)
        sizes = [len(self.synced), *(size for _, size, _ in self.since)]
        size = rng.choice((sizes[0], sizes[-1], rng.choice(sizes)))
        content = bytearray(self.synced) + bytes(max(size, *sizes) - len(self.synced))
        reached: dict[int, int] = {}  # block -> how many of the changes reached it
        for number, (position, _, data) in enumerate(self.since):
            for at in range(position // block, (position + len(data) - 1) // block + 1):
                if at not in reached:
                    reached[at] = rng.choice((0, count, rng.randint(0, count)))
                if number < reached[at]:
                    start, end = max(position, at * block), min(position + len(data), (at + 1) * block)
                    content[start:end] = data[start - position : end - position]
        return bytes(content[:size])


class _Directory:
    def __init__(self) -> None:
        self.synced: dict[str, int] = {}
        self.names: dict[str, int] = {}
        self.since: list[tuple[str | None, str | None, int]] = []  # (removed name, added name, node)

    def change(self, gone: str | None, come: str | None, node: int) -> None:
        _change(self.names, gone, come, node)
        self.since.append((gone, come, node))

    def sync(self) -> None:
        self.synced = dict(self.names)
        self.since.clear()

    def after(self, loss: Loss, rng: random.Random) -> dict[str, int]:
        if loss is Loss.NOTHING:
            return dict(self.names)
        names = dict(self.synced)
        if loss is not Loss.ALL:
            whole = rng.randint(0, len(self.since))
            for number, change in enumerate(self.since):
                if number < whole if loss is Loss.LATEST_NAMES else rng.random() < 0.5:
                    _change(names, *change)
        return names


def _change(names: dict[str, int], gone: str | None, come: str | None, node: int) -> None:
    if gone is not None and names.get(gone) == node:
        del names[gone]
    if come is not None:
        names[come] = node


class Platter:
    """The state of the disk after the first changes of a journal; `play` applies later ones."""

    def __init__(self, journal: Sequence[Change]) -> None:
        self._journal = journal
        self.at = 0
        self._files: dict[int, _File] = {}
        self._directories: dict[int, _Directory] = {ROOT: _Directory()}

    def play(self, until: int) -> None:
        """Apply further changes, until `until` changes of the journal are applied."""
        for change in self._journal[self.at : until]:
            self._make(change)
        self.at = max(self.at, until)

    def _make(self, change: Change) -> None:
        match change:
            case Link(directory, name, node, is_dir):
                if is_dir:
                    self._directories[node] = _Directory()
                else:
                    self._files[node] = _File()
                self._directories[directory].change(None, name, node)
            case Unlink(directory, name):
                names = self._directories[directory]
                names.change(name, None, names.names[name])
            case Rename(directory, old, new):
                names = self._directories[directory]
                names.change(old, new, names.names[old])
            case Write(node, position, data):
                self._files[node].write(position, data)
            case Truncate(node, size):
                self._files[node].truncate(size)
            case Sync(node):
                (self._files.get(node) or self._directories[node]).sync()

    @property
    def played(self) -> Sequence[Change]:
        return self._journal[: self.at]

    def paths(self, node: int = ROOT, where: str = "") -> Iterator[tuple[str, int]]:
        """Yield the path below the root and the node of all current names."""
        for name, below in self._directories[node].names.items():
            path = os.path.join(where, name)
            yield path, below
            if below in self._directories:
                yield from self.paths(below, path)

    def cut(self, target: Path, loss: Loss, block: int, rng: random.Random) -> None:
        """Create in `target` a state that may be found after the power cut."""
        self._cut(self._directories[ROOT], target, loss, block, rng)

    def _cut(self, directory: _Directory, target: Path, loss: Loss, block: int, rng: random.Random) -> None:
        target.mkdir()
        for name, node in directory.after(loss, rng).items():
            if node in self._files:
                (target / name).write_bytes(self._files[node].after(loss, block, rng))
            else:
                self._cut(self._directories[node], target / name, loss, block, rng)


def _walk(path: str) -> Iterator[tuple[str, bool]]:
    """Yield everything below a directory, each directory before its contents."""
    with os.scandir(path) as scan:
        entries = sorted(scan, key=lambda entry: entry.name)
    for entry in entries:
        yield entry.path, entry.is_dir()
        if entry.is_dir():
            yield from _walk(entry.path)
