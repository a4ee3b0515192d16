"""Staged files become rows of the directory, all of a batch or none of it, once, whenever the process is killed.

A batch is decided by one write of state.json, which lists its files and has the offsets that will then be reached. From
that moment on it counts: whoever opens the directory next finishes it. Before that it is nothing, and its offsets are
loaded again. Files come whole, by rename. A directory whose files are replaced (compaction, loading again) is made anew
beside and changes places with the old one in one step, so that a reader lists the old files or the new ones; what it
listed before may be gone when it opens it, which is an error there, never a wrong answer.

What was exchanged away is deleted when the next load or compaction begins, not at once: somebody who has just opened
the old directory to list it must not find it empty.
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
    """The one who changes what is in a directory; belongs to the process that has its state."""

    def __init__(self, state: State) -> None:
        """Finishes what was decided by a run that died, and removes what was not."""
        self.state = state
        if state.decision is not None:
            self._finish(state.decision)
        self.clear()

    def clear(self) -> None:
        """Removes everything staged and makes room for a new run: tasks that still write for an older one fail."""
        shutil.rmtree(self.state.staging, ignore_errors=True)
        self.room = self.state.staging / uuid.uuid4().hex
        self.room.mkdir(parents=True)
        sync_directories([self.state.staging, self.state.home])  # a decision names files in there

    def land(self, decision: Decision) -> None:
        """Decides and finishes it. The staged files must have been synced, their directory is synced here."""
        staged = [source for source, _ in decision.moves] + [source for source, _, _ in decision.swaps]
        sync_directories({Path(source).parent for source in staged})
        self.state.decision = decision
        self.state.write()
        self._finish(decision)

    def _finish(self, decision: Decision) -> None:
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
        """(staged directory, its place): the same rows in other files take the places; that needs no decision."""
        sync_directories(staged for staged, _ in swaps)
        for staged, place in swaps:
            exchange(staged, place)
        sync_directories(place.parent for _, place in swaps)


def _move(source: Path, place: Path) -> set[Path]:
    """As `_rename`, unless it was moved before. Its rows count already: they must be in the one or the other."""
    try:
        return _rename(source, place)
    except FileNotFoundError:
        if not place.exists():
            raise LoadError(
                f"{place} is not there, nor is {source}, which was to take its place, though its rows count as loaded; "
                "put one of them back, or load into another directory"
            ) from None
        return {place.parent}


def _rename(source: Path, place: Path) -> set[Path]:
    """Directories whose entries have changed, from the topmost new one on."""
    changed = {place.parent}
    above = place.parent
    while not above.exists():
        above = above.parent
        changed.add(above)
    place.parent.mkdir(parents=True, exist_ok=True)
    os.rename(source, place)
    return changed
