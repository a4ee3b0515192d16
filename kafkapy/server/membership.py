"""This broker's registration in ZooKeeper along with other brokers, and whether it stands for election as controller.

Every registered broker stands for election when there is no controller. If the session of this broker expires while it
runs, it registers again, with a new broker epoch.

Source: KafkaServer.createBrokerInfo, KafkaZkClient.registerBroker, KafkaController.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from kafkapy.errors import KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.cluster import NO_CONTROLLER, ClusterRegistry, Endpoint
from kafkapy.metadata.tree import Event, NodeExists, Tree, TreeError
from kafkapy.runtime.addresses import host_port
from kafkapy.runtime.threads import Thread
from kafkapy.server.metadata_store import StartError

log = logging.getLogger("kafkapy.server.membership")

# A dead broker's session time-out may be longer than this broker's, and ZooKeeper checks sessions only at intervals.
_EXPIRY_MARGIN_S = 20.0
_POLL_S = 0.5
_CONNECT_S = 2.0


class Election(Protocol):
    """The interface of the actions of a broker that becomes, or stops being, the controller. All methods may raise
    TreeError or KafkaError; then they are called again."""

    def stand(self) -> None:
        """Stand for election, and begin this broker's term if it is elected."""
        ...

    def end(self) -> None:
        """End this broker's term, because another broker is the controller."""
        ...


class Membership:
    """Keeps this broker registered in ZooKeeper.

    Call `check_start` before the registration, `follow` after it, and `stop` at the end.
    """

    def __init__(self, tree: Tree, cluster: ClusterRegistry, broker_id: int, where: str) -> None:
        """Watch the registrations in the metadata tree. `where` is the address of ZooKeeper, for messages."""
        self._tree = tree
        self._cluster = cluster
        self._broker_id = broker_id
        self._where = where
        self._changed = threading.Event()
        self._expired = threading.Event()
        self._stopped = False
        self._thread: Thread | None = None
        self._others: set[int] = set()
        tree.on_new_session(self._session_expired)  # here, because the broker registers before it calls `follow`
        self._cancels = [tree.watch(path, self._note) for path in (paths.BROKER_IDS, paths.CONTROLLER, paths.FEATURE)]

    def other_brokers(self) -> list[int]:
        """Return the ids of the other registered brokers in ascending order."""
        return [one for one in self._cluster.broker_ids() if one != self._broker_id]

    def check_start(self, session_timeout_s: float, endpoints: Sequence[Endpoint], own_ports: Collection[int]) -> None:
        """Wait until no earlier session of this broker is registered in ZooKeeper, and check that this broker may join.

        `endpoints` are its advertised addresses. A registered broker whose port is one of `own_ports` is not tested for
        accepting connections: this broker would answer.

        Raises:
            StartError: The cluster has finalized features, of which this broker supports none. Another broker
                advertises one of the addresses. A broker with this broker's id accepts connections, or is still
                registered after `session_timeout_s` and a margin.
        """
        missing = self._missing_features()
        if missing is not None:
            raise StartError(f"{missing}: it cannot join")
        deadline = time.monotonic() + session_timeout_s + _EXPIRY_MARGIN_S
        is_logged = False
        while True:
            self._changed.clear()
            self._check_endpoints(endpoints)
            ours = self._cluster.broker_ids().count(self._broker_id)
            if not ours and self._cluster.controller_id() != self._broker_id:
                return
            address = self._cluster.broker_address(self._broker_id)
            if address is not None and address[1] not in own_ports and _answers(*address):
                raise StartError(self.taken(host_port(*address)))
            left = deadline - time.monotonic()
            if left < 0:
                raise StartError(
                    f"broker {self._broker_id} is still registered in ZooKeeper at {self._where}, or is still the "
                    "controller there, though nobody answers: is it alive elsewhere? Stop that one, or set another "
                    "broker.id"
                )
            if not is_logged:
                is_logged = True
                log.warning(
                    "broker %d is registered in ZooKeeper at %s and does not answer: waiting for its session to "
                    "expire, %.0f s at most",
                    self._broker_id,
                    self._where,
                    left,
                )
            self._changed.wait(_POLL_S)

    def _missing_features(self) -> str | None:
        """Return a text that names the finalized features of the cluster, None if there are none."""
        features = ", ".join(sorted(self._cluster.finalized_features()))
        if not features:
            return None
        return f"the cluster has finalized the features {features}, which this broker does not support"

    def _check_endpoints(self, endpoints: Sequence[Endpoint]) -> None:
        wanted = {(one.host, one.port) for one in endpoints}
        for broker_id in self.other_brokers():
            common = [host_port(*one) for one in self._cluster.broker_addresses(broker_id) if one in wanted]
            if common:
                raise StartError(
                    f"broker {broker_id}, registered in ZooKeeper at {self._where}, advertises {', '.join(common)} as "
                    "well: give this broker addresses of its own in advertised.listeners"
                )

    def follow(self, register: Callable[[], None], election: Election, on_failure: Callable[[str], None]) -> None:
        """Start the thread that keeps this broker registered, and has it stand for election.

        The thread calls `register` after each session expiry, as soon as there is a new session. If that raises
        NodeExists, another broker has taken the broker id. Then this broker cannot continue, and neither can it after
        the cluster has finalized a feature: the thread calls `on_failure(reason)`.
        """
        thread = Thread(self._run, "membership", (register, election, on_failure))
        self._changed.set()
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """Stop the thread that keeps this broker registered. The registration ends with the ZooKeeper session."""
        for cancel in self._cancels:
            cancel()
        self._stopped = True
        self._changed.set()
        if self._thread is not None:
            self._thread.join()

    def _note(self, event: Event) -> None:
        self._changed.set()

    def _session_expired(self) -> None:
        self._expired.set()
        self._changed.set()

    def _run(self, register: Callable[[], None], election: Election, on_failure: Callable[[str], None]) -> None:
        in_doubt = False  # a call failed, but ZooKeeper may have executed it
        while True:
            self._changed.wait()
            self._changed.clear()
            if self._stopped:
                return
            expired = self._expired.is_set()
            if expired:
                self._expired.clear()  # a session that expires from now on is handled in the next round
            try:
                if expired:
                    election.end()  # the controller's node of the expired session is gone
                    register()
                    log.info("registered again as broker %d in ZooKeeper at %s", self._broker_id, self._where)
                missing = self._missing_features()
                if missing is not None:
                    on_failure(missing)
                    return
                # The session may have expired before this broker became the controller.
                self._elect(election, in_doubt=in_doubt or expired)
                in_doubt = False
            except NodeExists:
                on_failure(f"broker id {self._broker_id} was taken by another while the session had expired")
            except Exception as error:  # without this thread the broker would never register again
                expected = isinstance(error, TreeError | KafkaError | ValueError)
                details = None if expected else error
                log.warning(
                    "the registration, or the election of a controller, failed and is tried again: %s",
                    error,
                    exc_info=details,
                )
                in_doubt = True
                if expired:
                    self._expired.set()
                time.sleep(_POLL_S)
                self._changed.set()

    def _elect(self, election: Election, *, in_doubt: bool) -> None:
        """Stand for election if there is no controller, and end this broker's term if there is another one."""
        others = set(self.other_brokers())
        for broker_id in sorted(others - self._others):
            log.info("broker %d is registered in ZooKeeper at %s", broker_id, self._where)
        for broker_id in sorted(self._others - others):
            log.info("broker %d is not registered in ZooKeeper at %s any more", broker_id, self._where)
        self._others = others
        controller = self._cluster.controller_id()
        if controller == NO_CONTROLLER:
            log.info("there is no controller: this broker stands for election")
            election.stand()
            if self._cluster.controller_id() == NO_CONTROLLER:
                # The node of the new controller was deleted before this broker read it, so no watch reports that.
                time.sleep(_POLL_S)
                self._changed.set()
        elif controller != self._broker_id:
            election.end()
        elif in_doubt:
            election.stand()

    def taken(self, address: str) -> str:
        """Return the message for a broker id that another broker has, which answers at `address`."""
        return (
            f"broker id {self._broker_id} is taken: a broker that answers at {address} is registered with it in "
            f"ZooKeeper at {self._where}; stop that one, or set another broker.id"
        )


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_S):
            return True
    except OSError:
        return False
