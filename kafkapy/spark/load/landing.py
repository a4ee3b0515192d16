"""Moves staged files into the directory: all of a batch or none of it, exactly once, even if the process is killed.

A batch is decided by one write of state.json, which lists its files and the offsets that it reaches. From that moment
on the batch counts: the next process that opens the directory finishes the batch. Before that, the batch has no effect,
and its offsets are loaded again. Complete files are moved by rename. If files of a directory have to be replaced
(compaction, loading again), a new directory is created next to the old one, and the two are exchanged in one step. So a
reader lists either the old or the new files. A file that the reader has listed may be deleted before the reader opens
it, which is an error, but never a wrong result.

Old directories are not deleted at once but when the next load or compaction begins: a reader that has just opened an
old directory to list it must not find it empty.
"""

import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from kafkapy.spark.load.durable import exchange, sync_directories
from kafkapy.spark.load.errors import LoadError
from kafkapy.spark.load.state import Decision, State


class Landing:
    """Moves staged files into a loaded directory.

    Only the process that has opened the directory's state may use this class.
    """

    def __init__(self, state: State) -> None:
        """Finish the batch that a killed run has decided, if there is one, and remove all other staged files."""
        self.state = state
        if state.decision is not None:
            self._finish(state.decision)
        self.clear()

    def clear(self) -> None:
        """Remove all staged files and create a new staging directory, so that tasks of older runs fail to write."""
        shutil.rmtree(self.state.staging, ignore_errors=True)
        self.room = self.state.staging / uuid.uuid4().hex
        self.room.mkdir(parents=True)
        sync_directories([self.state.staging, self.state.home])  # decisions refer to files in the staging directory

    def land(self, decision: Decision) -> None:
        """Store the decision to add a batch to the directory, and carry it out.

        The caller has synced the staged files; this method syncs the directories of these files.
        """
        staged = [source for source, _ in decision.moves] + [source for source, _, _ in decision.swaps]
        sync_directories({Path(source).parent for source in staged})
        self.state.decision = decision
        self.state.write()
        self._finish(decision)

    def _finish(self, decision: Decision) -> None:
        """Carry out a decided batch: move its files, exchange its directories, and store the new state.

        Moves and exchanges that an interrupted run has already made are skipped.
        """
        changed = set()
        for source, place in decision.moves:
            changed |= _move(Path(source), Path(place))
        for source, place, inode in decision.swaps:
            if not os.path.exists(place):
                changed |= _rename(Path(source), Path(place))
            elif os.stat(place).st_ino != inode:
                exchange(Path(source), Path(place))
                changed.add(Path(place).parent)
        sync_directories(changed)
        self.state.topics = decision.topics
        self.state.decision = None
        self.state.write()

    def replace(self, swaps: Sequence[tuple[Path, Path]]) -> None:
        """Exchange directories: `swaps` has pairs of a staged directory and the directory that it replaces.

        Both directories have the same rows, so no decision is stored: it does no harm if only some pairs are
        exchanged.
        """
        sync_directories(staged for staged, _ in swaps)
        for staged, place in swaps:
            exchange(staged, place)
        sync_directories(place.parent for _, place in swaps)


def _move(source: Path, place: Path) -> set[Path]:
    """Rename a file unless this was done before. Return the directories whose entries have changed.

    Raise LoadError if the file exists at neither path, because its rows already count as loaded.
    """
    try:
        return _rename(source, place)
    except FileNotFoundError:
        if not place.exists():
            raise LoadError(
                f"neither {place} nor {source}, which should be moved there, exists, but its rows count as loaded; "
                "restore one of them, or load into another directory"
            ) from None
        return {place.parent}


def _rename(source: Path, place: Path) -> set[Path]:
    """Rename a file, and create the directories that this needs. Return the directories whose entries have changed."""
    changed = {place.parent}
    above = place.parent
    while not above.exists():
        above = above.parent
        changed.add(above)
    place.parent.mkdir(parents=True, exist_ok=True)
    os.rename(source, place)
    return changed
