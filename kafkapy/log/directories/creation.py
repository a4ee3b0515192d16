"""Create a log directory so that a power cut cannot lose its name, and with it everything in the directory."""

from __future__ import annotations

import logging
import os

from kafkapy.log.storage.files import Files

_log = logging.getLogger(__name__)


def create_if_missing(files: Files, path: str) -> None:
    """Create the directory `path` if it does not exist, and make its name durable. Raises OSError."""
    is_new = not files.exists(path)
    if is_new:
        _log.info("created log directory %s", path)
        files.make_dir(path)
    if is_new or _is_empty(path):
        # An empty directory may have been made by a start that was killed before this sync.
        try:
            files.sync_dir(os.path.dirname(path))
        except PermissionError:
            if is_new:
                raise


def _is_empty(path: str) -> bool:
    """Return True if the directory has no entry. Reads only the first entry, as there may be many."""
    with os.scandir(path) as entries:
        return next(entries, None) is None
