"""A separate connection to the coordinator of a group or of a transactional id.

The responses on a connection come in the order of the requests, and the response to JoinGroup comes only when all
members have joined. On a connection shared with fetches, the fetches would have to wait for it. Kafka's clients keep a
second connection for the same reason.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from kafkapy.client.cluster import BACKOFF_S, Cluster
from kafkapy.client.connection import Connection
from kafkapy.client.errors import BrokerTimedOut, ClientError, ConnectionFailed
from kafkapy.client.groups.coordinators import GROUP, Coordinators
from kafkapy.errors import Errors, KafkaError, is_retriable
from kafkapy.protocol.apis import Api

# Error codes after which the coordinator has to be looked up again.
MOVED = (Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE)

MARKERS_S = 0.005  # retry interval while the markers of the last transaction are being written, which takes a few ms

T = TypeVar("T")

Callback = Callable[["Any | ClientError"], None]


class CoordinatorLink:
    """Sends requests to the coordinator of the group or transactional id `key` on a connection of its own.

    The coordinator is looked up when it is needed and not known. For use in one thread.
    """

    def __init__(self, cluster: Cluster, key: str, kind: int = GROUP) -> None:
        self.cluster = cluster
        self.key = key
        self._coordinators = Coordinators(cluster, kind)
        self._connection: Connection | None = None
        self._waiting: deque[Callback] = deque()

    @property
    def in_flight(self) -> int:
        """The number of requests on this connection that have no response yet."""
        return len(self._waiting)

    def close(self) -> None:
        """Close the connection. The callbacks of requests that have no response yet are not called."""
        self._waiting.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def forget(self, reason: ClientError | None = None) -> None:
        """Close the connection and forget the coordinator, so that the next request looks it up again.

        The callbacks of requests that have no response yet are called with `reason`, or else with a ConnectionFailed.
        """
        self._coordinators.forget(self.key)
        waiting, self._waiting = self._waiting, deque()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for callback in waiting:
            callback(reason or ConnectionFailed(f"The coordinator of {self.key!r} has moved."))

    def connection(self) -> Connection:
        """Return the connection to the coordinator. Look up the coordinator and connect if necessary, without retries.

        Raise KafkaError if the coordinator cannot be looked up, or ConnectionFailed if it cannot be reached.
        """
        if self._connection is not None and not self._connection.usable:
            self.forget()
        if self._connection is None:
            node = self._coordinators.node_now(self.key)
            cluster = self.cluster
            broker = cluster.brokers.get(node)
            if broker is None:
                self._coordinators.forget(self.key)
                raise ConnectionFailed(f"Broker {node}, which coordinates {self.key!r}, is not there at the moment.")
            try:
                self._connection = cluster.connect_to(broker.host, broker.port)
            except ClientError:
                self._coordinators.forget(self.key)
                raise
        return self._connection

    def ask(self, api: Api, request: Any, *, at_most: int | None = None) -> Any:
        """Send a request to the coordinator and return the response.

        The request goes over the Cluster's shared connection, so an outstanding JoinGroup does not delay the response.
        Raise KafkaError or ClientError if no response comes.
        """
        node = self._coordinators.node_now(self.key)
        return self.cluster.connection(node).call(api, request, at_most=at_most)

    def send(self, api: Api, request: Any, callback: Callback, *, at_most: int | None = None) -> None:
        """Send a request to the coordinator. `take` will pass the response, or a ClientError, to `callback`.

        `at_most` is the highest version to use. Raise KafkaError or ConnectionFailed if the request cannot be sent.
        """
        try:
            self.connection().send(api, request, at_most=at_most)
        except ConnectionFailed as error:
            self.forget(error)
            raise
        self._waiting.append(callback)

    def take(self, wait_s: float = 0.0) -> bool:
        """Receive the next response, if it arrives within `wait_s`, and pass it to its request's callback.

        Return False if no response arrived. If the connection breaks, return True after the callbacks of all
        outstanding requests were called with the error.
        """
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
        """Send a request to the coordinator and return its response.

        The responses to earlier requests come first and are passed to their callbacks. Raise KafkaError or
        ConnectionFailed if the request cannot be sent, and ClientError if no response comes within `timeout_s` (None:
        the cluster's time limit).
        """
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

    def may_retry(self, error: KafkaError | ConnectionFailed) -> bool:
        """Return True if repeating the request that failed with `error` may help.

        If the error means that the coordinator has moved, forget the coordinator, so that the repeated request looks it
        up.
        """
        if isinstance(error, ConnectionFailed):
            return True
        if error.code in MOVED:
            self.forget()
        return is_retriable(error.code)

    def retry(self, attempt: Callable[[], T], *, timeout_s: float | None = None) -> T:
        """Call `attempt` and return its result. Call `attempt` again while it raises a retriable error.

        The last error is raised after `timeout_s` (None: the cluster's time limit).
        """
        deadline = time.monotonic() + (self.cluster.timeout_s if timeout_s is None else timeout_s)
        while True:
            try:
                return attempt()
            except (KafkaError, ConnectionFailed) as error:
                if not self.may_retry(error) or time.monotonic() >= deadline:
                    raise
                concurrent = isinstance(error, KafkaError) and error.code == Errors.CONCURRENT_TRANSACTIONS
            time.sleep(MARKERS_S if concurrent else BACKOFF_S)
