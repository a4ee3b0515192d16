"""The error that is raised when files cannot be read as the log of a partition."""


class OfflineError(Exception):
    """Raised when files cannot be read as a log.

    The message is a sentence for the user: which file or directory, what is wrong with it, and what is needed.
    """
