"""A real ZooKeeper server: the 3.8.4 that Kafka 3.9.1 comes with, with a session time-out short enough for tests."""

import re
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.harness import toolchain
from tests.harness.brokers import KAFKA_POM, KAFKA_VERSION, Process, free_port

TICK_MS = 100
SESSION_MS = 2000
CONFIG = """\
tickTime={tick}
minSessionTimeout={tick}
maxSessionTimeout=60000
dataDir={data}
clientPort={port}
clientPortAddress={host}
admin.enableServer=false
4lw.commands.whitelist=*
"""


class ZooKeeper:
    """A server on a port that stays the same over restarts."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: str = "",
        java: Sequence[str] = (),
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        """Start the server. `prefix` is in front of its command, to start it on another `host`."""
        self._directory = directory
        self._prefix = list(prefix)
        directory.mkdir(parents=True, exist_ok=True)
        self.host = host
        self.port = free_port()
        self.address = f"{host}:{self.port}"
        self._config = directory / "zoo.cfg"
        text = CONFIG.format(tick=TICK_MS, data=directory / "data", host=host, port=self.port)
        self._config.write_text(text + settings)
        self._java = list(java)
        self.start()

    def start(self) -> None:
        """Start the server and wait until it serves: an earlier client might wait until its session expires."""
        classpath = toolchain.maven_classpath(KAFKA_POM, KAFKA_VERSION)
        java = [toolchain.find("java"), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *self._java]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [*self._prefix, *java, "-cp", classpath, main, str(self._config)]
        self.process = Process(command, self._directory / "zookeeper.log")
        eventually(lambda: "Mode: standalone" in self.ask("srvr"), seconds=60)

    def ask(self, word: str) -> str:
        """Return the answer to a four-letter word; empty while the server does not answer."""
        try:
            with socket.create_connection((self.host, self.port), timeout=5) as connection:
                connection.sendall(word.encode())
                answer = b""
                while part := connection.recv(65536):
                    answer += part
        except OSError:
            return ""
        return answer.decode()

    def sessions(self) -> list[int]:
        """Return the ids of the open sessions."""
        return [int(number, 16) for number in re.findall(r"^\s*(0x[0-9a-f]+)", self.ask("dump"), re.MULTILINE)]

    def stop(self) -> None:
        """Kill the server. Its log has all acknowledged changes."""
        self.process.kill()


def jars_in(directory: Path) -> Path:
    """Return the directory after links to the jars of ZooKeeper, and of what it needs, have been made in it."""
    directory.mkdir(parents=True, exist_ok=True)
    for jar in map(Path, toolchain.maven_classpath(KAFKA_POM, KAFKA_VERSION).split(":")):
        (directory / jar.name).symlink_to(jar)
    return directory


def eventually(condition: Callable[[], object], *, seconds: float = 20, what: str = "") -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what or f"not within {seconds:.0f} s"
        time.sleep(0.01)
