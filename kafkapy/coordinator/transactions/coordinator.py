"""The door to the transaction coordinator: finds the shard of an id, runs the step, hands back an error code.

Every request is answered by one call, at once or from another thread. Source: Kafka's TransactionCoordinator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from kafkapy.coordinator.coordinator_log import coordinator_error
from kafkapy.coordinator.shard import Effects, Producer
from kafkapy.coordinator.transactions import views
from kafkapy.coordinator.transactions.machine import TransactionMachine
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.strings import LONGEST, fits

if TYPE_CHECKING:
    from kafkapy.coordinator.shards import Shards
    from kafkapy.coordinator.transaction_records import TransactionState
    from kafkapy.coordinator.transactions.transitions import TopicPartition
    from kafkapy.coordinator.transactions.upkeep import TransactionSettings
    from kafkapy.runtime.clock import Clock

log = logging.getLogger("kafkapy.coordinator.transactions")

NO_PRODUCER = Producer(-1, -1)

CodeAnswer = Callable[[int], object]
ProducerAnswer = Callable[[int, Producer], object]
PartitionAnswer = Callable[[Mapping["TopicPartition", int]], object]


class TransactionCoordinator:
    """All shards of `__transaction_state` that this broker leads.

    `give_id` calls back with a producer id that nobody had, at once or from another thread.
    """

    def __init__(
        self,
        shards: Shards[TransactionMachine],
        give_id: Callable[[Callable[[int | KafkaError], None]], object],
        settings: Callable[[], TransactionSettings],
        clock: Clock,
    ) -> None:
        self.shards = shards
        self._give_id = give_id
        self._settings = settings
        self._clock = clock

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, producer_id: int, epoch: int, answer: ProducerAnswer
    ) -> None:
        """Answers (code, producer).

        `producer_id`, `epoch`: what the client has and wants to go on with, -1 and -1 if it begins (KIP-360).
        """
        expected = None if producer_id == NO_PRODUCER.id else Producer(producer_id, epoch)

        def recorded(found: KafkaError | Producer) -> None:
            if isinstance(found, Producer):
                log.info("transactional id %r has %s", transactional_id, found)
                answer(Errors.NONE, found)
            else:
                answer(coordinator_error(found), NO_PRODUCER)

        def refused(error: KafkaError) -> None:
            _tell_refused("a producer", transactional_id, error)
            answer(error.code, NO_PRODUCER)

        def run(fresh_id: int | KafkaError | None) -> None:
            if isinstance(fresh_id, KafkaError):
                refused(fresh_id)
                return
            try:
                self.shards.of(transactional_id).run(
                    lambda machine: machine.init_producer_id(transactional_id, timeout_ms, expected, fresh_id, recorded)
                )
            except KafkaError as error:
                refused(error)

        try:
            _check_id(transactional_id)
            longest = self._settings().max_timeout_ms
            if not 0 < timeout_ms <= longest:
                raise KafkaError(Errors.INVALID_TRANSACTION_TIMEOUT, f"{timeout_ms} ms are not within 1 to {longest}")
            needs_id = self.shards.of(transactional_id).read(
                lambda machine: machine.needs_producer_id(transactional_id, expected)
            )
        except KafkaError as error:
            refused(error)
            return
        if needs_id:
            self._give_id(run)
        else:
            run(None)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        answer: CodeAnswer,
    ) -> None:
        """Puts partitions into the transaction, which begins with the first of them."""
        producer = Producer(producer_id, epoch)
        self._run(
            transactional_id,
            answer,
            lambda machine, told: machine.add_partitions(transactional_id, producer, partitions, told),
        )

    def end(self, transactional_id: str, producer_id: int, epoch: int, commit: bool, answer: CodeAnswer) -> None:
        """Commits or aborts; answers when that is decided for good, whether or not all markers are written."""
        producer = Producer(producer_id, epoch)
        self._run(transactional_id, answer, lambda machine, told: machine.end(transactional_id, producer, commit, told))

    def _run(
        self,
        transactional_id: str,
        answer: CodeAnswer,
        step: Callable[[TransactionMachine, Callable[[KafkaError | None], None]], Effects],
    ) -> None:
        def told(error: KafkaError | None) -> None:
            answer(Errors.NONE if error is None else coordinator_error(error))

        try:
            _check_id(transactional_id)
            self.shards.of(transactional_id).run(lambda machine: step(machine, told))
        except KafkaError as error:
            _tell_refused("a request for the transaction", transactional_id, error)
            answer(error.code)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        done: PartitionAnswer,
    ) -> None:
        """Tells for each partition whether it is in the producer's open transaction: NONE, or TRANSACTION_ABORTABLE,
        or what is wrong with all of them."""
        producer = Producer(producer_id, epoch)
        try:
            _check_id(transactional_id)
            shard = self.shards.of(transactional_id)
            missing = shard.read(lambda machine: machine.verify(transactional_id, producer, partitions))
        except KafkaError as error:
            _tell_refused("a write in the transaction", transactional_id, error)
            done(dict.fromkeys(partitions, error.code))
            return
        done({one: Errors.TRANSACTION_ABORTABLE if one in missing else Errors.NONE for one in partitions})

    def describe(self, transactional_id: str) -> TransactionState:
        """Raises KafkaError."""
        _check_id(transactional_id)
        return self.shards.of(transactional_id).read(lambda machine: views.described(machine, transactional_id))

    def list(self, filters: views.Filters) -> list[views.Listed]:
        """Of all shards. Raises COORDINATOR_LOAD_IN_PROGRESS while one of them is being loaded."""
        if self.shards.is_loading:
            raise KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, "transactions are being loaded")
        now = self._clock.time_ms()
        found: list[views.Listed] = []
        for shard in self.shards.active():
            found += shard.read(lambda machine: views.listed(machine, filters, now))
        return found


def _tell_refused(what: str, transactional_id: str, error: KafkaError) -> None:
    """That a producer was fenced is what somebody looks for whose job has died; the rest heals, or the client tells."""
    level = logging.INFO if error.code == Errors.PRODUCER_FENCED else logging.DEBUG
    log.log(level, "%s of %r is refused: %s", what, transactional_id, error)


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise KafkaError(Errors.INVALID_REQUEST, "a transactional id is not empty")
    if not fits(transactional_id):
        raise KafkaError(Errors.INVALID_REQUEST, f"a transactional id has at most {LONGEST} bytes")
