"""Files with pictures, for options such as --plot. Drawing needs matplotlib."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from kafkapy.extras import how_to_install
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.output_file import ResultFile

FORMATS = ("png", "svg", "pdf")


def plotting() -> Any:
    """Return the module matplotlib.figure. Raises CallError if matplotlib is missing. No window is opened: the backend
    is Agg."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import figure
    except ImportError as error:
        raise CallError(
            f"--plot needs matplotlib, which is not installed ({error}): {how_to_install('plot')}"
        ) from error
    return figure


def picture_file(path: Path, *, force: bool) -> ResultFile:
    """Return the output file for --plot. Raises CallError, before the work, if the picture could not be written."""
    if path.suffix[1:] not in FORMATS:
        raise CallError(f"--plot {path}: the name has to end in .{', .'.join(FORMATS)}")
    plotting()
    return ResultFile(path, force=force)


def save(picture: ResultFile, draw: Callable[[BinaryIO, str], None]) -> None:
    """Call `draw` with the file and the format to write, give the file its name, and say so on standard error. Raises
    ToolError if it cannot be written."""
    try:
        with picture:
            draw(picture.file, picture.path.suffix[1:])
            picture.commit()
    except OSError as error:
        raise ToolError(f"{picture.path} could not be written: {error.strerror or error}") from error
    print(f"The picture is in {picture.path}.", file=sys.stderr)


def today() -> str:
    """Return the local date and time, for titles."""
    return time.strftime("%Y-%m-%d %H:%M")
