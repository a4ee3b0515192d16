"""What ends a load; each is one sentence for the person who started it."""


class LoadError(Exception):
    """The load cannot go on: what was wrong, with the value, and what to do."""


class DirectoryInUse(LoadError):
    """Another load holds the directory."""


class WrongOption(LoadError):
    """The call itself was wrong: an option, or a mixture of them."""
