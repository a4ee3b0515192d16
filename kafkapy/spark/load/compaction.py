"""Merges small files of a directory into one file.

The smallest files are merged, as long as the next file is not larger than all chosen files together. So a row is
rewritten only when as much data has been added as the row's file has. In a directory that is loaded every ten seconds,
each row is rewritten a few times a day. The merged files are in a new directory, which is exchanged with the old one
in one step; see `landing`.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kafkapy.spark.load.landing import Landing
from kafkapy.spark.load.rebuild import rebuild
from kafkapy.spark.load.task import Runner


@dataclass(frozen=True)
class Merge:
    """The names of the files in a directory that are to be merged into one file."""

    directory: str
    names: list[str]


@dataclass(frozen=True)
class MergeWork:
    """A callable for workers that takes a Merge as JSON, builds a directory with the merged file, and returns the
    path."""

    room: str
    prefix: str

    def __call__(self, text: str) -> str:
        merge = Merge(**json.loads(text))
        return str(rebuild(Path(merge.directory), Path(self.room), prefix=self.prefix, merge=merge.names))


def compact(landing: Landing, runner: Runner, *, prefix: str, file_bytes: int, files: int) -> int:
    """Merge small files in each directory that has at least `files` of them.

    Return the decrease in the number of files.
    """
    landing.clear()  # also removes the old directories that the last run has exchanged
    merges = [
        merge
        for root in (landing.state.directory, landing.state.rejected)
        for merge in _merges(root, file_bytes, max(files, 2))
    ]
    work = MergeWork(str(landing.room), prefix)
    rebuilt = map(Path, runner(work, [json.dumps(merge.__dict__) for merge in merges]))
    landing.replace(list(zip(rebuilt, (Path(merge.directory) for merge in merges), strict=True)))
    return sum(len(merge.names) - 1 for merge in merges)


def _merges(root: Path, file_bytes: int, files: int) -> Iterator[Merge]:
    """Yield a Merge for each directory below `root` that has at least `files` files that are worth merging."""
    for directory, _, names in os.walk(root):
        sizes = {name: os.path.getsize(os.path.join(directory, name)) for name in names if name.endswith(".parquet")}
        chosen = worth_merging(sizes, file_bytes)
        if len(chosen) >= files:
            yield Merge(directory, chosen)


def worth_merging(sizes: dict[str, int], file_bytes: int) -> list[str]:
    """Return the names of the files to merge. `sizes` has the sizes of the files of a directory, in bytes.

    The chosen files have at most `file_bytes` in total.
    """
    chosen: list[str] = []
    total = 0
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        if total + sizes[name] > file_bytes or (len(chosen) > 1 and sizes[name] > total):
            break
        chosen.append(name)
        total += sizes[name]
    return chosen
