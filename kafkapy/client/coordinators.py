"""Which broker coordinates a group or a transactional id, and requests that go there.

Source: Kafka's CoordinatorStrategy and AdminApiDriver: look up, ask, and where the coordinator has moved or is still
loading, look up and ask again.
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

BATCHED_FROM = 4  # the first version that takes several keys (KIP-699)

_WORDS = {GROUP: "group", TRANSACTION: "transactional id"}
_NOT_THERE = (Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE)

T = TypeVar("T")


class Coordinators:
    """The coordinators of groups (kind GROUP) or of transactional ids (TRANSACTION), remembered once found."""

    def __init__(self, cluster: Cluster, kind: int) -> None:
        self._cluster = cluster
        self._kind = kind
        self._nodes: dict[str, int] = {}

    def node_of(self, key: str) -> int:
        """The id of the coordinating broker, waited for while there is none; raises KafkaError."""
        return self._cluster.retry(lambda: self.node_now(key))

    def node_now(self, key: str) -> int:
        """The same without waiting."""
        if key not in self._nodes:
            failed = self._find([key])
            if key in failed:
                raise failed[key]
        if key not in self._nodes:
            raise self._unanswered(key)
        return self._nodes[key]

    def connection(self, key: str) -> Connection:
        """The connection to the coordinating broker."""
        return self._cluster.connection(self.node_of(key))

    def forget(self, key: str) -> None:
        """It is looked up again when it is needed next."""
        self._nodes.pop(key, None)

    def ask(self, key: str, work: Callable[[Connection], T]) -> T:
        """What `work` returns at the coordinator of `key`; again while it raises KafkaErrors that time may heal."""

        def attempt() -> T:
            try:
                return work(self.connection(key))
            except KafkaError as error:
                if error.code in _NOT_THERE:
                    self.forget(key)
                raise
            except ConnectionFailed:
                self.forget(key)  # by the next time another may have taken over from it
                raise

        return self._cluster.retry(attempt)

    def ask_each(
        self, keys: Iterable[str], work: Callable[[Connection, list[str]], dict[str, T | KafkaError]]
    ) -> dict[str, T | KafkaError]:
        """An answer or an error of each key, in their order.

        `work` asks one broker for the keys that it coordinates. Keys whose error time may heal are asked for again, up
        to the cluster's time limit.
        """
        wanted = list(dict.fromkeys(keys))
        answers: dict[str, T | KafkaError] = {}

        def attempt() -> None:
            left = [key for key in wanted if key not in answers or _may_heal(answers[key])]
            answers.update(self._find([key for key in left if key not in self._nodes]))
            for node, its_keys in self._by_node(left).items():
                for key, answer in work(self._cluster.connection(node), its_keys).items():
                    answers[key] = answer
                    if isinstance(answer, KafkaError) and answer.code in _NOT_THERE:
                        self.forget(key)
            for answer in answers.values():
                if isinstance(answer, KafkaError) and _may_heal(answer):
                    raise answer

        try:
            self._cluster.retry(attempt)
        except KafkaError:
            pass  # it is the answer of its key
        return {key: answers[key] if key in answers else self._unanswered(key) for key in wanted}

    def _unanswered(self, key: str) -> KafkaError:
        return KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"{_WORDS[self._kind]} {key!r}: its coordinator left it out")

    def _unsayable(self, key: str) -> KafkaError | None:
        """Why no request can carry the key."""
        code = Errors.INVALID_GROUP_ID if self._kind == GROUP else Errors.INVALID_REQUEST
        try:
            if len(key.encode()) <= LONGEST:
                return None
            return KafkaError(code, f"{_WORDS[self._kind]} {key[:20]!r}...: it is longer than {LONGEST} bytes")
        except UnicodeEncodeError:
            return KafkaError(code, f"{_WORDS[self._kind]} {key[:20]!r}: it is not in UTF-8")

    def _by_node(self, keys: Iterable[str]) -> dict[int, list[str]]:
        nodes: dict[int, list[str]] = {}
        for key in keys:
            if key in self._nodes:
                nodes.setdefault(self._nodes[key], []).append(key)
        return nodes

    def _find(self, keys: list[str]) -> dict[str, KafkaError]:
        """Looks the keys up, and returns why those are not found that are not."""
        failed = {key: error for key in keys if (error := self._unsayable(key))}
        keys = [key for key in keys if key not in failed]
        if not keys:
            return failed
        for key, answer in self._look_up(keys):
            if answer.error_code:
                said = answer.error_message or message_of(answer.error_code)
                failed[key] = KafkaError(answer.error_code, f"{_WORDS[self._kind]} {key!r}: {said}")
            else:
                self._nodes[key] = answer.node_id
        if not set(self._nodes.values()) <= set(self._cluster.brokers):
            self._cluster.refresh([])
        return failed

    def _look_up(self, keys: list[str]) -> list[tuple[str, Any]]:
        shape = FIND_COORDINATOR.Request
        connection = self._cluster.any_connection()
        if connection.version_of(FIND_COORDINATOR) >= BATCHED_FROM:
            response = connection.call(FIND_COORDINATOR, shape(key_type=self._kind, coordinator_keys=keys))
            return [(answer.key, answer) for answer in response.coordinators]
        return [(key, connection.call(FIND_COORDINATOR, shape(key=key, key_type=self._kind))) for key in keys]


def _may_heal(answer: object) -> bool:
    return isinstance(answer, KafkaError) and is_retriable(answer.code)
