"""Real ZooKeeper servers: the 3.8.4 that Kafka 3.9.1 comes with, with a session time-out short enough for tests."""

import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError

from kafkapy.testing.zookeeper import JAVA, MAIN
from tests.harness import toolchain
from tests.harness.brokers import KAFKA_POM, KAFKA_VERSION, Process, free_port
from tests.harness.waiting import eventually

TICK_MS = 100
SESSION_MS = 2000  # of sessions whose expiry a test waits for
PATIENT_MS = 10 * SESSION_MS  # of others, which must not expire because the machine is busy
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
QUORUM = """\
initLimit=100
syncLimit=20
"""


class ZooKeeper:
    """A server whose port stays the same over restarts."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: str = "",
        java: Sequence[str] = (),
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
        start: bool = True,
    ) -> None:
        """Start the server, unless `start` is False. `prefix` precedes its command, to start it on another `host`."""
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
        self.frozen = self.launched = False
        if start:
            self.start()

    def start(self) -> None:
        """Start the server and wait until it serves. An earlier client might wait until its session expires."""
        self.launch()
        eventually(lambda: self.mode, seconds=60, what=f"ZooKeeper does not serve: see {self._directory}")

    def launch(self) -> None:
        """Start the server and return at once."""
        classpath = toolchain.maven_classpath(KAFKA_POM, KAFKA_VERSION)
        java = [toolchain.find("java"), *JAVA, *self._java]
        command = [*self._prefix, *java, "-cp", classpath, MAIN, str(self._config)]
        self.process = Process(command, self._directory / "zookeeper.log")
        self.frozen, self.launched = False, True

    @property
    def mode(self) -> str:
        """Return "standalone", "leader" or "follower", "" while the server does not serve."""
        found = re.search(r"^Mode: (\w+)", self.ask("srvr"), re.MULTILINE)
        return found[1] if found else ""

    def ask(self, word: str) -> str:
        """Return the response to a four-letter word, "" while the server does not respond."""
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

    def heard(self) -> dict[int, str]:
        """Return the open connections by session: the client's address, and how many requests it has sent. They also
        have the pings, by which a session lives on."""
        lines = re.findall(r"^ ?/(\S+)\[.*\brecved=(\d+),.*\bsid=0x([0-9a-f]+),", self.ask("cons"), re.MULTILINE)
        return {int(session, 16): f"{address} {count}" for address, count, session in lines}

    def stop(self) -> None:
        """Kill the server. Its log has all acknowledged changes."""
        self.process.kill()
        self.frozen = False

    def freeze(self) -> None:
        """Stop the execution of the process. Its sockets stay open."""
        self.process.freeze()
        self.frozen = True

    def heal(self) -> None:
        """Continue a frozen server, or launch a killed one."""
        if self.frozen:
            self.process.thaw()
            self.frozen = False
        elif self.process.child.poll() is not None:
            self.launch()

    @property
    def transaction_logs(self) -> Path:
        """Return the directory of the logs of all changes."""
        return self._directory / "data" / "version-2"


class Ensemble:
    """One server, or several that elect a leader, each on its own host."""

    def __init__(self, directory: Path, hosts: Mapping[str, Sequence[str]]) -> None:
        """Start a server on each host and wait until all serve. `hosts` has, by address, what is in front of a command
        to run it there."""
        self.servers: dict[str, ZooKeeper] = {}
        several = len(hosts) > 1
        members = "".join(f"server.{number}={host}:2888:3888\n" for number, host in enumerate(hosts, 1))
        # A server that was away gets each missed change instead of a snapshot, so its log stays complete.
        java = ["-Dzookeeper.commitLogCount=1000000"]
        for number, (host, prefix) in enumerate(hosts.items(), 1):
            place = directory / f"server-{number}" if several else directory
            if several:
                (place / "data").mkdir(parents=True)
                (place / "data" / "myid").write_text(f"{number}\n")
            settings = QUORUM + members if several else ""
            self.servers[host] = ZooKeeper(place, settings=settings, java=java, host=host, prefix=prefix, start=False)
        try:
            for server in self.servers.values():
                server.launch()
            self.wait_until_serving()
        except BaseException:
            self.stop()
            raise

    @property
    def address(self) -> str:
        """Return the addresses of all servers, for clients."""
        return ",".join(server.address for server in self.servers.values())

    def leader(self) -> str:
        """Wait for a leader and return its host. A single server is the leader."""

        def leaders() -> list[str]:
            return [host for host, server in self.servers.items() if server.mode in ("leader", "standalone")]

        return eventually(leaders, seconds=60, what="ZooKeeper has no leader")[0]

    def wait_until_serving(self) -> None:
        """Wait until all servers serve."""
        for host, server in self.servers.items():
            eventually(lambda server=server: server.mode, seconds=60, what=f"ZooKeeper on {host} does not serve")  # type: ignore[misc]

    def heard(self) -> dict[int, str]:
        """Return the open connections of all servers, as ZooKeeper.heard does."""
        return {session: one for server in self.servers.values() for session, one in server.heard().items()}

    def heal(self) -> None:
        """Continue the servers that are frozen, launch those that were killed, and wait until all serve."""
        for server in self.servers.values():
            server.heal()
        self.wait_until_serving()

    def stop(self) -> None:
        """Kill all servers that were started."""
        for server in self.servers.values():
            if server.launched:
                server.stop()


def end_session(address: str, session: tuple[int, bytes]) -> None:
    """End the session with this id and password, as if it had expired: its ephemeral nodes are gone.

    A second client takes the session over and closes it. The session's own client connects again at once, and may take
    the session back before the second client has closed it; then the second client tries again.
    """

    def has_ended() -> bool:
        client = KazooClient(address.partition("/")[0], client_id=session)
        client.start_async().wait(10)
        found = client.client_id
        client.stop()
        client.close()
        return found is not None and found[0] != session[0]  # a client whose session has ended gets another one

    eventually(has_ended, what="the session does not end")


def refuse_logins(monkeypatch: pytest.MonkeyPatch, connections: Any, times: int) -> list[Exception]:
    """Make the next logins fail as if ZooKeeper refused them. Return the errors that are still to be raised.

    `connections` is the ConnectionHandler of a kazoo client, or this class for all clients.
    """
    connect, refusals = connections._connect, [AuthFailedError() for _ in range(times)]

    def refuse(*args: Any) -> Any:
        timeouts = connect(*args)
        if refusals:
            raise refusals.pop()
        return timeouts

    monkeypatch.setattr(connections, "_connect", refuse)
    return refusals


def jars_in(directory: Path) -> Path:
    """Return the directory after links to the jars of ZooKeeper, and of what it needs, have been made in it."""
    directory.mkdir(parents=True, exist_ok=True)
    for jar in map(Path, toolchain.maven_classpath(KAFKA_POM, KAFKA_VERSION).split(":")):
        (directory / jar.name).symlink_to(jar)
    return directory
