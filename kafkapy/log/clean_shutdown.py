"""The marker `.kafka_cleanshutdown`: everything in this log directory was flushed and closed.

Source: Kafka's CleanShutdownFileHandler. With ZooKeeper the broker epoch in it is always -1; brokers up to 2.x
wrote an empty file, which counts the same.
"""

from __future__ import annotations

import os

from kafkapy.log.files import Files

NAME = ".kafka_cleanshutdown"
_CONTENT = b'{"version":0,"brokerEpoch":-1}'


def write_marker(files: Files, log_dir: str) -> None:
    files.write(os.path.join(log_dir, NAME), _CONTENT)
    files.sync_dir(log_dir)


def take_marker(files: Files, log_dir: str) -> bool:
    """Whether the last stop was clean. The marker goes at once: a crash while loading is not a clean stop."""
    if not files.unlink(os.path.join(log_dir, NAME)):
        return False
    files.sync_dir(log_dir)
    return True
