"""`kafkapy.Broker`: runs a real broker for the duration of a `with` block, in this process or in a child process."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from kafkapy.testing import at_exit
from kafkapy.testing.secured import Secured

if TYPE_CHECKING:
    from kafkapy.server.broker import BrokerServer

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
# Differences from a broker started by the command: a free port, and no wait for further members of a group.
DEFAULTS = {"listeners": "PLAINTEXT://127.0.0.1:0", "group.initial.rebalance.delay.ms": 0}


# Characters that java.util.Properties would read as something else.
_ESCAPE = re.compile(r"[\\\n\r]|^\s")


def _escaped(found: "re.Match[str]") -> str:
    return {"\n": "\\n", "\r": "\\r"}.get(found[0], f"\\{found[0]}")


class BrokerFailed(RuntimeError):
    """Raised if a broker does not start, or does not stop cleanly; the message contains the broker's standard error."""


class Broker:
    """A broker with embedded metadata on a free port of 127.0.0.1. The first rebalance of a group begins without delay.

        with kafkapy.Broker(num_partitions=4) as broker:
            client = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)

    Args:
        log_dir: the data directory; None: a new directory that is removed when the broker stops.
        process: run `kafkapy start` in a child process instead of threads of this process. The child process is killed
            when this process exits normally without `stop`.
        tls: encrypt connections, with a certificate that is made for this broker (needs the extra `security`).
        users: passwords by user name; clients must log in by PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        config: settings by name ({"num.partitions": 4}), which override `overrides` and the defaults.
        overrides: settings with underscores for dots (num_partitions=4).

    Attributes:
        bootstrap_servers: "host:port" for clients.
        listeners: "PLAINTEXT://host:port" of every listener.
        log_dir: the data directory.
        pid: the id of the broker's process.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        process: bool = False,
        config: Mapping[str, Any] | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        **overrides: Any,
    ) -> None:
        self._secured: Secured | None = None
        if tls or users is not None:
            self._secured = Secured(tls=tls, users=users)
        self._owns_dir = log_dir is None
        self.log_dir = Path(tempfile.mkdtemp(prefix="kafkapy-") if log_dir is None else log_dir)
        self.process = process
        self.listeners: list[str] = []
        self.pid = os.getpid()
        self._settings: dict[str, Any] = {
            "log.dirs": str(self.log_dir),
            **DEFAULTS,
            **(self._secured.settings() if self._secured is not None else {}),
            **{name.replace("_", "."): value for name, value in overrides.items()},
            **(config or {}),
        }
        self._server: BrokerServer | None = None
        self._child: subprocess.Popen[str] | None = None
        self._stderr: IO[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        if not self.listeners:
            raise BrokerFailed("The broker is not running; use it in a with block, or call start().")
        return ",".join(listener.partition("://")[2] for listener in self.listeners)

    @property
    def ca_file(self) -> Path | None:
        """A PEM file with the authority that has signed the broker's certificate; None without `tls`."""
        return self._secured.ca_file if self._secured is not None else None

    def client_properties(self, user: str | None = None, mechanism: str = "PLAIN") -> dict[str, str]:
        """Return the properties for TLS and login with which a client connects, by the names of Kafka's Java clients.
        They can be passed to kafkapy's clients as `security`. `user` is one of `users`, by default the first."""
        return {} if self._secured is None else self._secured.client_properties(user, mechanism)

    def __enter__(self) -> "Broker":
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.stop()
        except BrokerFailed:
            if kind is None:  # otherwise the exception in the block says more
                raise

    def start(self) -> "Broker":
        """Start the broker, unless it runs already, and wait until it accepts connections. Return this object. Raise
        BrokerFailed if a child process does not start, or the broker's own error if it runs in this process."""
        if self._server is not None or (self._child is not None and self._child.poll() is None):
            return self
        try:
            if self.process:
                self._start_child()
            else:
                self._start_here()
            if self._secured is not None:
                self._secured.add_users(self.bootstrap_servers)
        except BaseException:
            if self._server is not None:
                with contextlib.suppress(Exception):  # the error of the start says more
                    self._server.stop()
            self._clean_up()
            raise
        return self

    def stop(self) -> None:
        """Stop the broker cleanly, as SIGTERM does, and remove the data directory if this object has created it. Raise
        BrokerFailed if a child process does not stop cleanly."""
        try:
            if self._server is not None:
                self._server.stop()
            if self._child is not None:
                self._stop_child(self._child)
        finally:
            self._clean_up()

    def kill(self) -> None:
        """Kill the child process as `kill -9` does, without flushing. The data directory is kept until `stop`. Raise
        BrokerFailed if no child process is running."""
        if self._child is None:
            raise BrokerFailed("Only a running broker in a child process can be killed: use Broker(process=True).")
        self._end_child()

    def stderr(self) -> str:
        """Return the text that the child process has written to standard error so far: its log. Return "" without a
        child process."""
        if self._stderr is None:
            return ""
        self._stderr.flush()
        return Path(self._stderr.name).read_text(encoding="utf-8", errors="replace")

    def _start_here(self) -> None:
        from kafkapy.server.broker import BrokerServer
        from kafkapy.server.config.broker_config import BrokerConfig

        server = BrokerServer(BrokerConfig(self._settings))
        server.start()
        self._server = server
        server.wait_until_loaded()
        self.listeners = list(server.listeners)

    def _start_child(self) -> None:
        # In a file, because everybody can see a command line, and settings may be passwords.
        with tempfile.NamedTemporaryFile("w", prefix="kafkapy-", suffix=".properties") as properties:
            for name, value in self._settings.items():
                text = str(value).lower() if isinstance(value, bool) else str(value)
                properties.write(f"{name}={_ESCAPE.sub(_escaped, text)}\n")
            properties.flush()
            self._run_child([sys.executable, "-m", "kafkapy", "start", properties.name])

    def _run_child(self, command: list[str]) -> None:
        # A file, because a pipe that nothing reads would fill up and block the broker at a log line.
        if self._stderr is not None:  # from a killed child
            self._stderr.close()
        self._stderr = tempfile.NamedTemporaryFile(prefix="kafkapy-stderr-")  # noqa: SIM115 - closed in _clean_up
        # In a session of its own: Ctrl-C in a terminal would reach the child too, and the SIGTERM of `stop` would then
        # be the second signal, which ends a broker at once.
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self._child = child
        at_exit.register(self._clean_up)
        # The watchdog kills a broker that hangs, which ends the read below.
        watchdog = threading.Timer(START_TIMEOUT_S, child.kill)
        watchdog.start()
        try:
            assert child.stdout is not None
            ready = child.stdout.readline()
        finally:
            watchdog.cancel()
        if " ready: " not in ready:
            code = child.wait()
            output = self.stderr().strip()
            raise BrokerFailed(
                f"The broker did not start (exit code {code}); its output: {output or ready.strip() or 'none'}"
            )
        self.listeners = ready.partition(" ready: ")[2].split(" data=")[0].split(",")
        self.pid = child.pid

    def _stop_child(self, child: "subprocess.Popen[str]") -> None:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        try:
            code = child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            raise BrokerFailed(
                f"The broker did not stop within {STOP_TIMEOUT_S:g} s; its output: {self.stderr()}"
            ) from None
        if code != 0:
            raise BrokerFailed(f"The broker ended with exit code {code}; its output: {self.stderr()}")

    def _end_child(self) -> None:
        """Kill the child process if it still runs, and release its resources."""
        self.listeners = []
        child, self._child = self._child, None
        if child is None:
            return
        if child.poll() is None:
            child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()

    def _clean_up(self) -> None:
        at_exit.unregister(self._clean_up)
        self._server = None
        self._end_child()
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None
        if self._owns_dir:
            shutil.rmtree(self.log_dir, ignore_errors=True)
