"""The transaction coordinator's API for the request handlers. It runs each request on the partition of
`__transaction_state` that stores the transactional id.

Every method that takes a callback calls the callback once, either at once or later on another thread. Source: Kafka's
TransactionCoordinator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
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
    from kafkapy.coordinator.transactions.maintenance import TransactionSettings
    from kafkapy.coordinator.transactions.transitions import TopicPartition
    from kafkapy.runtime.clock import Clock

log = logging.getLogger("kafkapy.coordinator.transactions")

NO_PRODUCER = Producer(-1, -1)

CodeAnswer = Callable[[int], object]
ProducerAnswer = Callable[[int, Producer], object]
PartitionAnswer = Callable[[Mapping["TopicPartition", int]], object]


class TransactionCoordinator:
    """Handles the requests of transactional producers, for all partitions of `__transaction_state` that this broker
    leads.

    `give_id` calls its callback with a new producer id or a KafkaError, either at once or later on another thread.
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
        """Handle an InitProducerId request. Call `answer(error code, producer)` with the producer id and epoch that the
        transactional id uses from now on.

        `producer_id` and `epoch` are the current ones of a client that wants the next epoch (KIP-360), or -1 and -1 for
        a new client. The transaction time-out `timeout_ms` is in milliseconds.
        """
        expected = None if producer_id == NO_PRODUCER.id else Producer(producer_id, epoch)

        def recorded(found: KafkaError | Producer) -> None:
            if isinstance(found, Producer):
                log.debug("transactional id %r has %s", transactional_id, found)
                answer(Errors.NONE, found)
            else:
                answer(_append_error(found), NO_PRODUCER)

        def refused(error: KafkaError) -> None:
            _log_refusal("a producer", transactional_id, error)
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
                raise KafkaError(
                    Errors.INVALID_TRANSACTION_TIMEOUT,
                    f"transaction timeout {timeout_ms} ms is not between 1 and {longest}",
                )
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
        """Add partitions to the producer's transaction and call `answer` with an error code. The first partitions begin
        a transaction."""
        producer = Producer(producer_id, epoch)
        self._run(
            transactional_id,
            answer,
            lambda machine, done: machine.add_partitions(transactional_id, producer, partitions, done),
        )

    def end(self, transactional_id: str, producer_id: int, epoch: int, commit: bool, answer: CodeAnswer) -> None:
        """Commit the producer's open transaction, or abort it if `commit` is False. Call `answer` with an error code
        when the decision is in the log; the transaction markers may be written later."""
        producer = Producer(producer_id, epoch)
        self._run(transactional_id, answer, lambda machine, done: machine.end(transactional_id, producer, commit, done))

    def _run(
        self,
        transactional_id: str,
        answer: CodeAnswer,
        step: Callable[[TransactionMachine, Callable[[KafkaError | None], None]], Effects],
    ) -> None:
        def done(error: KafkaError | None) -> None:
            answer(Errors.NONE if error is None else _append_error(error))

        try:
            _check_id(transactional_id)
            self.shards.of(transactional_id).run(lambda machine: step(machine, done))
        except KafkaError as error:
            _log_refusal("a request for the transaction", transactional_id, error)
            answer(error.code)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        done: PartitionAnswer,
    ) -> None:
        """Check that partitions are in the producer's open transaction. Call `done` with an error code for each
        partition: NONE if it is in the transaction, otherwise TRANSACTION_ABORTABLE.

        If the request is refused as a whole, all partitions get the same other error code.
        """
        producer = Producer(producer_id, epoch)
        try:
            _check_id(transactional_id)
            shard = self.shards.of(transactional_id)
            missing = shard.read(lambda machine: machine.verify(transactional_id, producer, partitions))
        except KafkaError as error:
            _log_refusal("a write in the transaction", transactional_id, error)
            done(dict.fromkeys(partitions, error.code))
            return
        done(
            {
                partition: Errors.TRANSACTION_ABORTABLE if partition in missing else Errors.NONE
                for partition in partitions
            }
        )

    def describe(self, transactional_id: str) -> TransactionState:
        """Return the state of a transactional id. For a prepared transaction, the state has only the partitions that
        still need a marker.

        Raises KafkaError for an invalid or unknown id, or if this broker does not coordinate the id.
        """
        _check_id(transactional_id)
        return self.shards.of(transactional_id).read(lambda machine: views.described(machine, transactional_id))

    def list(self, filters: views.Filters) -> list[views.Listed]:
        """Return the transactional ids of this coordinator that match the filters, with their states. Raises KafkaError
        COORDINATOR_LOAD_IN_PROGRESS while a partition of `__transaction_state` is being loaded."""
        if self.shards.is_loading:
            raise KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, "transactions are being loaded")
        now = self._clock.time_ms()
        found: list[views.Listed] = []
        for shard in self.shards.active():
            # The shard ends if another broker begins to coordinate its ids.
            with suppress(KafkaError):
                found += shard.read(lambda machine: views.listed(machine, filters, now))
        return found


def _append_error(error: KafkaError) -> int:
    """Return the error code to send to a producer when the state of its transactional id could not be appended. After a
    time-out the producer tries again, as in Kafka (TransactionStateManager)."""
    return Errors.COORDINATOR_NOT_AVAILABLE if error.code == Errors.REQUEST_TIMED_OUT else coordinator_error(error)


def _log_refusal(what: str, transactional_id: str, error: KafkaError) -> None:
    """Log that a request was refused. The level is INFO if the producer was fenced, since this explains why a job
    stopped, otherwise DEBUG. `what` describes the request."""
    level = logging.INFO if error.code == Errors.PRODUCER_FENCED else logging.DEBUG
    log.log(level, "%s of %r is refused: %s", what, transactional_id, error)


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise KafkaError(Errors.INVALID_REQUEST, "the transactional id is empty")
    if not fits(transactional_id):
        raise KafkaError(Errors.INVALID_REQUEST, f"the transactional id is longer than {LONGEST} bytes")
