"""Values of options that are in a file, so that `ps` shows no password. Imports no typer, for a fast start."""

from pathlib import Path

from kafkapy.tools.common.errors import ToolError


def value_of(option: str, key: str, value: str) -> str:
    """Return the value of KEY=VALUE of `option`: @FILE stands for the content of the file, without the line break at
    its end, and @@TEXT for @TEXT.

    Raises ToolError, which names the key, for a file that cannot be read.
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
        raise ToolError(f"{option} {key}: the file {file} cannot be read: {reason}") from error
