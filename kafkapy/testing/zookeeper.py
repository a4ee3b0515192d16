"""Runs a ZooKeeper server in a child process, for `kafkapy.Cluster`."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from kafkapy.testing import at_exit

JARS_VARIABLE = "KAFKAPY_ZOOKEEPER_JARS"
START_TIMEOUT_S = 60.0
DEBIAN_JARS = Path("/usr/share/java")
# The manifest of Debian's zookeeper.jar names the other jars that the server needs, but none that writes its log.
DEBIAN_NAMES = ("zookeeper", "slf4j-simple")
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JAVA = (
    # A small heap and the simplest compiler and collector: the tree of a test is small, and the server starts sooner.
    "-Xmx128m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    # A ping waits for the syncs of the changes before it: on a busy disk connections would be given up, and sessions
    # would expire. What is written outlives a kill of the server without a sync, too.
    "-Dzookeeper.forceSync=no",
)
# Session time-outs are 2 to 20 ticks, in ms.
SETTINGS = """\
tickTime=500
maxSessionTimeout=60000
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
"""


class ZooKeeperFailed(RuntimeError):
    """Raised if there is no ZooKeeper on this machine, or if it does not start."""


class ZooKeeper:
    """A ZooKeeper server on a free port of 127.0.0.1. The constructor starts it and waits until it serves.

    Args:
        directory: where the server keeps its data, its settings and its log.
        jars: a directory with the server's jars; None: as for `class_path`.

    Attributes:
        address: "127.0.0.1:port" for zookeeper.connect.

    Raises ZooKeeperFailed if there are no jars or no Java, or if the server does not start.
    """

    def __init__(self, directory: Path, jars: str | os.PathLike[str] | None = None) -> None:
        classes, java = class_path(jars), shutil.which("java")
        if java is None:
            raise ZooKeeperFailed("ZooKeeper needs Java, and there is no java in PATH: apt-get install default-jre")
        directory.mkdir(parents=True, exist_ok=True)
        with reserve_port() as reserved:
            self.port: int = reserved.getsockname()[1]
            self.address = f"127.0.0.1:{self.port}"
            settings = directory / "zoo.cfg"
            settings.write_text(SETTINGS.format(data=directory / "data", port=self.port))
            self._log = directory / "zookeeper.log"
            with self._log.open("wb") as log:
                # In a session of its own, because Ctrl-C in a terminal would end the server before its brokers.
                self._child = subprocess.Popen(
                    [java, *JAVA, "-cp", classes, MAIN, str(settings)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            at_exit.register(self.stop)
            try:
                self._wait_until_serving()
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Kill the server. Its own log on disk has every change that it has acknowledged."""
        at_exit.unregister(self.stop)
        self._child.kill()
        self._child.wait()

    def _wait_until_serving(self) -> None:
        """Wait until the server serves. Raise ZooKeeperFailed if it ends, or does not serve within START_TIMEOUT_S."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while "Mode: standalone" not in self._ask("srvr"):
            code = self._child.poll()
            if code is not None or time.monotonic() > deadline:
                how = f"exit code {code}" if code is not None else f"not within {START_TIMEOUT_S:g} s"
                output = self._log.read_text(encoding="utf-8", errors="replace").strip()[-4000:]
                raise ZooKeeperFailed(f"ZooKeeper did not start ({how}); its output: {output or 'none'}")
            time.sleep(0.02)

    def _ask(self, word: str) -> str:
        """Return the answer to a four-letter word, "" while the server does not answer."""
        answer = b""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(word.encode())
                while part := connection.recv(65536):
                    answer += part
        except OSError:
            return ""
        return answer.decode()


def reserve_port() -> socket.socket:
    """Return a socket that is bound to a free port of 127.0.0.1 and does not listen.

    While it is open, Linux gives this port to no other program that asks for a free one or connects. A server that sets
    SO_REUSEADDR, as ZooKeeper does, can bind the port and listen.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


def class_path(jars: str | os.PathLike[str] | None = None, installed: Path = DEBIAN_JARS) -> str:
    """Return the class path of ZooKeeper's server: all jars of the directory `jars`, else of the directory that the
    environment variable KAFKAPY_ZOOKEEPER_JARS names, else those that Debian's package has put into `installed`.

    Raise ZooKeeperFailed if the directory has no jar of ZooKeeper, or if there is neither a directory nor the package.
    """
    named = jars if jars is not None else os.environ.get(JARS_VARIABLE)
    if named:
        directory = Path(named)
        if not any(directory.glob("zookeeper*.jar")):
            raise ZooKeeperFailed(f"There is no zookeeper-*.jar in {directory}, where ZooKeeper's jars should be.")
        return f"{directory}/*"
    if (installed / "zookeeper.jar").exists():
        found = [installed / f"{name}.jar" for name in DEBIAN_NAMES]
        return ":".join(str(jar) for jar in found if jar.exists())
    raise ZooKeeperFailed(
        "A cluster needs ZooKeeper, and there is none on this machine. Either install Debian's package (apt-get "
        f"install libzookeeper-java default-jre), or set {JARS_VARIABLE} (or zookeeper_jars=) to a directory with its "
        "jars: lib of Apache ZooKeeper, or libs of Apache Kafka up to 3.9. To use a server that runs already, give "
        'its address: zookeeper="host:2181/chroot".'
    )
