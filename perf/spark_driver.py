"""Processes with a Spark session that run functions, and what such sessions need. The tests use them, too.

`python -m perf.spark_driver` is such a process. It reads the settings of the session first, then one message for each
call: (module, function, args, kwargs). A response is (True, result) or (False, traceback). Messages are pickles with a
length before them.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from importlib.metadata import requires
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from perf import jars
from perf.machine import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession  # importing it takes a second

DISCOVERY = ROOT / "kafkapy" / "spark" / "discovery"  # an installation has its contents at the top level
OLDEST = "4.0.0"  # the oldest supported pyspark; all parts of its Kafka source are available
TIMEOUT_S = 240.0

P = ParamSpec("P")
T = TypeVar("T")


class DriverError(RuntimeError):
    """An error in a Driver, with the traceback there."""


class Driver:
    """A process with a Spark session that runs functions of importable modules.

    `python` is the interpreter, and by that the version of pyspark; `env` the environment, by default `environment()`.
    Used as a context manager.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        python: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "driver.log"
        with self.log.open("ab") as errors:
            self.child = subprocess.Popen(
                [str(python or sys.executable), "-m", "perf.spark_driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=directory,
                env=env or environment(),
            )
        self._send(dict(settings))
        self._receive("its session")

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, function: Callable[Concatenate[SparkSession, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of function(spark, *args, **kwargs) in the process; raise DriverError if it raises."""
        self._send((function.__module__, function.__qualname__, args, kwargs))
        result: T = self._receive(function.__qualname__)
        return result

    def close(self) -> None:
        """Stop the session; kill a process that does not end."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.close()
        try:
            self.child.wait(60)
        except subprocess.TimeoutExpired:
            self.child.kill()  # its JVM ends when it notices
            self.child.wait(30)
        self.child.stdout.close()

    def _send(self, message: object) -> None:
        assert self.child.stdin is not None
        _write_message(self.child.stdin, message)

    def _receive(self, what: str) -> Any:
        assert self.child.stdout is not None
        watchdog = threading.Timer(TIMEOUT_S, self.child.kill)
        watchdog.start()
        try:
            good, result = _read_message(self.child.stdout)
        except EOFError:
            code = self.child.wait(30)
            last = self.log.read_text(errors="replace")[-4000:]
            raise DriverError(f"the driver ended with {code} instead of {what}:\n{last}") from None
        finally:
            watchdog.cancel()
        if not good:
            raise DriverError(result)
        return result


def environment() -> dict[str, str]:
    """Return this process's environment with this checkout first in Python's path, which Spark gives to its workers."""
    paths = [str(ROOT), str(DISCOVERY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def settings(directory: Path, **more: str) -> dict[str, str]:
    """Return the settings of a session with local[2] that listens only on 127.0.0.1 and writes only below `directory`.

    `more` are further settings, with underscores for dots.
    """
    scratch = directory / "spark"
    scratch.mkdir(parents=True, exist_ok=True)
    return {
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={directory}",  # nothing else: the JVM's defaults
        "spark.local.dir": str(scratch),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def own_source_jars() -> str:
    """Return the jars of Spark's own Kafka source 4.0.0 and its dependencies, for `spark.jars`."""
    return ",".join(str(jar) for jar in sorted(jars.fetch(jars.SPARK_SOURCE).glob("*.jar")))


def oldest_python() -> Path:
    """Return the Python of an environment with pyspark 4.0.0 and kafkapy's dependencies, which is made once in the
    user's cache; its kafkapy is this checkout."""
    needed = [each for each in requires("kafkapy-broker") or () if "extra ==" not in each]
    packages = [*sorted(needed), f"pyspark[sql]=={OLDEST}"]
    digest = hashlib.sha256("".join(f"{word}\0" for word in (sys.version, *packages)).encode()).hexdigest()
    directory = jars.cache() / f"python-{digest[:16]}"
    python = Path("bin") / "python"
    if not directory.exists():
        temporary = Path(f"{directory}.{os.getpid()}")
        subprocess.run([sys.executable, "-m", "venv", str(temporary)], check=True)
        pip = [str(temporary / python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *packages], check=True)
        try:
            temporary.rename(directory)
        except OSError:  # another run has made it meanwhile
            shutil.rmtree(temporary)
    return directory / python


def _write_message(stream: IO[bytes], message: object) -> None:
    data = pickle.dumps(message)
    stream.write(struct.pack(">Q", len(data)) + data)
    stream.flush()


def _read_message(stream: IO[bytes]) -> Any:
    """Return the next message; raise EOFError if there is none."""
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    (length,) = struct.unpack(">Q", head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)


def session(settings: Mapping[str, str]) -> SparkSession:
    """Start a SparkSession in this process, which must have none; with spark.remote, a session of Spark Connect."""
    from pyspark.sql import SparkSession

    assert SparkSession.getActiveSession() is None, "there is a session, whose settings would stay"
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the only setting that a Python driver uses
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # otherwise Spark warns of a host name that is not resolved
    builder = SparkSession.builder.appName("kafkapy")
    for name, value in settings.items():
        builder = builder.config(name, value)
    on_interrupt = signal.getsignal(signal.SIGINT)
    running = builder.getOrCreate()
    signal.signal(signal.SIGINT, on_interrupt)  # a SparkContext takes it, for as long as the process lives
    if "spark.remote" not in settings:
        running.sparkContext.setLogLevel("ERROR")
    return running


def main() -> None:
    """Serve until standard input ends."""
    requests, responses = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Spark's output must not mix with the responses
    spark: Any = None
    while True:
        try:
            request = _read_message(requests)
        except EOFError:
            break
        result: object = None
        try:
            if spark is None:
                spark = session(request)
            else:
                module, name, args, kwargs = request
                result = getattr(importlib.import_module(module), name)(spark, *args, **kwargs)
            response = (True, result)
        except Exception:
            response = (False, traceback.format_exc())
        _write_message(responses, response)
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    main()
