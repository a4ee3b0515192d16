"""Errors that end a command. Each is printed as one sentence on standard error, without a traceback."""


class ToolError(Exception):
    """The command failed (exit code 1). The message says what was wrong, with the value, and what to do."""


class CallError(Exception):
    """The call was wrong (exit code 2): an option, an argument, or options that exclude each other."""


def fail_if_any(sentences: list[str]) -> None:
    """Raise one ToolError that joins all the sentences, which must have no full stop. Return if there are no
    sentences."""
    if sentences:
        raise ToolError("; ".join(sentences))
