"""Child processes that are always ended, by their pid, also if the run fails."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class Child:
    """A process in its own session, so that Ctrl-C reaches only perf, which then stops the process.

    Standard error, and standard output unless `keep_stdout`, go to the file `log`.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        keep_stdout: bool = False,
        env: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        self.command = list(command)
        self.log = log
        self._output_from = log.stat().st_size if log.exists() else 0
        self.started = time.perf_counter()
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if keep_stdout else file,
                stderr=file,
                start_new_session=True,
                env=env,
                cwd=directory,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self, timeout: float = 30.0) -> None:
        """Send SIGTERM, and SIGKILL after `timeout` seconds; return when the process has ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout)
            except BaseException:  # too slow, or the user pressed Ctrl-C again: the process must not remain
                self.process.kill()
                self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

    def kill(self) -> None:
        """Send SIGKILL; return when the process has ended."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

    def first_line(self, what: str) -> bytes:
        """Return the first line of standard output, which was kept. Raise `failure(what)` if the process ends before
        it."""
        assert self.process.stdout is not None
        line: bytes = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise self.failure(what)
        return line

    def output(self) -> str:
        """Return what this process wrote to its log, without the output of earlier processes in the same file."""
        with self.log.open("rb") as file:
            file.seek(self._output_from)
            return file.read().decode(errors="replace")

    def failure(self, what: str) -> RuntimeError:
        """Return an error with the last lines of the process's output."""
        last_lines = self.output().splitlines()[-15:]
        state = self.process.poll()
        state_text = "is still running" if state is None else f"ended with exit code {state}"
        return RuntimeError(
            f"{what}; {' '.join(self.command[:6])} ... {state_text}, its last lines:\n" + "\n".join(last_lines)
        )


def free_port() -> int:
    """Return a port on which no process listens now (with port 0, Apache Kafka does not say which port it chose)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(ready: Callable[[], bool], child: Child, what: str, timeout: float = 60.0) -> None:
    """Wait until `ready` returns True, polling every 2 ms. Raise RuntimeError with the child's last output if it ends
    or after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not ready():
        if child.process.poll() is not None or time.monotonic() > deadline:
            raise child.failure(f"{what} was not ready")
        time.sleep(0.002)


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
