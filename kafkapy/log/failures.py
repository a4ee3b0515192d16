"""Disk failures: which ones a log survives, and the exception for those that take its directory offline."""

from __future__ import annotations

import errno

from kafkapy.errors import Errors, KafkaError

# The disk refuses more bytes, but what is there stays good: the append is undone and the log goes on.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LogDirFailure(KafkaError):
    """A read, write or sync of `log_dir` failed; nothing in that directory can be trusted until a restart.

    Carries KAFKA_STORAGE_ERROR, so a handler that knows nothing better answers with the right code.
    """

    def __init__(self, log_dir: str, doing: str, cause: BaseException) -> None:
        super().__init__(Errors.KAFKA_STORAGE_ERROR, f"{log_dir} goes offline: {doing}: {cause}")
        self.log_dir = log_dir
        self.cause = cause


def disk_is_full(error: OSError) -> bool:
    return error.errno in _FULL


def storage_full(doing: str, error: OSError) -> KafkaError:
    """The answer to a producer whose append did not fit on the disk."""
    return KafkaError(Errors.KAFKA_STORAGE_ERROR, f"{doing}: {error}")
