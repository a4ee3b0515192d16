"""The error that is raised when files cannot be read as a log."""


class OfflineError(Exception):
    """A sentence for the user: which file or directory, what is wrong with it, and what is needed."""
