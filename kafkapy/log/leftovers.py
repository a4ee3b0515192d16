"""What a crash may leave in a partition's directory, cleared away before its segments are loaded.

`.deleted` files were to be removed. `.cleaned` files belong to a cleaning that had not come to its swap, and so do
`.swap` files at or behind the first of them. The other `.swap` files replace the segments whose offsets they
cover. Source: Kafka's LogLoader.
"""

from __future__ import annotations

import os

from kafkapy.log import names
from kafkapy.log.files import Entry, Files
from kafkapy.log.load_report import LoadReport
from kafkapy.log.segment import WITHOUT_ENTRIES

# What a crash may leave at the end of names; `.tmp`: a file that was to replace another one.
_MARKS = (names.DELETED, names.CLEANED, names.SWAP, ".tmp")


def clear_leftovers(files: Files, directory: str, report: LoadReport) -> dict[str, Entry]:
    """Returns what the directory holds afterwards, in the order of names. Raises OSError."""
    entries = _listed(files, directory)
    marked = [name for name in entries if name.endswith(_MARKS)]
    if not marked:
        return entries
    first_cleaned = min((_offset(name) for name in marked if name.endswith(names.CLEANED)), default=None)
    swaps, undone = [], 0
    for name in marked:
        if name.endswith(names.SWAP) and (first_cleaned is None or _offset(name) < first_cleaned):
            swaps.append(name)
        else:
            files.unlink(os.path.join(directory, name))
            undone += name.endswith((names.CLEANED, names.SWAP))
    if undone:
        report.note(f"{undone} files of a cleaning that was cut short are removed", serious=False)
    if swaps:
        _finish_swap(files, directory, swaps, entries, report)
    return _listed(files, directory)


def _listed(files: Files, directory: str) -> dict[str, Entry]:
    return {name: entry for name, entry in files.look(directory).items() if not entry.is_dir}


def _offset(name: str) -> int:
    return names.offset_of(name) or 0


def _finish_swap(files: Files, directory: str, swaps: list[str], entries: dict[str, Entry], report: LoadReport) -> None:
    replaced = 0
    logs = [name for name in swaps if name.endswith(names.LOG + names.SWAP)]
    if logs:
        start = min(map(_offset, logs))
        end = max(_end_offset(files, os.path.join(directory, name), entries[name].size) for name in logs)
        for name in entries:
            offset = names.offset_of(name)
            if offset is not None and start <= offset < end and not name.endswith(names.SWAP):
                files.unlink(os.path.join(directory, name))
                replaced += 1
    report.note(f"a cleaning or a split is finished: {len(swaps)} files take the place of {replaced}", serious=False)
    if replaced:
        files.sync_dir(directory)  # a power cut must not leave the new ones under their names beside some of the old
    for name in swaps:
        path = os.path.join(directory, name)
        files.rename(path, path[: -len(names.SWAP)])


def _end_offset(files: Files, path: str, size: int) -> int:
    """The offset behind the last batch of a segment file; its base offset if it is empty."""
    base = _offset(os.path.basename(path))
    return max(base, files.scan(files.open(path), 0, size, base, WITHOUT_ENTRIES, False).next_offset)
