"""Spark's own processes as its scripts start them: a standalone master with workers, and a server of Spark Connect."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from perf.spark_driver import TIMEOUT_S
from tests.harness import brokers, toolchain
from tests.harness.spark import SHORT_LIVED

# Lines on standard output that say that the process is ready.
LOG4J2 = """\
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
"""


def start_daemon(directory: Path, name: str, ready: str, *arguments: str) -> tuple[brokers.Process, re.Match[str]]:
    """Start `spark-class ARGUMENTS` of the tests' pyspark; return the process and its ready line.

    It writes only below `directory`.
    """
    import pyspark

    toolchain.find("java")
    home = Path(pyspark.__file__).parent
    log4j2 = directory / "log4j2.properties"
    log4j2.write_text(LOG4J2)
    options = f"{SHORT_LIVED} -Dlog4j2.configurationFile={log4j2}"
    env = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": options,
        "SPARK_DAEMON_MEMORY": "640m",  # a server of Spark Connect uses it as spark.driver.memory
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": str(directory / name),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": options,
    }
    process = brokers.Process([str(home / "bin" / "spark-class"), *arguments], directory / f"{name}.log", env=env)
    return process, process.wait_for_line(re.compile(ready), TIMEOUT_S)


class StandaloneCluster:
    """A master and workers of one core each; `url` is for `spark.master`. Used as a context manager."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self._directory = directory
        self._running: list[brokers.Process] = []
        try:
            self.url = self._start("Master", "--port", "0", ready=r"Starting Spark master at (\S+)")[1]
            for number in range(workers):
                work = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"worker-{number}"))
                self._start("Worker", *work, self.url, ready="Successfully registered with master")
        except BaseException:
            self.close()
            raise

    def _start(self, kind: str, *arguments: str, ready: str) -> re.Match[str]:
        main = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        name = f"{kind.lower()}-{len(self._running)}"
        listen = ("--host", "127.0.0.1", "--webui-port", "0")
        process, line = start_daemon(self._directory, name, ready, main, *listen, *arguments)
        self._running.append(process)
        return line

    def __enter__(self) -> "StandaloneCluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers first: each ends its executors."""
        for process in reversed(self._running):
            process.stop()


class ConnectServer:
    """A server of Spark Connect with these settings; `url` is for `spark.remote`. Used as a context manager."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        given = {**settings, "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"}
        words = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
        main = "org.apache.spark.sql.connect.service.SparkConnectServer"
        command = ("org.apache.spark.deploy.SparkSubmit", *words, "--class", main, "spark-internal")
        self._process, line = start_daemon(directory, "connect", r"Connect server started at: \S*:(\d+)", *command)
        self.url = f"sc://127.0.0.1:{line[1]}"

    def __enter__(self) -> "ConnectServer":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()
