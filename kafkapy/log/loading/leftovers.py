"""Remove files that a crash may leave in a partition's directory, or finish their renames, before the segments are
loaded.

`.deleted` files were about to be removed. `.cleaned` files belong to a cleaning that had not finished the new segment,
and so do `.swap` files at or after the first `.cleaned` offset. The other `.swap` files replace the segments whose
offsets they cover. Source: Kafka's LogLoader.
"""

from __future__ import annotations

import os

from kafkapy.log import names
from kafkapy.log.loading.load_progress import LoadReport
from kafkapy.log.segments.segment import WITHOUT_ENTRIES
from kafkapy.log.storage.files import Entry, Files, OlderFiles

# Suffixes that a crash may leave. A `.tmp` file was about to replace another file. The file MOVED_IN means nothing any
# more when the log is loaded: see kafkapy.log.loading.found.
_MARKS = (names.DELETED, names.CLEANED, names.SWAP, names.MOVED_IN, ".tmp")


def clear_leftovers(
    files: Files, directory: str, report: LoadReport, *, apart: bool = False
) -> tuple[dict[str, Entry], OlderFiles]:
    """Remove the files that a crash has left in a partition's directory, or finish an interrupted replacement of
    segments.

    Return the remaining files of the directory by name, sorted by name; with `apart`, what `Files.look_apart` returns,
    else no OlderFiles. Repairs are added to `report`. Raises OSError.
    """
    if apart:
        entries, older = files.look_apart(directory)
        entries = _without_dirs(entries)
        if not any(name.endswith(_MARKS) for name in entries):
            return entries, older
    entries = _without_dirs(files.look(directory))
    marked = [name for name in entries if name.endswith(_MARKS)]
    if not marked:
        return entries, OlderFiles()
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
    return _without_dirs(files.look(directory)), OlderFiles()


def _without_dirs(entries: dict[str, Entry]) -> dict[str, Entry]:
    return {name: entry for name, entry in entries.items() if not entry.is_dir}


def _offset(name: str) -> int:
    return names.offset_of(name) or 0


def _finish_swap(files: Files, directory: str, swaps: list[str], entries: dict[str, Entry], report: LoadReport) -> None:
    # The process may have been killed before it synced the `.swap` names. If the old files were removed first, a power
    # cut could turn the names back to `.cleaned`, which the next start discards, and the records would be lost.
    files.sync_dir(directory)
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
        files.sync_dir(directory)  # a power cut must not leave new files under final names together with old ones
    for name in swaps:
        path = os.path.join(directory, name)
        files.rename(path, path[: -len(names.SWAP)])


def _end_offset(files: Files, path: str, size: int) -> int:
    """Return the offset after the last batch of the segment file `path` of `size` bytes; its base offset if it has no
    batch.
    """
    base = _offset(os.path.basename(path))
    return max(base, files.scan(files.open(path), 0, size, base, WITHOUT_ENTRIES, False).next_offset)
