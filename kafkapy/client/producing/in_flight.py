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
    """A request without a response yet: its connection, the caller's context, and the time at which it times out."""

    connection: Connection
    waiting: SentRequest
    context: Any
    deadline: float  # a time.monotonic() time

    @property
    def is_lost(self) -> bool:
        """True if no response will come, because the connection broke or a `call` on it has dropped the response."""
        return self.connection.closed or not self.connection.in_flight


class InFlightRequests(Generic[T]):
    """The requests that have no response yet, for each broker in the order in which they were sent.

    Each request has a context, which is any object of the caller's. It is returned together with the response.
    """

    def __init__(self) -> None:
        self._by_node: dict[int, deque[_InFlightRequest]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_node)

    def count(self, node: int) -> int:
        """Return the number of requests to the broker with id `node` that have no response yet."""
        return len(self._by_node.get(node, ()))

    def add(self, node: int, connection: Connection, waiting: SentRequest, context: T, timeout_s: float) -> None:
        """Add `waiting`, a request that `connection.send` has returned. The request times out after `timeout_s`."""
        request = _InFlightRequest(connection, waiting, context, time.monotonic() + timeout_s)
        self._by_node.setdefault(node, deque()).append(request)

    def take_responses(self, wait_s: float) -> Iterator[tuple[T, Any | ClientError]]:
        """Receive at most one response from each broker. Yield (context, response) for each request that is finished.

        Wait up to `wait_s` for the first response. If a request's response cannot come any more or is overdue, the pair
        has a ClientError in place of the response; the broker may or may not have carried out that request.
        """
        poll = select.poll()  # select.select takes no descriptor above 1023
        oldest = {node: requests[0] for node, requests in self._by_node.items()}
        now = time.monotonic()
        overdue = {node for node, request in oldest.items() if request.is_lost or request.deadline <= now}
        received = {node for node, request in oldest.items() if request.connection.has_received}
        for node, request in oldest.items():
            if node not in overdue:
                poll.register(request.connection.fileno(), select.POLLIN)
        wait_s = 0.0 if overdue or received else min([wait_s, *(request.deadline - now for request in oldest.values())])
        answered = {fd for fd, _ in poll.poll(wait_s * 1000)}
        for node, request in oldest.items():
            connection = request.connection
            if (
                node in overdue
                or node in received
                or (connection.fileno() in answered and connection.begins_to_receive())
            ):
                yield from self._take_responses(node)

    def _take_responses(self, node: int) -> list[tuple[T, Any | ClientError]]:
        """Receive the next response from the broker with id `node`, and forget the requests that are finished then.

        Return a list of pairs. The last pair is (context, response) of the request that was answered. Before it there
        is a pair (context, BrokerTimedOut) for each earlier request whose response was lost, because a
        `Connection.call` on the same connection drops the responses to earlier requests. If the connection is broken or
        the response overdue, the list has instead a pair (context, error) for every request sent on that connection.
        """
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
        """Remove and return the requests that were sent to the broker with id `node` on a connection that failed."""
        requests = self._by_node.pop(node)
        left = deque(request for request in requests if request.connection is not connection)
        if left:
            self._by_node[node] = left
        return [request for request in requests if request.connection is connection]
