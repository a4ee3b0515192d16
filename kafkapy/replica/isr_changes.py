"""Asks the controller to change the ISRs of partitions that this broker leads.

One AlterPartition request is in flight at a time, with the changes of all partitions that wait. A failure of the whole
request is retried until the controller answers; the error of a single partition is passed to the caller. Source:
kafka.server.DefaultAlterPartitionManager, KIP-497.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkapy.errors import Errors, KafkaError, name_of
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.protocol.apis import ALTER_PARTITION

if TYPE_CHECKING:
    from kafkapy.replica.links import LinkError
    from kafkapy.runtime.timer import Timer

log = logging.getLogger("kafkapy.replica.isr")

RETRY_S = 0.05
_BY_NAME = (0, 1)  # versions with topic names; the later ones have topic ids
_BY_ID = (2, 3)


class IsrChange(NamedTuple):
    """A proposed new ISR of a partition. `partition_epoch` is the latest partition epoch that the leader knows."""

    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[int]


class WrittenIsr(NamedTuple):
    """The leader and ISR of a partition after the controller has carried out an IsrChange."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[int]


# Called once, on any thread and without a lock, with the written state or the controller's error for the partition.
Done = Callable[["WrittenIsr | KafkaError"], object]


class Controller(Protocol):
    """The way to the controller: a Link, or on the controller itself an OwnController."""

    def ask(
        self, api: Any, message: Any, done: Any, *, timeout_s: float, versions: tuple[int, int] | None = None
    ) -> None: ...


class IsrChanges:
    """The ISR changes of this broker that wait for the controller's answer. `submit` may be called on any thread."""

    def __init__(
        self,
        controller: Callable[[], Controller | None],
        broker_id: int,
        broker_epoch: Callable[[], int],
        timer: Timer,
        timeout_s: float,
    ) -> None:
        """`controller()` returns the Link to the present controller, or an OwnController on the controller itself;
        None if there is no controller. `broker_epoch()` returns the epoch of this broker's registration, which changes
        when the broker registers again.
        """
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._timer = timer
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, int], tuple[IsrChange, Done]] = {}
        self._in_flight = False
        self._trouble = ""  # why the last request failed, empty after a response
        self._stopped = False

    def submit(self, change: IsrChange, done: Done) -> bool:
        """Send a change to the controller, and call `done` once with the result, a WrittenIsr or a KafkaError.

        Return False, and never call `done`, if another change of the same partition is waiting already.
        """
        with self._lock:
            key = change.topic, change.partition
            if key in self._waiting:
                return False
            self._waiting[key] = change, done
        self._send()
        return True

    def stop(self) -> None:
        """Send no more requests. The callbacks of changes that still wait are not called."""
        with self._lock:
            self._stopped = True
            self._waiting.clear()

    def _send(self) -> None:
        """Send all changes that wait in one AlterPartition request, unless another request is in flight."""
        with self._lock:
            if self._in_flight or not self._waiting or self._stopped:
                return
            self._in_flight = True
            sent = [change for change, _ in self._waiting.values()]
        link = self._controller()
        if link is None:
            self._retry("there is no controller")
            return
        versions = _BY_NAME if any(one.topic_id == ZERO_ID for one in sent) else _BY_ID
        link.ask(
            ALTER_PARTITION,
            lambda version: self._request(sent, version),
            lambda response, error: self._answered(sent, response, error),
            timeout_s=self._timeout_s,
            versions=versions,
        )

    def _request(self, changes: Sequence[IsrChange], version: int) -> Any:
        topics: dict[str, Any] = {}
        Topic = ALTER_PARTITION.Request.Topics
        Part = Topic.Partitions
        for one in changes:
            if one.topic not in topics:
                topics[one.topic] = Topic(topic_name=one.topic, topic_id=one.topic_id, partitions=[])
            part = Part(
                partition_index=one.partition, leader_epoch=one.leader_epoch, partition_epoch=one.partition_epoch
            )
            if version >= 3:
                part.new_isr_with_epochs = [Part.NewIsrWithEpochs(broker_id=member) for member in one.isr]
            else:
                part.new_isr = list(one.isr)
            topics[one.topic].partitions.append(part)
        return ALTER_PARTITION.Request(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _answered(self, sent: Sequence[IsrChange], response: Any, error: LinkError | None) -> None:
        if error is not None:
            self._retry(str(error))
            return
        if response.error_code != Errors.NONE:  # such as STALE_BROKER_EPOCH or NOT_CONTROLLER
            self._retry(f"the controller answers {name_of(response.error_code)}")
            return
        self._trouble = ""
        results = _results(sent, response)
        calls = []
        with self._lock:
            for one in sent:
                key = one.topic, one.partition
                if key in results and key in self._waiting:
                    calls.append((self._waiting.pop(key)[1], results[key]))
        for done, result in calls:  # the callbacks may submit changes, which are sent below
            try:
                done(result)
            except Exception:
                log.exception("the result of a change of an ISR was not handled")
        if len(results) < len(sent):
            self._retry("the controller's response lacks partitions that it was asked for")
        else:
            self._send_again()

    def _retry(self, why: str) -> None:
        # Once for each reason: without a controller there are twenty tries a second.
        log.log(logging.DEBUG if why == self._trouble else logging.WARNING, "changes of ISRs wait: %s", why)
        self._trouble = why
        self._timer.schedule(RETRY_S, self._send_again)

    def _send_again(self) -> None:
        """Send the changes that wait in the next request, because the previous request was answered or has failed."""
        with self._lock:
            self._in_flight = False
        self._send()


def _results(sent: Sequence[IsrChange], response: Any) -> dict[tuple[str, int], WrittenIsr | KafkaError]:
    """Return the result for each partition in the response, by (topic, partition). Partitions that were not sent are
    left out.
    """
    names = {one.topic_id: one.topic for one in sent}
    asked = {(one.topic, one.partition) for one in sent}
    results: dict[tuple[str, int], WrittenIsr | KafkaError] = {}
    for topic in response.topics:
        name = topic.topic_name or names.get(topic.topic_id, "")
        for part in topic.partitions:
            key = name, part.partition_index
            if key not in asked:
                continue
            if part.error_code != Errors.NONE:
                results[key] = KafkaError(part.error_code, f"the controller refuses the ISR of {name}-{key[1]}")
            else:
                results[key] = WrittenIsr(part.leader_id, part.leader_epoch, part.partition_epoch, tuple(part.isr))
    return results
