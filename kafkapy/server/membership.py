"""This broker's registration in ZooKeeper, and its election as controller.

When the broker starts, no other broker may be registered. The registration of a broker that died lasts until its
session expires, so the start waits for that. If a registered broker accepts connections, the start is refused. If the
session of this broker expires while it runs, this broker registers again, with a new controller epoch.

Source: KafkaZkClient.registerBroker, KafkaController.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Collection

from kafkapy.errors import KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.cluster import NO_CONTROLLER, ClusterRegistry
from kafkapy.metadata.tree import Event, NodeExists, Tree, TreeError
from kafkapy.runtime.addresses import host_port
from kafkapy.runtime.threads import Thread
from kafkapy.server.metadata_store import StartError

log = logging.getLogger("kafkapy.server.membership")

# A dead broker's session time-out may be longer than this broker's, and ZooKeeper checks sessions only at intervals.
_EXPIRY_MARGIN_S = 20.0
_POLL_S = 0.5
_CONNECT_S = 2.0


class Membership:
    """Keeps this broker registered in ZooKeeper.

    Call `wait_for_other_brokers` before the registration, `follow` after it, and `stop` at the end.
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
        self._cancels = [tree.watch(path, self._note) for path in (paths.BROKER_IDS, paths.CONTROLLER)]

    def wait_for_other_brokers(self, session_timeout_s: float, own_ports: Collection[int]) -> None:
        """Wait until no broker and no controller is registered in ZooKeeper.

        A registered broker whose port is one of `own_ports` is not tested for accepting connections: this broker would
        answer.

        Raises:
            StartError: A registered broker accepts connections, or a registration is still there after
                `session_timeout_s` and a margin.
        """
        deadline = time.monotonic() + session_timeout_s + _EXPIRY_MARGIN_S
        is_logged = False
        while True:
            self._changed.clear()
            present = self._cluster.broker_ids()
            if not present and self._cluster.controller_id() == NO_CONTROLLER:
                return
            for broker_id in present:
                address = self._cluster.broker_address(broker_id)
                if address is not None and address[1] not in own_ports and _answers(*address):
                    raise StartError(self._taken(broker_id, host_port(*address)))
            left = deadline - time.monotonic()
            if left < 0:
                raise StartError(
                    f"brokers {present} are still registered in ZooKeeper at {self._where}, or a controller is, though "
                    "nobody answers there: are they alive elsewhere? This broker must be the only one of its cluster"
                )
            if not is_logged:
                is_logged = True
                log.warning(
                    "brokers %s are registered in ZooKeeper at %s and do not answer: waiting for their sessions to "
                    "expire, %.0f s at most",
                    present,
                    self._where,
                    left,
                )
            self._changed.wait(_POLL_S)

    def follow(
        self, register: Callable[[], None], elect: Callable[[], None], on_failure: Callable[[str], None]
    ) -> None:
        """Start the thread that keeps this broker registered.

        The thread calls `register` after each session expiry, as soon as there is a new session. It calls `elect` when
        there is no controller: operators delete the controller's node to force an election. If `register` raises
        NodeExists, another broker has taken the broker id. This broker cannot continue then, and the thread calls
        `on_failure(reason)`.
        """
        self._tree.on_new_session(self._session_expired)
        work = (register, elect, on_failure)
        thread = Thread(self._run, "membership", work)
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

    def _run(self, register: Callable[[], None], elect: Callable[[], None], on_failure: Callable[[str], None]) -> None:
        others: set[int] = set()
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
                    register()
                    log.info("registered again as broker %d in ZooKeeper at %s", self._broker_id, self._where)
                elif in_doubt or not self._tree.exists(paths.CONTROLLER):
                    elect()
                    log.info("there was no controller any more: this broker has stood for election")
                in_doubt = False
            except NodeExists:
                on_failure(f"broker id {self._broker_id} was taken by another while the session had expired")
            except (TreeError, KafkaError, ValueError) as error:
                log.warning("not registered yet, or not the controller: %s", error)
                in_doubt = True
                if expired:
                    self._expired.set()
                time.sleep(_POLL_S)
                self._changed.set()
            now = set(self._cluster.broker_ids()) - {self._broker_id}
            for broker_id in sorted(now - others):
                log.error("%s", self._taken(broker_id, "an address of its own"))
            others = now

    def _taken(self, broker_id: int, address: str) -> str:
        if broker_id == self._broker_id:
            return (
                f"broker id {broker_id} is taken: a broker that answers at {address} is registered with it in "
                f"ZooKeeper at {self._where}; stop that one, or set another broker.id"
            )
        return (
            f"broker {broker_id} at {address} is registered in ZooKeeper at {self._where}: kafkapy cannot share a "
            "cluster with other brokers yet; stop that one, or name a chroot of its own in zookeeper.connect"
        )


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_S):
            return True
    except OSError:
        return False
