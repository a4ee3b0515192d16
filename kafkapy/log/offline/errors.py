"""What is raised where files cannot be read as a log."""


class OfflineError(Exception):
    """One sentence for a person: which file or directory, what is wrong with it, and what is needed."""
