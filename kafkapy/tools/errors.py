"""What ends a command: each is shown as one sentence on standard error, never as a traceback."""


class ToolError(Exception):
    """The work failed (exit code 1): what was wrong, with the value, and what to do."""


class CallError(Exception):
    """The call itself was wrong (exit code 2): an option, an argument or a mixture of them."""
