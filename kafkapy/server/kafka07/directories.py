"""Checks that log.dir of Kafka 0.7 is not a directory of a later broker. Each part of the broker would otherwise create
files in the other's directory. The opposite check is in kafkapy.server.unadopted."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kafkapy.log.log07.directory import later_files_in
from kafkapy.metadata.local.tree import FILE_NAME
from kafkapy.server.config.kafka07 import SETTING
from kafkapy.server.metadata_store import StartError


def check_log_dir_07(file: Path, directory: Path, log_dirs: Iterable[Path]) -> None:
    """Raise StartError if `directory`, log.dir in the settings `file` of Kafka 0.7, belongs to a later broker."""
    where = f"log.dir in {file} ({SETTING})"
    real = os.path.realpath(directory)
    for one in log_dirs:
        if os.path.realpath(one) == real:
            raise StartError(f"{where} is {directory}, which is also one of log.dirs: give each its own directory")
    if not directory.is_dir():
        return
    found = str(directory / FILE_NAME) if (directory / FILE_NAME).exists() else later_files_in(real)
    if found is not None:
        raise StartError(
            f"{where} is {directory}, a directory of Kafka 0.8 or later ({found} is one of its files): name it in "
            "log.dirs, and another one in log.dir"
        )
