"""Errors that end a command. Each is printed as one sentence on standard error, without a traceback."""


class ToolError(Exception):
    """The error for a command that failed (exit code 1). The message says what was wrong, with the value, and what to
    do."""


class CallError(Exception):
    """The error for a wrong call of a command (exit code 2): an invalid option or argument, or options that exclude
    each other."""


def fail_if_any(sentences: list[str]) -> None:
    """Raise one ToolError that joins all the sentences, which must have no full stop. Return if there are no
    sentences."""
    if sentences:
        raise ToolError("; ".join(sentences))
