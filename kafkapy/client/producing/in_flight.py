"""Requests that were sent to brokers and have no response yet."""

import select
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from kafkapy.client.connection import Connection, SentRequest
from kafkapy.client.errors import BrokerTimedOut, ClientError, ConnectionFailed

T = TypeVar("T")


class _InFlightRequest(NamedTuple):
    """A request, the connection that it was sent on, and the caller's context."""

    connection: Connection
    waiting: SentRequest
    context: Any
    deadline: float  # a time.monotonic() time

    @property
    def is_lost(self) -> bool:
        """Return True if no response will come: the connection broke, or a `call` on it dropped the response."""
        return self.connection.closed or not self.connection.in_flight


class InFlightRequests(Generic[T]):
    """The in-flight requests of each broker in sending order.

    Each request has a context: an object of the caller's, returned together with the response.
    """

    def __init__(self) -> None:
        self._by_node: dict[int, deque[_InFlightRequest]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_node)

    def count(self, node: int) -> int:
        """Return the number of in-flight requests to a broker."""
        return len(self._by_node.get(node, ()))

    def add(self, node: int, connection: Connection, waiting: SentRequest, context: T, timeout_s: float) -> None:
        """Add the request that `connection.send` has returned. It times out after `timeout_s`."""
        request = _InFlightRequest(connection, waiting, context, time.monotonic() + timeout_s)
        self._by_node.setdefault(node, deque()).append(request)

    def take_responses(self, wait_s: float) -> Iterator[tuple[T, Any | ClientError]]:
        """Yield (context, response) for at most one response of each broker; an error in place of a missing response.

        Waits up to `wait_s` for the first response. After an error the request may or may not have been carried out.
        """
        poll = select.poll()  # select.select takes no descriptor above 1023
        oldest = {node: requests[0] for node, requests in self._by_node.items()}
        now = time.monotonic()
        overdue = {node for node, request in oldest.items() if request.is_lost or request.deadline <= now}
        for node, request in oldest.items():
            if node not in overdue:
                poll.register(request.connection.fileno(), select.POLLIN)
        wait_s = 0.0 if overdue else min([wait_s, *(request.deadline - now for request in oldest.values())])
        answered = {fd for fd, _ in poll.poll(wait_s * 1000)}
        for node, request in oldest.items():
            if node in overdue or request.connection.fileno() in answered:
                yield from self._take_responses(node)

    def _take_responses(self, node: int) -> list[tuple[T, Any | ClientError]]:
        """Receive a broker's next response. A broken connection fails all requests sent on it."""
        requests = self._by_node[node]
        connection = requests[0].connection
        try:
            if requests[0].is_lost:
                raise ConnectionFailed(f"The connection to {connection.address} broke.")
            waiting, response = connection.receive(max(0.0, requests[0].deadline - time.monotonic()))
        except ClientError as error:
            return [(request.context, error) for request in self._without(node, connection)]
        taken: list[tuple[T, Any | ClientError]] = []
        while requests[0].waiting is not waiting:
            dropped = BrokerTimedOut(f"The answer of {connection.address} was dropped by another call.")
            taken.append((requests.popleft().context, dropped))
        taken.append((requests.popleft().context, response))
        if not requests:
            del self._by_node[node]
        return taken

    def _without(self, node: int, connection: Connection) -> list[_InFlightRequest]:
        """Remove and return the requests to `node` that were sent on a connection which failed."""
        requests = self._by_node.pop(node)
        left = deque(request for request in requests if request.connection is not connection)
        if left:
            self._by_node[node] = left
        return [request for request in requests if request.connection is connection]
