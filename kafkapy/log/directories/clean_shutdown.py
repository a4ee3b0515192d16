"""The clean-shutdown marker `.kafka_cleanshutdown`, a file that says: every log in this log directory was flushed and
closed.

Source: Kafka's CleanShutdownFileHandler. With ZooKeeper the broker epoch in the file is always -1. Brokers up to 2.x
wrote an empty file, which is also valid.
"""

from __future__ import annotations

import os

from kafkapy.log.storage.files import Files

NAME = ".kafka_cleanshutdown"
_CONTENT = b'{"version":0,"brokerEpoch":-1}'


def write_marker(files: Files, log_dir: str) -> None:
    """Write the clean-shutdown marker in `log_dir`, and sync the directory so that the file survives a power cut.
    Raises OSError.
    """
    files.write(os.path.join(log_dir, NAME), _CONTENT)
    files.sync_dir(log_dir)


def take_marker(files: Files, log_dir: str) -> bool:
    """Remove the clean-shutdown marker; return True if there was one, that is, the last shutdown was clean. Raises
    OSError.

    The marker is removed since a crash during loading is not a clean shutdown. The directory is synced even if there is
    no marker: a killed process may have removed the marker, or created the directory of a topic, without syncing the
    directory.
    """
    was_there = files.unlink(os.path.join(log_dir, NAME))
    files.sync_dir(log_dir)
    return was_there
