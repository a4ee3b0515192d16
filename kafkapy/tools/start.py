"""The command `kafkapy start`: runs a broker in the foreground. This module imports neither typer nor rich, for a fast
start."""

import gc
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.files_of_values import value_of
from kafkapy.version import VERSION

if TYPE_CHECKING:
    from kafkapy.server.broker import BrokerServer
    from kafkapy.server.config.broker_config import BrokerConfig

INTERRUPTED = 130
# Bytes of freed memory that the allocator keeps. Compressing a batch of 1 MB needs a few hundred KiB for a moment;
# without this each batch got new pages from the kernel: 66 (lz4) to 165 (gzip) page faults, a fifth of the CPU time.
KEPT = 4 << 20
# While logs are loaded, new objects are excluded from garbage collection this often (s), and at most this many times.
_FREEZE_EVERY, _FREEZES = 0.1, 50
USAGE = "kafkapy start [server.properties] [-o KEY=VALUE ...]"


def start(args: Sequence[str]) -> int:
    """Run a broker as the command's arguments say, until a signal stops it. Return the exit code."""
    file, overrides = parse(args)
    return serve(file, overrides)


def parse(args: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """Return the properties file that the arguments name, or None, and the settings given with -o. Raises CallError for
    a wrong argument."""
    file: str | None = None
    overrides: dict[str, str] = {}
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word in ("-o", "--override"):
            if not rest:
                raise CallError(f"{word} needs KEY=VALUE after it; the call is: {USAGE}")
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
    """Add KEY=VALUE to the overrides. The value @FILE stands for the content of the file, so that `ps` shows no
    password; @@TEXT stands for @TEXT.

    Raises CallError for another form, and ToolError for a file that cannot be read.
    """
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise CallError(f"-o {setting!r} is not KEY=VALUE, as in -o log.dirs=/var/lib/kafkapy")
    overrides[key.strip()] = value_of(f"-o {key.strip()}", value)


def config_of(file: str | Path | None, overrides: dict[str, str], given_by: str = "-o") -> "BrokerConfig":
    """Return the broker's settings: those of the file, overridden by `overrides`. `given_by` names the option that set
    the overrides, for messages.

    Raises ToolError for a file that cannot be read, CallError for a wrong override, and ConfigError or PropertiesError
    for errors in the file.
    """
    from kafkapy.server.config.broker_config import BrokerConfig, ConfigError

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
    """Run a broker until the first SIGTERM or SIGINT, and return the exit code. A second one ends the process at once.
    Prints a line when the broker is ready.

    SIGHUP stops the broker, too, as the JVM does when a terminal is closed, unless it is ignored (nohup). If the broker
    has a listener with TLS, SIGHUP instead has it load the key and trust stores again.

    Raises ToolError when a running broker fails. If the broker cannot start, raises the error of the start.
    """
    gc.disable()  # until the broker is ready: collections during the imports would take a tenth of the start
    failures: list[str] = []
    signals: list[int] = []
    hangups: list[int] = []
    has_tls = False
    # The interpreter writes to this pipe at the moment of a signal. Without it, a signal that comes just before the
    # main thread begins to wait would not wake it: Python's handlers run in the main thread only, between two of its
    # bytecodes.
    woken, wake = os.pipe()
    os.set_blocking(wake, False)

    def on_failure(reason: str) -> None:
        failures.append(reason)
        os.write(wake, b"\0")

    def on_signal(number: int, frame: FrameType | None) -> None:
        if signals:
            os._exit(INTERRUPTED)
        signals.append(number)

    def must_stop() -> bool:
        return bool(signals or failures or (hangups and not has_tls))

    # Not `on_signal`: a terminal that is closed may send SIGHUP twice, from the shell and from the kernel.
    def on_hangup(number: int, frame: FrameType | None) -> None:
        hangups.append(number)

    def wait(reload: Callable[[], None]) -> None:
        while not must_stop():
            os.read(woken, 1)
            if hangups and has_tls:
                hangups.clear()
                reload()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    wake_before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        config = config_of(file, overrides)
        has_tls = any(listener.has_tls for listener in config.listeners)
        if has_tls or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, on_hangup)
        _run(config, must_stop, wait, on_failure)
    finally:
        gc.enable()
        signal.set_wakeup_fd(wake_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(woken)
        os.close(wake)
    if failures:
        raise ToolError(f"The broker stopped: {failures[0]}")
    return 0


def _run(
    config: "BrokerConfig",
    must_stop: Callable[[], bool],
    wait: Callable[[Callable[[], None]], None],
    on_failure: Callable[[str], None],
) -> None:
    from kafkapy._ext.allocator import keep_freed
    from kafkapy.runtime import collector, logs
    from kafkapy.runtime.threads import Thread
    from kafkapy.server.broker import BrokerServer

    logs.set_up(config.kafkapy_log_level)
    keep_freed(KEPT)
    server = BrokerServer(config, on_failure=on_failure)
    server.start()
    try:
        collector.configure()
        Thread(_freeze_logs, "after-loading", (server,)).start()
        if not must_stop():
            print(ready_line(server.listeners, config.log_dirs), flush=True)
        wait(lambda: server.reload_stores())  # looked up when it is needed
    finally:
        server.stop()


def _freeze_logs(server: "BrokerServer") -> None:
    """Exclude the objects of the logs from garbage collection, repeatedly while the logs are loaded. With 10,000
    partitions, collections would take 200 ms of the start, and each later full collection would take 120 ms."""
    for timeout in (*[_FREEZE_EVERY] * _FREEZES, None):
        loaded = server.wait_until_loaded(timeout)
        gc.freeze()
        if loaded:
            return


def ready_line(listeners: Sequence[str], log_dirs: Sequence[Path]) -> str:
    """Return the line that tells the user that the broker accepts connections, with its addresses, data directories and
    pid."""
    data = ",".join(str(path.absolute()) for path in log_dirs)
    return f"kafkapy {VERSION} ready: {','.join(listeners)} data={data} pid={os.getpid()}"
