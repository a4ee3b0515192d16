"""A producer whose records, and the offsets of the records that they were made of, become visible together or never.

    with TransactionalProducer("127.0.0.1:9092", "billing-1") as producer:
        with producer.transaction():
            producer.send("invoices", b"...")
            producer.send_offsets(consumer.positions(), consumer.group_metadata())

Source: Kafka's KafkaProducer and TransactionManager; KIP-98, KIP-360, KIP-447.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum

from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.errors import (
    ClientError,
    ProduceFailed,
    ProducerFailed,
    TransactionAborted,
    TransactionFailed,
)
from kafkapy.client.group_types import GroupMetadata, Offsets, with_metadata
from kafkapy.client.pending_batch import Delivery, PendingBatch
from kafkapy.client.record_producer import Headers, RecordProducer
from kafkapy.client.transaction_ends import TransactionIdentity
from kafkapy.client.transaction_link import ProducerId, TransactionLink, meaning
from kafkapy.errors import Errors, KafkaError
from kafkapy.record.encoded import EncodedBatch

log = logging.getLogger(__name__)


class State(Enum):
    NEW = "was not initialized"
    READY = "is in no transaction"
    OPEN = "is in a transaction"
    FAILED = "is in a transaction that has failed"
    COMMITTING = "is committing"
    ABORTING = "is aborting"


class TransactionalProducer(RecordProducer):
    """Blocking, for one thread; one transaction at a time.

    Args:
        cluster: a Cluster, or bootstrap servers.
        transactional_id: names the producer across restarts: a new one with the same id ends what an old one left
            open and shuts it out.
        transaction_timeout_s: after this the broker aborts a transaction by itself.
        codec, batch_bytes, request_bytes, timeout_s: as RecordProducer has them.
    """

    def __init__(
        self,
        cluster: Cluster | str | Sequence[str],
        transactional_id: str,
        *,
        transaction_timeout_s: float = 60.0,
        codec: int = 0,
        batch_bytes: int = 256 * 1024,
        request_bytes: int = 1024 * 1024,
        timeout_s: float = 60.0,
    ) -> None:
        if not transactional_id:
            raise ValueError("the transactional id is empty; give each producer that runs at a time one of its own")
        super().__init__(
            cluster, codec=codec, batch_bytes=batch_bytes, request_bytes=request_bytes, timeout_s=timeout_s
        )
        self.transactional_id: str = transactional_id
        self._transaction_timeout_s = transaction_timeout_s
        self._link = TransactionLink(self.cluster, transactional_id)
        self._state = State.NEW
        self._failure: TransactionFailed | None = None
        self._id = ProducerId(-1, -1)
        self._added: set[TopicPartition] = set()
        self._begun: bool | None = False  # whether the coordinator knows of the transaction; None: it may
        self._must_recover = False  # sequence numbers are not known to be right: the epoch is raised after an abort

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes; a transaction that is open is aborted."""
        self.close()

    @property
    def in_transaction(self) -> bool:
        """Whether one was begun and is not ended."""
        return self._state not in (State.NEW, State.READY)

    def init(self) -> None:
        """Gets a producer id. Older producers with the same transactional id can do nothing after this, and what
        they left open is ended. `begin` does this when it was not done.

        Raises:
            ProducerFailed: the broker refuses, such as INVALID_TRANSACTION_TIMEOUT.
        """
        self._expect(State.NEW, "init")
        with self._noting():
            self._use(self._link.init(self._transaction_timeout_s))
        self._state = State.READY

    def begin(self) -> None:
        """Begins a transaction; the broker hears of it with the first record."""
        if self._state is State.NEW:
            self.init()
        self._expect(State.READY, "begin")
        self._state = State.OPEN

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """As RecordProducer.send, within a transaction.

        Raises:
            TransactionAborted: something before this has failed; abort.
        """
        self._expect(State.OPEN, "send")
        with self._noting():
            return super().send(topic, value, key, headers=headers, partition=partition, timestamp=timestamp)

    def send_batch(self, batch: EncodedBatch) -> Delivery:
        """As RecordProducer.send_batch, within a transaction."""
        self._expect(State.OPEN, "send_batch")
        with self._noting():
            return super().send_batch(batch)

    def flush(self) -> None:
        """Returns when every record is stored (not visible to read_committed before `commit`)."""
        if self._state is not State.READY:
            self._expect(State.OPEN, "flush")
        with self._noting():
            super().flush()

    def send_offsets(self, offsets: Offsets, group: GroupMetadata | str) -> None:
        """Commits offsets of a group (those of the next records to read) with the transaction.

        Args:
            group: the consumer's `group_metadata()`, so that one that lost its partitions is refused; or just the
                group's name, without that protection.
        """
        self._expect(State.OPEN, "send_offsets")
        wanted = with_metadata(offsets)
        if not wanted:
            return
        member = GroupMetadata(group) if isinstance(group, str) else group
        self._begun = self._begun or None
        with self._noting():
            self._link.send_offsets(self._id, wanted, member)
        self._begun = True

    def commit(self) -> None:
        """Makes everything visible.

        Raises:
            TransactionAborted: something was not stored; abort.
            ProducerFenced: another producer has taken over.
            ConnectionFailed: whether it is committed is not known; call commit again.
        """
        if self._state is not State.COMMITTING:
            self._expect(State.OPEN, "commit")
            self.flush()
        self._end(State.COMMITTING)

    def abort(self) -> None:
        """Makes everything as if it had not been sent; also after a failure. What was not sent yet never is."""
        if self._state not in (State.FAILED, State.ABORTING) or (self._failure and self._failure.fatal):
            self._expect(State.OPEN, "abort")
        self._open.clear()
        # Batches that have been sent once have used up their sequence numbers.
        self._must_recover |= self._outbox.abandon()
        self._end(State.ABORTING)

    @property
    def identity(self) -> TransactionIdentity:
        """Who the coordinator knows this producer as. ValueError before `init` or `begin`."""
        if self._state is State.NEW:
            self._expect(State.READY, "identity")
        return TransactionIdentity(self.transactional_id, *self._id)

    def leave_open(self) -> TransactionIdentity | None:
        """Sends what was not sent, and leaves the transaction as it is for somebody to end with `end_transaction`.

        The next `begin` gets a new epoch: if the transaction is open then, that aborts it.
        Returns: None where nothing is in the transaction: there is nothing to end.
        """
        self._expect(State.OPEN, "leave_open")
        self.flush()
        identity = self.identity if self._begun else None
        self._added.clear()
        self._begun = False
        self._state = State.NEW
        return identity

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begins, and commits at the end of the block; after an exception in it aborts and lets it through."""
        self.begin()
        try:
            yield
            self.commit()
        except BaseException as error:
            if self._state in (State.OPEN, State.FAILED) and not isinstance(error, ProducerFailed):
                try:
                    self.abort()
                except (ClientError, KafkaError) as failure:
                    log.warning("%s", failure)  # the reason for the abort is what the caller has to know
            raise

    def close(self) -> None:
        """Aborts what is open, if the broker can be reached."""
        try:
            if self._state in (State.OPEN, State.FAILED):
                self.abort()
        except (ClientError, KafkaError):
            pass  # the next producer with this id ends it, or the transaction's time-out does
        finally:
            self._link.close()
            super().close()

    def drop(self) -> None:
        """Closes, and ends nothing: what is open is for the next producer with this id to abort, or for its time-out.
        For one that cannot wait."""
        self._link.close()
        super().close()

    def _end(self, state: State) -> None:
        self._state = state
        if self._begun is not False:
            with self._noting():
                self._end_at_coordinator(commit=state is State.COMMITTING)
            self._begun = False
        if self._must_recover:
            with self._noting():
                self._use(self._link.init(self._transaction_timeout_s, self._id))
            self._must_recover = False
        self._added.clear()
        self._failure = None
        self._failed = None
        self._state = State.READY

    def _end_at_coordinator(self, *, commit: bool) -> None:
        try:
            self._link.end(self._id, commit=commit)
        except TransactionFailed as error:
            if error.code != Errors.INVALID_TXN_STATE or self._begun:
                raise
            # It has never heard of the transaction: there is nothing to abort.

    def _use(self, producer: ProducerId) -> None:
        self._id = producer
        self._producer = producer
        self._sequences.clear()

    def _expect(self, state: State, what: str) -> None:
        """Raises the failure that is in the way, or ValueError for a call out of turn."""
        if self._failure is not None and (self._failure.fatal or what != "abort"):
            raise self._failure
        if self._state is state:
            return
        hint = {
            State.NEW: "call init() or begin() first",
            State.READY: "call begin() first",
            State.OPEN: "commit() or abort() it first",
            State.FAILED: "call abort()",
            State.COMMITTING: "call commit() again: whether it was committed is not known",
            State.ABORTING: "call abort() again: whether it was aborted is not known",
        }[self._state]
        raise ValueError(f"{what}() cannot be: the producer {self.transactional_id!r} {self._state.value}; {hint}")

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Remembers a failure that a later call must not overlook."""
        try:
            yield
        except TransactionFailed as error:
            self._note(error)
            raise
        except ProduceFailed:
            assert self._failure is not None
            raise self._failure from None

    def _note(self, failure: TransactionFailed) -> None:
        if not failure.fatal and not self.in_transaction:
            return  # nothing to abort: the call can be made again
        self._must_recover = True
        self._state = State.FAILED
        if self._failure is None or (failure.fatal and not self._failure.fatal):
            self._failure = failure

    def _make_room(self) -> None:
        """Partitions that are new to the transaction are gathered: the coordinator is told of them in one request."""
        if self._outbox.waiting_bytes >= self._request_bytes or self._outbox.waiting_partitions() <= self._added:
            super()._make_room()

    def before_sending(self, batches: Sequence[PendingBatch]) -> None:
        new = self._outbox.waiting_partitions() - self._added
        if new:
            self._begun = self._begun or None
            self._link.add_partitions(self._id, sorted(new))
            self._begun = True
            self._added |= new

    def refused(self, batch: PendingBatch, error: KafkaError | ClientError) -> None:
        super().refused(batch, error)
        if isinstance(error, TransactionFailed):
            self._note(error)
        elif isinstance(error, KafkaError) and error.code == Errors.PRODUCER_FENCED:
            self._note(meaning(self.transactional_id, error.code))
        else:
            code = error.code if isinstance(error, KafkaError) else Errors.NETWORK_EXCEPTION
            where = f"{batch.where[0]}-{batch.where[1]}"
            told = f"records for {where} were not stored ({error}); abort the transaction and begin anew"
            self._note(TransactionAborted(self.transactional_id, code, told))
