"""Requests that were sent to brokers and whose answers are to come."""

import select
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from kafkapy.client.connection import Connection, Waiting
from kafkapy.client.errors import BrokerTimedOut, ClientError, ConnectionFailed

T = TypeVar("T")


class _Flight(NamedTuple):
    connection: Connection
    waiting: Waiting
    cargo: Any
    deadline: float  # of time.monotonic()

    @property
    def is_lost(self) -> bool:
        """Whether no answer will come: the connection broke, or somebody else's call on it has dropped the answer."""
        return self.connection.closed or not self.connection.in_flight


class Flights(Generic[T]):
    """By broker, in the order in which they were sent, each with its cargo: what the caller wants back with the
    answer."""

    def __init__(self) -> None:
        self._by_node: dict[int, deque[_Flight]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_node)

    def count(self, node: int) -> int:
        return len(self._by_node.get(node, ()))

    def add(self, node: int, connection: Connection, waiting: Waiting, cargo: T, timeout_s: float) -> None:
        """What `connection.send` has just returned."""
        flight = _Flight(connection, waiting, cargo, time.monotonic() + timeout_s)
        self._by_node.setdefault(node, deque()).append(flight)

    def land(self, wait_s: float) -> Iterator[tuple[T, Any | ClientError]]:
        """Cargoes with their answers, one from each broker that has one, or with the reason why there will be none.

        Waits up to `wait_s` for the first. A reason says nothing of whether the request was carried out.
        """
        poll = select.poll()  # select.select takes no descriptor above 1023
        oldest = {node: flights[0] for node, flights in self._by_node.items()}
        now = time.monotonic()
        overdue = {node for node, flight in oldest.items() if flight.is_lost or flight.deadline <= now}
        for node, flight in oldest.items():
            if node not in overdue:
                poll.register(flight.connection.fileno(), select.POLLIN)
        wait_s = 0.0 if overdue else min([wait_s, *(flight.deadline - now for flight in oldest.values())])
        answered = {fd for fd, _ in poll.poll(wait_s * 1000)}
        for node, flight in oldest.items():
            if node in overdue or flight.connection.fileno() in answered:
                yield from self._land(node)

    def _land(self, node: int) -> list[tuple[T, Any | ClientError]]:
        flights = self._by_node[node]
        connection = flights[0].connection
        try:
            if flights[0].is_lost:
                raise ConnectionFailed(f"The connection to {connection.address} broke.")
            waiting, response = connection.receive(max(0.0, flights[0].deadline - time.monotonic()))
        except ClientError as error:
            return [(flight.cargo, error) for flight in self._without(node, connection)]
        landed: list[tuple[T, Any | ClientError]] = []
        while flights[0].waiting is not waiting:
            dropped = BrokerTimedOut(f"The answer of {connection.address} was dropped by another call.")
            landed.append((flights.popleft().cargo, dropped))
        landed.append((flights.popleft().cargo, response))
        if not flights:
            del self._by_node[node]
        return landed

    def _without(self, node: int, connection: Connection) -> list[_Flight]:
        """Takes out those on a connection that is of no use any more."""
        flights = self._by_node.pop(node)
        left = deque(flight for flight in flights if flight.connection is not connection)
        if left:
            self._by_node[node] = left
        return [flight for flight in flights if flight.connection is connection]
