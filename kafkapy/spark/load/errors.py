"""Errors that end a load. Each message is one sentence for the user."""


class LoadError(Exception):
    """The error when a load cannot continue. The message has the reason, with the value, and what to do."""


class DirectoryInUse(LoadError):
    """The error when another load is using the directory."""


class WrongOption(LoadError):
    """The error for an invalid call: an invalid option, or a combination of options that is invalid."""
