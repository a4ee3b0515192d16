"""Disk failures: which ones a log survives, and the exception for those that take its directory offline."""

from __future__ import annotations

import errno

from kafkapy.errors import Errors, KafkaError

# The system refuses for now (bytes, descriptors, memory), but what is there stays good: the log goes on.
_SHORT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class LogDirFailure(KafkaError):
    """A read, write or sync of `log_dir` failed; nothing in that directory can be trusted until a restart.

    Carries KAFKA_STORAGE_ERROR, so a handler that knows nothing better answers with the right code.
    """

    def __init__(self, log_dir: str, doing: str, cause: BaseException) -> None:
        super().__init__(Errors.KAFKA_STORAGE_ERROR, f"{log_dir} goes offline: {doing}: {cause}")
        self.log_dir = log_dir
        self.cause = cause


def is_shortage(error: OSError) -> bool:
    """Whether the disk is full or the process has too many files open, rather than the disk being broken."""
    return error.errno in _SHORT


def shortage(doing: str, error: OSError) -> KafkaError:
    """The answer to a client whose request met a shortage; clients may try again."""
    return KafkaError(Errors.KAFKA_STORAGE_ERROR, f"{doing}: {error}")
