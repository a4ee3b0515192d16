"""Disk failures: which ones a log survives, and the exception for those that take its directory offline."""

from __future__ import annotations

import errno
import os

from kafkapy.errors import Errors, KafkaError

# The system refuses the operation for now (space, descriptors, memory), but files stay valid and the log stays usable.
_SHORT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class LogDirFailure(KafkaError):
    """A read, write or sync in `log_dir` failed. Nothing in that directory is used again until a restart.

    Has the code KAFKA_STORAGE_ERROR, so that a request handler without special treatment returns the correct error.
    """

    def __init__(self, log_dir: str, doing: str, cause: BaseException) -> None:
        super().__init__(Errors.KAFKA_STORAGE_ERROR, f"{log_dir} goes offline: {doing}: {cause}")
        self.log_dir = log_dir
        self.cause = cause


class Shortage(KafkaError):
    """An operation was refused for lack of space, descriptors or memory. It is already reported (ShortageReport)."""

    def __init__(self, doing: str, error: OSError) -> None:
        super().__init__(Errors.KAFKA_STORAGE_ERROR, f"{doing}: {error}")


def is_shortage(error: OSError) -> bool:
    """Return True if the disk is full, or memory or descriptors are exhausted, rather than the disk being broken."""
    return error.errno in _SHORT


def no_memory() -> OSError:
    """Return the OSError (ENOMEM) that stands for a MemoryError."""
    return OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
