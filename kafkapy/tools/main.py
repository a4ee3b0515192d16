"""The entry point of the command line `kafkapy`.

A broker has to start within a fraction of a second and in little memory, so `kafkapy start` goes straight to
`tools.start`. Only other commands, help and completion load typer and rich.
"""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from io import TextIOWrapper

from kafkapy.tools.common.errors import CallError

DONE, FAILED, WRONG_CALL, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143


class Terminated(BaseException):
    """Raised in the main thread on SIGTERM, so that a command without its own signal handler cleans up."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 wrong call, 130 interrupted, 143 terminated."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(
                errors="backslashreplace"
            )  # file names may have any bytes, and the locale's encoding may lack characters
    try:
        code = _run(args)
        if sys.stdout is not None:  # it is None if the caller has closed file descriptor 1
            sys.stdout.flush()  # here, so that output that cannot be written is an error as any other
        return code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Terminated:
        code = TERMINATED
    except BrokenPipeError:
        code = DONE  # the reader of the output has closed the pipe, as in `kafkapy log dump FILE | head`
    except Exception as error:
        if os.environ.get("KAFKAPY_DEBUG") == "1":
            raise
        print(f"kafkapy: {sentence_of(error)}", file=sys.stderr)
        code = WRONG_CALL if isinstance(error, CallError) else FAILED
    _flush_or_drop_output()
    return code


def _flush_or_drop_output() -> None:
    """Write what standard output has buffered. If that fails, make standard output /dev/null: otherwise Python, when it
    exits, would try again, print an error of its own and exit with code 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(args: list[str]) -> int:
    completing = "_KAFKAPY_COMPLETE" in os.environ
    if not completing and args[:1] == ["start"] and not {"-h", "--help"} & set(args):
        from kafkapy.tools.start import start

        return start(args[1:])
    if not completing and args == ["--version"]:
        from kafkapy.version import VERSION

        print(f"kafkapy {VERSION}")
        return DONE
    from kafkapy.tools.cli import run

    if (
        signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        or threading.current_thread() is not threading.main_thread()
    ):
        return run(args)
    signal.signal(signal.SIGTERM, _terminated)
    try:
        return run(args)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminated(number: int, frame: object) -> None:
    raise Terminated


def sentence_of(error: Exception) -> str:
    """Return an error as a sentence for the user. For an unexpected error, the sentence names its type and how to get a
    traceback.

    Unprintable characters in the text, which may come from a broker, a client or a file name, are escaped, except for
    line breaks.
    """
    from kafkapy.errors import KafkaError, name_of
    from kafkapy.runtime.printable import printable

    if isinstance(error, KafkaError):
        text = f"{error.message.rstrip('.')} ({name_of(error.code)})"
    elif type(error).__module__.startswith("kafkapy."):  # its text is written for users
        text = (isinstance(error, OSError) and error.strerror) or str(error)
    elif isinstance(error, ImportError) and (error.name or "").startswith("kafkapy._ext."):
        text = f"kafkapy was built from older sources: {error}; run pip install -e . in its checkout again"
    elif isinstance(error, OSError):
        reason = error.strerror or str(error)
        text = reason if error.filename is None else f"{os.fspath(error.filename)!s}: {reason}"
    else:
        text = f"unexpected error: {type(error).__name__}: {error}; run it again with KAFKAPY_DEBUG=1 for a traceback"
    text = "\n".join(printable(line.expandtabs()) for line in text.split("\n"))
    return text if text.endswith((".", "?", "!")) else text + "."
