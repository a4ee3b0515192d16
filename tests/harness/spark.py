"""Spark for the tests: the settings of a small session, and drivers in processes of their own."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import requires
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from tests.harness import toolchain
from tests.harness.spark_child import read_message, write_message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession  # importing it takes a second

TESTS = Path(__file__).parents[1]
DISCOVERY = TESTS.parent / "kafkapy" / "spark" / "discovery"  # an installation has its contents at the top level
OWN_SOURCE_POM = TESTS / "spark" / "own" / "pom.xml"
OLDEST = "4.0.0"  # oldest supported pyspark; all parts of its Kafka source are available
OWN_SOURCE_KAFKA = "3.9.0"  # the version of kafka-clients that Spark 4.0.0 requires
PATIENCE_S = 240.0
SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # settings for a JVM that runs only shortly

P = ParamSpec("P")
T = TypeVar("T")


def settings(directory: Path, master: str = "local[2]", **more: str) -> dict[str, str]:
    """Return the settings of a small session that listens only on 127.0.0.1 and writes only below `directory`.

    `more` are further settings, with underscores for dots (spark_executor_memory="1g").
    """
    scratch = directory / "spark"
    scratch.mkdir(parents=True, exist_ok=True)
    return {
        "spark.master": master,
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch} {SHORT_LIVED}",
        "spark.executor.extraJavaOptions": SHORT_LIVED,
        "spark.local.dir": str(scratch),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def session(settings: Mapping[str, str]) -> "SparkSession":
    """Start a SparkSession in this process, which must have none; with spark.remote, a session of Spark Connect."""
    toolchain.find("java")
    from pyspark.sql import SparkSession

    assert SparkSession.getActiveSession() is None, "there is a session, whose settings would stay"
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the only setting that a Python driver uses
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # otherwise Spark warns of a host name that cannot be resolved
    builder = SparkSession.builder.appName("kafkapy tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    on_interrupt = signal.getsignal(signal.SIGINT)
    running = builder.getOrCreate()
    signal.signal(signal.SIGINT, on_interrupt)  # a SparkContext takes it, for as long as the process lives
    if "spark.remote" not in settings:
        running.sparkContext.setLogLevel("ERROR")
    return running


def own_source_jars() -> str:
    """Return the jars of Spark's own Kafka source 4.0.0 and its dependencies, for `spark.jars`."""
    return toolchain.maven_classpath(OWN_SOURCE_POM, OWN_SOURCE_KAFKA).replace(":", ",")


def oldest_python() -> Path:
    """Return the Python of an environment with pyspark 4.0.0 and kafkapy's dependencies; kafkapy is this tree."""
    needs = [each for each in requires("kafkapy-broker") or () if "extra ==" not in each]
    return toolchain.python_with(*sorted(needs), f"pyspark[sql]=={OLDEST}")


class Driver:
    """A process with a Spark session that runs functions of importable modules (of tests/ and of kafkapy).

    `python` is the interpreter, and by that the version of pyspark. Used as a context manager.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str], python: Path | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "driver.log"
        python = python or Path(sys.executable)
        with self.log.open("ab") as err:
            self.child = subprocess.Popen(
                [str(python), "-m", "tests.harness.spark_child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                cwd=directory,
                env=environment([TESTS, TESTS.parent, DISCOVERY]),
            )
        self._send(dict(settings))
        self._receive("its session")

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, function: "Callable[Concatenate[SparkSession, P], T]", *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of function(spark, *args, **kwargs) in the driver; raise DriverError if it raises."""
        self._send((function.__module__, function.__qualname__, args, kwargs))
        result: T = self._receive(function.__qualname__)
        return result

    def kill(self) -> None:
        """Kill the Python driver; its JVM ends when it notices."""
        self.child.kill()
        self.child.wait(30)

    def close(self) -> None:
        """Stop the session; kill a driver that does not end."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.close()
        try:
            self.child.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
        self.child.stdout.close()

    def _send(self, message: object) -> None:
        assert self.child.stdin is not None
        write_message(self.child.stdin, message)

    def _receive(self, what: str) -> Any:
        assert self.child.stdout is not None
        watchdog = threading.Timer(PATIENCE_S, self.child.kill)
        watchdog.start()
        try:
            good, result = read_message(self.child.stdout)
        except EOFError:
            code = self.child.wait(30)
            raise DriverError(f"the driver ended with {code} instead of {what}:\n{self._end_of_log()}") from None
        finally:
            watchdog.cancel()
        if not good:
            raise DriverError(result)
        return result

    def _end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


class DriverError(RuntimeError):
    """An error in a Driver, with the traceback there."""


def environment(paths: Sequence[Path]) -> dict[str, str]:
    """Return this process's environment with `paths` first in Python's path; Spark passes them on to its workers."""
    more = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([*map(str, paths), *([more] if more else [])])
    return {**os.environ, "PYTHONPATH": path}
