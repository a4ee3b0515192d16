"""`kafkapy start`: a broker in the foreground. Loads only what a broker needs (no typer, no rich)."""

import gc
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING

from kafkapy.tools.errors import CallError, ToolError
from kafkapy.version import VERSION

if TYPE_CHECKING:
    from kafkapy.server.broker import BrokerServer
    from kafkapy.server.config import BrokerConfig

INTERRUPTED = 130
# Bytes of freed memory a heap keeps. What a compressed batch of 1 MB takes for a moment is a few hundred KiB: without
# this its pages were made anew for each, 66 (lz4) to 165 (gzip) faults a batch, a fifth of the broker's time.
KEPT = 4 << 20
# While logs are loaded what is new is taken out of the collector's sight so often (s), and so many times.
_FREEZE_EVERY, _FREEZES = 0.1, 50
USAGE = "kafkapy start [server.properties] [-o KEY=VALUE ...]"


def start(args: Sequence[str]) -> int:
    """Runs a broker until SIGTERM or SIGINT; returns the exit code."""
    file, overrides = parse(args)
    return serve(file, overrides)


def parse(args: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """The properties file, if there is one, and the settings given by -o; raises CallError."""
    file: str | None = None
    overrides: dict[str, str] = {}
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word in ("-o", "--override"):
            if not rest:
                raise CallError(f"{word} needs KEY=VALUE behind it; the call is: {USAGE}")
            setting = rest.pop(0)
        elif word.startswith("--override="):
            setting = word.partition("=")[2]
        elif word.startswith("-o"):
            setting = word[2:]
        elif word.startswith("-"):
            raise CallError(f"start has no option {word}; the call is: {USAGE}")
        elif file is None:
            file = word
            continue
        else:
            raise CallError(f"start takes one properties file, not also {word!r}; the call is: {USAGE}")
        add_override(overrides, setting)
    return file, overrides


def add_override(overrides: dict[str, str], setting: str) -> None:
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise CallError(f"-o {setting!r} is not KEY=VALUE, as in -o log.dirs=/var/lib/kafkapy")
    overrides[key.strip()] = value


def config_of(file: str | Path | None, overrides: dict[str, str], given_by: str = "-o") -> "BrokerConfig":
    """The settings of a broker; `given_by` is what of the command line has the overrides, for messages.

    Raises ToolError for a file that cannot be read, CallError for a wrong override, ConfigError or PropertiesError
    for what is wrong in the file.
    """
    from kafkapy.server.config import BrokerConfig, ConfigError

    path = None if file is None else Path(file)
    try:
        return BrokerConfig.load(path, overrides)
    except OSError as error:
        raise ToolError(f"The properties file {file} cannot be read: {error.strerror}.") from error
    except ConfigError as error:
        if error.key in overrides:
            raise CallError(f"{given_by} {error}") from error
        raise


def serve(file: str | None, overrides: dict[str, str]) -> int:
    """Starts, says on standard output that it is ready, and runs until a signal; a second one ends it at once.

    Raises ToolError when the broker could not go on, and whatever kept it from starting.
    """
    # Not an Event: its lock is held for a moment when somebody begins to wait, and the handler of a signal that comes
    # then, which runs in the same thread, would wait for it for ever.
    stop: SimpleQueue[None] = SimpleQueue()
    failures: list[str] = []
    signals: list[int] = []

    def on_failure(reason: str) -> None:
        failures.append(reason)
        stop.put(None)

    def on_signal(number: int, frame: FrameType | None) -> None:
        if signals:
            os._exit(INTERRUPTED)
        signals.append(number)
        stop.put(None)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        _run(config_of(file, overrides), stop, on_failure)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if failures:
        raise ToolError(f"The broker stopped: {failures[0]}")
    return 0


def _run(config: "BrokerConfig", stop: SimpleQueue[None], on_failure: Callable[[str], None]) -> None:
    from kafkapy._ext.allocator import keep_freed
    from kafkapy.runtime import logs
    from kafkapy.server.broker import BrokerServer

    logs.set_up(config.kafkapy_log_level)
    keep_freed(KEPT)
    server = BrokerServer(config, on_failure=on_failure)
    server.start()
    _spare_the_collector()
    Thread(target=_spare_the_logs, args=(server,), name="after-loading", daemon=True).start()
    try:
        if stop.empty():
            print(ready_line(server.listeners, config.log_dirs), flush=True)
        stop.get()
    finally:
        server.stop()


def _spare_the_collector() -> None:
    """A full collection looks at every object while nothing else runs: 30 to 70 ms (measured), most of them for what
    the modules made once and for all. That is looked at no more. What comes is looked at less often, because it goes
    without a collector as soon as its request is answered (tests/server/test_no_circles.py), and still so often that
    no look takes long: 20,000 new objects are 1 ms if they are in use and 3 ms if they are circles, the 200,000 of ten
    such looks 11 ms. In 45 seconds of everything at a time there are two looks."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 50)


def _spare_the_logs(server: "BrokerServer") -> None:
    """The same for the logs as they are loaded: looks at those of 10,000 partitions take 200 ms of their start, and
    would take 120 ms each time later on."""
    for patience in (*[_FREEZE_EVERY] * _FREEZES, None):
        loaded = server.wait_until_loaded(patience)
        gc.freeze()
        if loaded:
            return


def ready_line(listeners: Sequence[str], log_dirs: Sequence[Path]) -> str:
    """What says that the broker takes connections: addresses, data directories and pid, on one line."""
    data = ",".join(str(path.absolute()) for path in log_dirs)
    return f"kafkapy {VERSION} ready: {','.join(listeners)} data={data} pid={os.getpid()}"
