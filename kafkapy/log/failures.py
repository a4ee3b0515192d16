"""The exceptions for disk errors: LogDirFailure, which takes a log directory offline, and Shortage, which does not."""

from __future__ import annotations

import errno
import os

from kafkapy.errors import Errors, KafkaError

# The system refuses the operation for now (space, descriptors, memory), but files stay valid and the log stays usable.
_SHORT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class LogDirFailure(KafkaError):
    """Raised when a read, write or sync in `log_dir` has failed.

    Nothing in that directory is used again until a restart. The error code is KAFKA_STORAGE_ERROR, so that a request
    handler without special treatment returns the correct error.
    """

    def __init__(self, log_dir: str, doing: str, cause: BaseException) -> None:
        super().__init__(Errors.KAFKA_STORAGE_ERROR, f"{log_dir} goes offline: {doing}: {cause}")
        self.log_dir = log_dir
        self.cause = cause


class Shortage(KafkaError):
    """Raised when an operation is refused for lack of disk space, file descriptors or memory.

    The log directory stays online. The shortage has already been logged by ShortageReport, so the caller need not log
    it.
    """

    def __init__(self, doing: str, error: OSError) -> None:
        super().__init__(Errors.KAFKA_STORAGE_ERROR, f"{doing}: {error}")


def is_shortage(error: OSError) -> bool:
    """Return True if disk space, file descriptors or memory ran out, False for other errors, such as a broken disk."""
    return error.errno in _SHORT


def no_memory() -> OSError:
    """Return an OSError with errno ENOMEM, so that a MemoryError can be handled like other shortages."""
    return OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
