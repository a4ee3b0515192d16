"""A connection of its own to the coordinator of a group or of a transactional id.

Of its own, because a coordinator answers JoinGroup when all members are there, and answers come in order: on a shared
connection fetches would wait behind it (Kafka's clients keep a second connection for the same reason).
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from kafkapy.client.cluster import BACKOFF_S, Cluster
from kafkapy.client.connection import Connection
from kafkapy.client.coordinators import GROUP, Coordinators
from kafkapy.client.errors import BrokerTimedOut, ClientError, ConnectionFailed
from kafkapy.errors import Errors, KafkaError, is_retriable
from kafkapy.protocol.apis import Api

# Codes with which a broker says that somebody else is to be asked.
MOVED = (Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE)

MARKERS_S = 0.005  # the markers of the last transaction are being written: that is soon done

T = TypeVar("T")

Then = Callable[["Any | ClientError"], None]


class CoordinatorLink:
    """Requests to whoever coordinates `key`, found when it is needed. For one thread."""

    def __init__(self, cluster: Cluster, key: str, kind: int = GROUP) -> None:
        self.cluster = cluster
        self.key = key
        self._coordinators = Coordinators(cluster, kind)
        self._connection: Connection | None = None
        self._waiting: deque[Then] = deque()

    @property
    def in_flight(self) -> int:
        """Requests whose answers have not come."""
        return len(self._waiting)

    def close(self) -> None:
        """What waits for an answer gets none."""
        self._waiting.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def forget(self, reason: ClientError | None = None) -> None:
        """Looks the coordinator up again next time; who waits for an answer is told `reason`."""
        self._coordinators.forget(self.key)
        waiting, self._waiting = self._waiting, deque()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for then in waiting:
            then(reason or ConnectionFailed(f"The coordinator of {self.key!r} has moved."))

    def connection(self) -> Connection:
        """The connection, found and made without waiting; raises KafkaError or ConnectionFailed."""
        if self._connection is not None and self._connection.closed:
            self.forget()
        if self._connection is None:
            node = self._coordinators.node_now(self.key)
            cluster = self.cluster
            broker = cluster.brokers.get(node)
            if broker is None:
                self._coordinators.forget(self.key)
                raise ConnectionFailed(f"Broker {node}, which coordinates {self.key!r}, is not there at the moment.")
            try:
                self._connection = Connection(
                    broker.host, broker.port, client_id=cluster.client_id, timeout_s=cluster.timeout_s
                )
            except ClientError:
                self._coordinators.forget(self.key)
                raise
        return self._connection

    def ask(self, api: Api, request: Any, *, at_most: int | None = None) -> Any:
        """The same as `call` on the connection that the cluster has, which no join holds up."""
        node = self._coordinators.node_now(self.key)
        return self.cluster.connection(node).call(api, request, at_most=at_most)

    def send(self, api: Api, request: Any, then: Then, *, at_most: int | None = None) -> None:
        """Sends a request; `then` gets the answer, or why there is none, from `take`. Raises as `connection` does."""
        try:
            self.connection().send(api, request, at_most=at_most)
        except ConnectionFailed as error:
            self.forget(error)
            raise
        self._waiting.append(then)

    def take(self, wait_s: float = 0.0) -> bool:
        """Hands over the next answer, if one comes within `wait_s`; whether there was one."""
        if not self._waiting or self._connection is None or not self._connection.wait_for_answer(wait_s):
            return False
        try:
            _, response = self._connection.receive()
        except ClientError as error:
            self.forget(error)
            return True
        self._waiting.popleft()(response)
        return True

    def call(self, api: Api, request: Any, *, at_most: int | None = None, timeout_s: float | None = None) -> Any:
        """Sends a request and waits for its answer, handing over those of earlier requests. Raises ClientError."""
        answers: list[Any] = []
        self.send(api, request, answers.append, at_most=at_most)
        allowed = self.cluster.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + allowed
        while not answers:
            if not self.take(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                self.forget(
                    BrokerTimedOut(f"The coordinator of {self.key!r} did not answer {api.name} in {allowed:g} s.")
                )
        if isinstance(answers[0], ClientError):
            raise answers[0]
        return answers[0]

    def heals(self, error: KafkaError | ConnectionFailed) -> bool:
        """Whether trying again may help. After an error that the coordinator has moved it is looked up first."""
        if isinstance(error, ConnectionFailed):
            return True
        if error.code in MOVED:
            self.forget()
        return is_retriable(error.code)

    def retry(self, attempt: Callable[[], T], *, timeout_s: float | None = None) -> T:
        """What `attempt` returns; again while it raises what time may heal, up to the time limit. It may raise
        KafkaError with what its answer says."""
        deadline = time.monotonic() + (self.cluster.timeout_s if timeout_s is None else timeout_s)
        while True:
            try:
                return attempt()
            except (KafkaError, ConnectionFailed) as error:
                if not self.heals(error) or time.monotonic() >= deadline:
                    raise
                concurrent = isinstance(error, KafkaError) and error.code == Errors.CONCURRENT_TRANSACTIONS
            time.sleep(MARKERS_S if concurrent else BACKOFF_S)
