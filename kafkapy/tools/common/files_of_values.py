"""Values of options that are in a file, so that `ps` shows no password. Imports no typer, for a fast start."""

from pathlib import Path

from kafkapy.tools.common.errors import ToolError


def value_of(what: str, value: str) -> str:
    """Return the value that was given for `what`, such as "--password" or "-o KEY": @FILE stands for the content of the
    file, without the line break at its end, and @@TEXT for @TEXT.

    Raises ToolError, which names `what`, for a file that cannot be read.
    """
    if value.startswith("@@"):
        return value[1:]
    if not value.startswith("@"):
        return value
    file = value[1:]
    try:
        return Path(file).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ToolError(f"{what}: the file {file} cannot be read: {reason}") from error
