"""Which cluster and which broker the log directories belong to, by the meta.properties in each."""

from __future__ import annotations

from collections.abc import Iterable

from kafkapy.log.log_dir import LogDir
from kafkapy.log.meta_properties import MetaProperties, MetaPropertiesError, check_meta, read_meta, write_meta


def stored(log_dirs: Iterable[LogDir]) -> MetaProperties | None:
    """What the files say; None if there are none. Raises MetaPropertiesError if they disagree."""
    found = {meta.identity: (log_dir, meta) for log_dir, meta in _read(log_dirs).items() if meta is not None}
    if len(found) > 1:
        told = "; ".join(
            f"{log_dir.path}: broker {meta.broker_id} of {meta.cluster_id}" for log_dir, meta in found.values()
        )
        raise MetaPropertiesError(f"the directories in log.dirs do not belong together ({told})")
    return next((meta for _, meta in found.values()), None)


def stamp(log_dirs: Iterable[LogDir], wanted: MetaProperties, now_ms: int) -> None:
    """Checks every file, then writes those that are missing. Raises MetaPropertiesError before anything is written."""
    metas = _read(log_dirs)
    for log_dir, meta in metas.items():
        if meta is not None:
            check_meta(meta, wanted, log_dir.env.log_dir)
    for log_dir, meta in metas.items():
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
