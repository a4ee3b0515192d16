"""Finds the coordinators of groups and transactional ids, and sends requests to these coordinators.

Source: Kafka's CoordinatorStrategy and AdminApiDriver: look up the coordinator, send the request, and repeat both if
the coordinator has moved or is still loading.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kafkapy.client.cluster import Cluster
from kafkapy.client.connection import Connection
from kafkapy.client.errors import ConnectionFailed
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.protocol.apis import FIND_COORDINATOR
from kafkapy.protocol.strings import LONGEST

GROUP, TRANSACTION = 0, 1  # Kafka's FindCoordinatorRequest.CoordinatorType

BATCHED_FROM = 4  # the first version of FindCoordinator with several keys (KIP-699)

_KIND_NAMES = {GROUP: "group", TRANSACTION: "transactional id"}
_COORDINATOR_MOVED = (Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE)

T = TypeVar("T")


class Coordinators:
    """Finds and caches the coordinators of groups (kind GROUP) or of transactional ids (kind TRANSACTION).

    A `key` is a group id or a transactional id.
    """

    def __init__(self, cluster: Cluster, kind: int) -> None:
        self._cluster = cluster
        self._kind = kind
        self._nodes: dict[str, int] = {}

    def node_of(self, key: str) -> int:
        """Return the broker id of the key's coordinator.

        While there is no coordinator, retry up to the cluster's time limit. Raise KafkaError if the coordinator was not
        found.
        """
        return self._cluster.retry(lambda: self.node_now(key))

    def node_now(self, key: str) -> int:
        """Return the broker id of the key's coordinator.

        Raise KafkaError, without retries, if the coordinator is not found.
        """
        if key not in self._nodes:
            failed = self._find([key])
            if key in failed:
                raise failed[key]
        if key not in self._nodes:
            raise self._left_out(key)
        return self._nodes[key]

    def connection(self, key: str) -> Connection:
        """Return the Cluster's shared connection to the key's coordinator."""
        return self._cluster.connection(self.node_of(key))

    def forget(self, key: str) -> None:
        """Forget the key's coordinator, so that the next use of the key looks it up again."""
        self._nodes.pop(key, None)

    def ask(self, key: str, work: Callable[[Connection], T]) -> T:
        """Call `work` with the connection to the key's coordinator, and return the result.

        While `work` raises a retriable KafkaError, it is called again, up to the cluster's time limit.
        """

        def attempt() -> T:
            try:
                return work(self.connection(key))
            except KafkaError as error:
                if error.code in _COORDINATOR_MOVED:
                    self.forget(key)
                raise
            except ConnectionFailed:
                self.forget(key)  # another broker may take over before the next attempt
                raise

        return self._cluster.retry(attempt)

    def ask_each(
        self, keys: Iterable[str], work: Callable[[Connection, list[str]], dict[str, T | KafkaError]]
    ) -> dict[str, T | KafkaError]:
        """Return the result or the error of each key, in the order of the keys.

        `work` is called once for each coordinator, with the connection to the coordinator and the list of the keys that
        this coordinator is responsible for. `work` returns a result or a KafkaError for each of these keys. Keys with a
        retriable error are passed to `work` again, up to the cluster's time limit.
        """
        wanted = list(dict.fromkeys(keys))
        answers: dict[str, T | KafkaError] = {}

        def attempt() -> None:
            left = [key for key in wanted if key not in answers or _is_retriable(answers[key])]
            answers.update(self._find([key for key in left if key not in self._nodes]))
            for node, its_keys in self._by_node(left).items():
                try:
                    found = work(self._cluster.connection(node), its_keys)
                except ConnectionFailed:
                    for key in its_keys:  # another broker may take over before the next call
                        self.forget(key)
                    raise
                for key, answer in found.items():
                    answers[key] = answer
                    if isinstance(answer, KafkaError) and answer.code in _COORDINATOR_MOVED:
                        self.forget(key)
            for answer in answers.values():
                if isinstance(answer, KafkaError) and _is_retriable(answer):
                    raise answer

        try:
            self._cluster.retry(attempt)
        except KafkaError:
            pass  # the caller gets the error in the result
        return {key: answers[key] if key in answers else self._left_out(key) for key in wanted}

    def _left_out(self, key: str) -> KafkaError:
        """Return the KafkaError for a key that is missing in the coordinator's response."""
        text = f"{_KIND_NAMES[self._kind]} {key!r}: the coordinator's response leaves it out"
        return KafkaError(Errors.UNKNOWN_SERVER_ERROR, text)

    def _invalid(self, key: str) -> KafkaError | None:
        """Return a KafkaError if the key cannot be encoded in a request, or None if it can."""
        code = Errors.INVALID_GROUP_ID if self._kind == GROUP else Errors.INVALID_REQUEST
        try:
            if len(key.encode()) <= LONGEST:
                return None
            return KafkaError(code, f"{_KIND_NAMES[self._kind]} {key[:20]!r}...: it is longer than {LONGEST} bytes")
        except UnicodeEncodeError:
            return KafkaError(code, f"{_KIND_NAMES[self._kind]} {key[:20]!r}: it is not in UTF-8")

    def _by_node(self, keys: Iterable[str]) -> dict[int, list[str]]:
        """Return those keys whose coordinator is known, grouped by the coordinator's broker id."""
        nodes: dict[int, list[str]] = {}
        for key in keys:
            if key in self._nodes:
                nodes.setdefault(self._nodes[key], []).append(key)
        return nodes

    def _find(self, keys: list[str]) -> dict[str, KafkaError]:
        """Look up and cache the coordinators of the keys.

        Return a KafkaError for each key whose coordinator was not found.
        """
        failed = {key: error for key in keys if (error := self._invalid(key))}
        keys = [key for key in keys if key not in failed]
        if not keys:
            return failed
        for key, answer in self._look_up(keys):
            if answer.error_code:
                reason = answer.error_message or message_of(answer.error_code)
                failed[key] = KafkaError(answer.error_code, f"{_KIND_NAMES[self._kind]} {key!r}: {reason}")
            else:
                self._nodes[key] = answer.node_id
        if not set(self._nodes.values()) <= set(self._cluster.brokers):
            self._cluster.refresh([])
        return failed

    def _look_up(self, keys: list[str]) -> list[tuple[str, Any]]:
        """Send FindCoordinator for the keys. Return each key with its part of the response.

        A part of the response has an error code, and if that is NONE, the coordinator's broker id.
        """
        shape = FIND_COORDINATOR.Request
        connection = self._cluster.any_connection()
        if connection.version_of(FIND_COORDINATOR) >= BATCHED_FROM:
            response = connection.call(FIND_COORDINATOR, shape(key_type=self._kind, coordinator_keys=keys))
            return [(answer.key, answer) for answer in response.coordinators]
        return [(key, connection.call(FIND_COORDINATOR, shape(key=key, key_type=self._kind))) for key in keys]


def _is_retriable(answer: object) -> bool:
    return isinstance(answer, KafkaError) and is_retriable(answer.code)
