"""`kafkapy.Cluster`: runs a cluster of brokers, each in a process of its own, for the duration of a `with` block."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from kafkapy.testing import at_exit
from kafkapy.testing.broker import START_TIMEOUT_S, Broker, BrokerFailed
from kafkapy.testing.secured import Secured
from kafkapy.testing.zookeeper import ZooKeeper

REPLICAS = 3  # of a topic, if there are so many brokers

T = TypeVar("T")


class Cluster:
    """A cluster of kafkapy brokers with ids 1, 2, 3 and so on, on free ports of 127.0.0.1, and its ZooKeeper.

        with kafkapy.Cluster(3) as cluster:
            client = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
            cluster.kill(cluster.controller_id)

    A topic has 3 replicas if its creator does not say otherwise, or as many as there are brokers. The topics of groups
    and transactions have few partitions, for a fast start. A broker that was killed is noticed when its session ends,
    after 6 s (zookeeper.session.timeout.ms); one that is stopped hands its partitions over first. All processes are
    killed when this process exits normally without `stop`.

    Args:
        brokers: how many.
        zookeeper: "host:port/chroot" of a server that is running; None: start one, from the jars of Debian's package
            libzookeeper-java, or from those in `zookeeper_jars` or in the directory that the environment variable
            KAFKAPY_ZOOKEEPER_JARS names.
        zookeeper_jars: a directory with the jars of ZooKeeper.
        directory: where the brokers keep their data, in broker-1, broker-2 and so on; None: a new directory that is
            removed when the cluster stops.
        config: settings of all brokers by name ({"num.partitions": 4}), which override `overrides` and the defaults.
        tls, users: as for Broker. Brokers talk to each other in the same way, and log in by PLAIN.
        overrides: settings of all brokers with underscores for dots (num_partitions=4).

    Attributes:
        directory: the directory with the brokers' data.
        zookeeper: "host:port/chroot" of ZooKeeper, "" before the start.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        zookeeper: str | None = None,
        zookeeper_jars: str | os.PathLike[str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        config: Mapping[str, Any] | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        **overrides: Any,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster needs at least one broker, not {brokers}")
        self.zookeeper = zookeeper or ""
        self._jars = zookeeper_jars
        self._secured: Secured | None = None
        if tls or users is not None:
            self._secured = Secured(tls=tls, users=users)
        self._owns_dir = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="kafkapy-cluster-") if directory is None else directory)
        self._settings: dict[str, Any] = {
            **_defaults(min(REPLICAS, brokers)),
            **(self._secured.settings() if self._secured is not None else {}),
            **{name.replace("_", "."): value for name, value in overrides.items()},
            **(config or {}),
        }
        self._ids = range(1, brokers + 1)
        self._running: dict[int, Broker] = {}
        # Where each broker listened first: it gets the same port at each later start, as clients expect.
        self._listeners: dict[int, str] = {}
        self._server: ZooKeeper | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the running brokers, "host:port,host:port". Raises BrokerFailed if none runs."""
        running = dict(sorted(self._running.items()))
        if not running:
            raise BrokerFailed("No broker of the cluster is running; use it in a with block, or call start().")
        return ",".join(broker.bootstrap_servers for broker in running.values())

    @property
    def ca_file(self) -> Path | None:
        """A PEM file with the authority that has signed the brokers' certificate; None without `tls`."""
        return self._secured.ca_file if self._secured is not None else None

    def client_properties(self, user: str | None = None, mechanism: str = "PLAIN") -> dict[str, str]:
        """Return the properties for TLS and login with which a client connects; see Broker.client_properties."""
        return {} if self._secured is None else self._secured.client_properties(user, mechanism)

    @property
    def running(self) -> list[int]:
        """The ids of the brokers that have been started and neither stopped nor killed."""
        return sorted(self._running)

    @property
    def controller_id(self) -> int:
        """The id of the broker that is the controller, as the brokers know it now; waits until there is one."""
        from kafkapy.client import Admin

        with Admin(self.bootstrap_servers, security=self.client_properties()) as admin:
            return _eventually(lambda: admin.describe_cluster().controller_id, lambda found: found in self._running)

    def broker(self, number: int) -> Broker:
        """Return the running broker with this id. Raise BrokerFailed if it does not run."""
        if number not in self._running:
            raise BrokerFailed(f"Broker {number} is not running; running: {self.running or 'none'}.")
        return self._running[number]

    def __enter__(self) -> "Cluster":
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.stop()
        except BrokerFailed:
            if kind is None:  # otherwise the exception in the block says more
                raise

    def start(self, number: int | None = None) -> "Cluster":
        """Start the broker with this id again, or without an id ZooKeeper and all brokers that do not run, and wait
        until every running broker knows the others. Return this object.

        Raise BrokerFailed if a broker does not start, and ZooKeeperFailed if there is no ZooKeeper or it does not
        start.
        """
        if number is None:
            try:
                self._start_all()
            except BaseException:
                with contextlib.suppress(BrokerFailed):  # the error of the start says more
                    self.stop()
                raise
        else:
            if number not in self._ids or number in self._running:
                why = "is running already" if number in self._running else f"is not one of 1 to {len(self._ids)}"
                raise BrokerFailed(f"Broker {number} {why}.")
            self._start_broker(number)
            self._wait_until_known()
        return self

    def stop(self, number: int | None = None) -> None:
        """Stop the broker with this id cleanly, as SIGTERM does: others take over its partitions first. Without an id,
        stop all brokers and ZooKeeper, and remove the directory if this object has created it.

        Raise BrokerFailed if a broker does not stop cleanly.
        """
        if number is not None:
            broker = self.broker(number)
            del self._running[number]
            broker.stop()
            return
        try:
            brokers = list(self._running.values())
            self._running.clear()
            with ThreadPoolExecutor(len(self._ids)) as threads:
                for done in [threads.submit(broker.stop) for broker in brokers]:
                    done.result()
        finally:
            if self._server is not None:
                self._server.stop()
                self._server = None
                self.zookeeper = ""
            self._remove_directory()

    def kill(self, number: int) -> None:
        """Kill the broker with this id as `kill -9` does. Its data directory is kept for the next `start`."""
        self.broker(number).kill()
        del self._running[number]

    def restart(self, number: int) -> None:
        """Stop the broker with this id cleanly, and start it again with the same address and data."""
        self.stop(number)
        self.start(number)

    def _remove_directory(self) -> None:
        """Remove the directory if this object has created it."""
        at_exit.unregister(self._remove_directory)
        if self._owns_dir:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _start_all(self) -> None:
        # Before the others: what is registered last is called first, so nothing writes to the directory any more.
        at_exit.register(self._remove_directory)
        if not self.zookeeper:
            self._server = ZooKeeper(self.directory / "zookeeper", self._jars)
            self.zookeeper = self._server.address
        with ThreadPoolExecutor(len(self._ids)) as threads:
            started = [
                threads.submit(self._start_broker, number) for number in self._ids if number not in self._running
            ]
        for done in started:  # all have ended by now, so that stop() finds those that run
            done.result()
        self._wait_until_known()
        if self._secured is not None and self._secured.users:
            self._secured.add_users(self.bootstrap_servers)
            self._wait_until_users_are_known()

    def _start_broker(self, number: int) -> None:
        settings = {**self._settings, "broker.id": number, "zookeeper.connect": self.zookeeper}
        if number in self._listeners:
            settings["listeners"] = self._listeners[number]
        broker = Broker(self.directory / f"broker-{number}", process=True, config=settings).start()
        self._listeners[number] = ",".join(broker.listeners)
        self._running[number] = broker

    def _wait_until_known(self) -> None:
        """Wait until Metadata from every running broker names a controller and all running brokers. Raise BrokerFailed
        if that takes longer than START_TIMEOUT_S."""
        from kafkapy.client import Admin

        for broker in list(self._running.values()):
            with Admin(broker.bootstrap_servers, security=self.client_properties()) as admin:
                _eventually(
                    admin.describe_cluster,
                    lambda found: (
                        {*self._running} <= {one.node_id for one in found.brokers} and found.controller_id > 0
                    ),
                )

    def _wait_until_users_are_known(self) -> None:
        """Wait until every running broker knows the SCRAM credentials of all users, or raise BrokerFailed."""
        from kafkapy.client.administration.user_admin import UserAdmin

        assert self._secured is not None
        wanted = set(self._secured.users)
        for broker in list(self._running.values()):
            with UserAdmin(broker.bootstrap_servers, security=self.client_properties()) as admin:
                _eventually(
                    admin.list_users,
                    lambda found: wanted <= {user for user, iterations in found.items() if len(iterations) == 2},
                )


def _eventually(look: Callable[[], T], is_right: Callable[[T], bool]) -> T:
    """Return the first result of `look` that is right. Raise BrokerFailed if there is none within START_TIMEOUT_S."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not is_right(found := look()):
        if time.monotonic() > deadline:
            raise BrokerFailed(
                f"The brokers do not know each other, or the users, after {START_TIMEOUT_S:g} s; one says: {found}"
            )
        time.sleep(0.02)
    return found


def _defaults(replicas: int) -> dict[str, Any]:
    """Return the settings in which a broker of a cluster for tests differs from a broker started by the command."""
    return {
        "default.replication.factor": replicas,
        "offsets.topic.num.partitions": 3,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": 3,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min(2, replicas),
        "zookeeper.session.timeout.ms": 6000,
        # When all brokers stop at once, the last ones find nobody to hand their partitions to, and try again.
        "controlled.shutdown.retry.backoff.ms": 200,
    }
