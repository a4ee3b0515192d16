"""The registry of Kafka 0.7 in ZooKeeper, by which its clients find brokers and partitions.

    /brokers/ids/ID         creator:host:port; the creator is the host and the time of the registration
    /brokers/topics/T/ID    the number of partitions of topic T on this broker

All of these nodes are ephemeral: they end with the session, and are created again after a session expiry. Source:
kafka.server.KafkaZooKeeper of Kafka 0.7.2. This module imports kazoo.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from kafkapy.metadata.zookeeper.client import ZooKeeperError, ZooKeeperSettings, close, connected, named
from kafkapy.runtime.clock import Clock
from kafkapy.runtime.threads import Thread
from kafkapy.server.metadata_store import StartError

log = logging.getLogger("kafkapy.server.kafka07")

IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
# Nodes that only Kafka 0.8 and later, and kafkapy, create.
LATER_NODES = ("/controller_epoch", "/cluster/id", "/config/topics", "/controller")
RETRY_S = 0.5
LONGEST_STOP_S = 5.0


class Registry07:
    """This broker's registration. `start` makes it, `add_topic` adds to it, `close` ends it."""

    def __init__(
        self,
        settings: ZooKeeperSettings,
        broker_id: int,
        address: tuple[str, int],
        count_of: Callable[[str], int],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._id_path = f"{IDS}/{broker_id}"
        self._broker_id = broker_id
        self._address = address
        self._count_of = count_of
        self._clock = clock
        self._client: Any = None
        self._topics: set[str] = set()
        self._registered: set[str] = set()  # topics whose nodes were created in the current session
        self._wake = threading.Event()
        self._expired = False
        self._stopped = False
        self._thread: Thread | None = None

    def start(self, topics: Iterable[str]) -> None:
        """Register the broker, then its topics. Raises StartError if the chroot belongs to a later Kafka, or another
        broker has the id, and ZooKeeperError."""
        self._topics.update(topics)
        self._client = connected(self._settings, self._settings.servers + self._settings.chroot, self._on_state)
        try:
            self._client.ensure_path("/")
            self._check_chroot()
            self._register_id()
            self._register_topics()
        except NodeExistsError:
            raise StartError(
                f"a broker is registered as {self._id_path} in ZooKeeper at {self._settings.connect}: stop that one, "
                "or set another brokerid. If it was this broker, its session expires after zk.sessiontimeout.ms"
            ) from None
        except (KazooException, KazooTimeoutError) as error:
            raise ZooKeeperError(f"the registration in ZooKeeper failed: {named(error)}") from None
        log.info("registered as %s in ZooKeeper at %s", self._id_path, self._settings.connect)
        thread = Thread(self._run, "registry-07")
        thread.start()
        self._thread = thread

    def add_topic(self, topic: str) -> None:
        """Have the registry's thread register a new topic. Does not wait."""
        self._topics.add(topic)
        self._wake.set()

    def close(self) -> None:
        """End the session, and with it the registration. If ZooKeeper cannot be reached, this takes a few seconds."""
        self._stopped = True
        self._wake.set()
        if self._client is not None:
            close(self._client)  # before the join: the thread may be in a call that waits until ZooKeeper is back
        if self._thread is not None:
            # Join with a time-out, because of a race in kazoo: a call checks the state; then the session ends, and
            # kazoo fails the calls in its queue; then the call enters the queue, and is never answered.
            self._thread.join(LONGEST_STOP_S)
        self._client = None

    def _check_chroot(self) -> None:
        later = next((path for path in LATER_NODES if self._client.exists(path) is not None), None)
        for name in () if later else self._children(IDS):
            try:
                data, _ = self._client.get(f"{IDS}/{name}")
            except NoNodeError:
                continue
            if data[:1] == b"{":
                later = f"{IDS}/{name}"
        if later is not None:
            raise StartError(
                f"zk.connect is {self._settings.connect}, where {later} belongs to Kafka 0.8 or later: the registry of "
                "0.7 needs a chroot of its own, such as HOST:2181/kafka-0.7"
            )

    def _children(self, path: str) -> list[str]:
        try:
            names: list[str] = self._client.get_children(path)
        except NoNodeError:
            return []
        return names

    def _register_id(self) -> None:
        host, port = self._address
        self._create(self._id_path, f"{host}-{self._clock.time_ms()}:{host}:{port}")

    def _register_topics(self) -> None:
        for topic in sorted(self._topics - self._registered):
            self._create(f"{TOPICS}/{topic}/{self._broker_id}", str(self._count_of(topic)))
            self._registered.add(topic)

    def _create(self, path: str, data: str) -> None:
        """Create an ephemeral node. Raises NodeExistsError if another session has created it."""
        try:
            self._client.create(path, data.encode(), ephemeral=True, makepath=True)
        except NodeExistsError:
            # Perhaps this session has created it, and the response to an earlier attempt was lost.
            found = self._client.exists(path)
            session = self._client.client_id
            if found is None or session is None or found.ephemeralOwner != session[0]:
                raise

    def _on_state(self, state: str) -> None:
        if state == KazooState.LOST:
            self._expired = True
        elif state == KazooState.CONNECTED:
            self._wake.set()

    def _run(self) -> None:
        complained = False
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._stopped:
                return
            try:
                if self._expired:
                    self._expired = False
                    try:
                        self._registered.clear()
                        self._register_id()
                        log.info("registered again as %s after a session expiry", self._id_path)
                    except BaseException:
                        self._expired = True
                        raise
                self._register_topics()
                complained = False
            except Exception as error:  # without this thread the broker would never register again
                if not complained and not self._stopped:
                    expected = isinstance(error, KazooException | KazooTimeoutError)
                    log.warning(
                        "the registration as %s failed and will be retried: %s",
                        self._id_path,
                        named(error),
                        exc_info=None if expected else error,
                    )
                complained = True
                time.sleep(RETRY_S)
                self._wake.set()
