"""Which cluster and which broker the log directories belong to, according to meta.properties in each directory."""

from __future__ import annotations

from collections.abc import Iterable

from kafkapy.log.directories.log_dir import LogDir
from kafkapy.log.directories.meta_properties import (
    MetaProperties,
    MetaPropertiesError,
    check_meta,
    read_meta,
    write_meta,
)


def stored(log_dirs: Iterable[LogDir]) -> MetaProperties | None:
    """Return the broker id and cluster id in the meta.properties files of these directories; None if there is no such
    file.

    Raises MetaPropertiesError if the files disagree.
    """
    found = {meta.identity: (log_dir, meta) for log_dir, meta in _read(log_dirs).items() if meta is not None}
    if len(found) > 1:
        identities = "; ".join(
            f"{log_dir.path}: broker {meta.broker_id} of {meta.cluster_id}" for log_dir, meta in found.values()
        )
        raise MetaPropertiesError(f"the directories in log.dirs do not belong together ({identities})")
    return next((meta for _, meta in found.values()), None)


def check(log_dirs: Iterable[LogDir], wanted: MetaProperties) -> None:
    """Raise MetaPropertiesError if a meta.properties file names another broker or cluster than `wanted`. Writes
    nothing.
    """
    for log_dir, meta in _read(log_dirs).items():
        if meta is not None:
            check_meta(meta, wanted, log_dir.env.log_dir)


def write(log_dirs: Iterable[LogDir], wanted: MetaProperties, now_ms: int) -> None:
    """Write `wanted` to the meta.properties file of each directory in which the file is missing or names no cluster.

    Call `check` first. A directory in which the write fails is taken offline.
    """
    for log_dir, meta in _read(log_dirs).items():
        if meta is None or meta.identity != wanted.identity:
            try:
                write_meta(log_dir.env.files, log_dir.env.log_dir, wanted, now_ms / 1000)
            except OSError as error:
                log_dir.env.failed("writing meta.properties", error)


def _read(log_dirs: Iterable[LogDir]) -> dict[LogDir, MetaProperties | None]:
    metas: dict[LogDir, MetaProperties | None] = {}
    for log_dir in log_dirs:
        try:
            metas[log_dir] = read_meta(log_dir.env.files, log_dir.env.log_dir)
        except OSError as error:
            log_dir.env.failed("reading meta.properties", error)
    return metas
