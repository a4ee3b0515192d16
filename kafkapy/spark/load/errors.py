"""Errors that end a load. Each message is one sentence for the user."""


class LoadError(Exception):
    """The load cannot continue. The message has the reason, with the value, and what to do."""


class DirectoryInUse(LoadError):
    """Another load uses the directory."""


class WrongOption(LoadError):
    """The call is invalid: an option, or a combination of options."""
