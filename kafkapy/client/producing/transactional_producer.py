"""A producer whose records, together with the offsets of the records consumed for them, become visible atomically.

    with TransactionalProducer("127.0.0.1:9092", "billing-1") as producer:
        with producer.transaction():
            producer.send("invoices", b"...")
            producer.send_offsets(consumer.positions(), consumer.group_metadata())

Source: Kafka's KafkaProducer and TransactionManager; KIP-98, KIP-360, KIP-447.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.errors import (
    ClientError,
    ProducerFailed,
    TransactionAborted,
    TransactionFailed,
)
from kafkapy.client.groups.group_types import GroupMetadata, Offsets, with_metadata
from kafkapy.client.producing.pending_batch import PendingBatch
from kafkapy.client.producing.record_producer import RecordProducer
from kafkapy.client.producing.transaction_ends import TransactionIdentity
from kafkapy.client.producing.transaction_link import TransactionLink, error_for
from kafkapy.client.security import Security
from kafkapy.errors import Errors, KafkaError

log = logging.getLogger(__name__)


class State(Enum):
    """The state of a transactional producer. The values are phrases for error messages."""

    NEW = "was not initialized"
    READY = "is in no transaction"
    OPEN = "is in a transaction"
    FAILED = "is in a transaction that has failed"
    COMMITTING = "is committing"
    ABORTING = "is aborting"


class TransactionalProducer(RecordProducer):
    """A blocking transactional producer for use in one thread, with one transaction at a time.

    `send` and `send_batch` add records to the transaction. After a call has failed with a TransactionFailed, such as
    TransactionAborted, every further call raises the same error until `abort` is called.

    Args:
        cluster: A Cluster, or bootstrap servers.
        transactional_id: Identifies the producer across restarts. A new producer with the same id fences the old
            producer and aborts its open transaction.
        transaction_timeout_s: The coordinator aborts a transaction that takes longer than this.
        codec, batch_bytes, request_bytes, timeout_s, security: As for RecordProducer.
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
        security: Security | Mapping[str, Any] | None = None,
    ) -> None:
        if not transactional_id:
            raise ValueError("the transactional id is empty; give each producer its own")
        super().__init__(
            cluster,
            codec=codec,
            batch_bytes=batch_bytes,
            request_bytes=request_bytes,
            timeout_s=timeout_s,
            security=security,
        )
        self.transactional_id: str = transactional_id
        self._transaction_timeout_s = transaction_timeout_s
        self._link = TransactionLink(self.cluster, transactional_id)
        self._state = State.NEW
        self._failure: TransactionFailed | None = None
        self._added: set[TopicPartition] = set()
        self._begun: bool | None = False  # whether the coordinator knows the transaction; None if unclear
        self._must_recover = False  # sequence numbers may have gaps, so the epoch has to be raised after the abort

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the producer, which aborts an open transaction."""
        self.close()

    @property
    def in_transaction(self) -> bool:
        """True from `begin` until the transaction is committed or aborted."""
        return self._state not in (State.NEW, State.READY)

    def init(self) -> None:
        """Get a producer id, which fences older producers with the same transactional id and aborts their transactions.

        `begin` calls this if necessary.

        Raises:
            ProducerFailed: The broker refuses, for example with INVALID_TRANSACTION_TIMEOUT.
            ConnectionFailed: The coordinator was not reached in time.
        """
        self._expect(State.NEW, "init")
        with self._recording_failures():
            self._sequences.reset(self._link.init(self._transaction_timeout_s))
        self._state = State.READY

    def begin(self) -> None:
        """Begin a transaction. Call `init` first if that was not done yet.

        The coordinator learns of the transaction only with its first record or offset. Raise ValueError if a
        transaction is open already.
        """
        if self._state is State.NEW:
            self.init()
        self._expect(State.READY, "begin")
        self._state = State.OPEN

    def flush(self) -> None:
        """Send all records and wait until they are stored. Raise TransactionFailed if a record was not stored.

        Consumers with read_committed see the records only after `commit`.
        """
        if self._state is not State.READY:
            self._expect(State.OPEN, "flush")
        super().flush()

    def send_offsets(self, offsets: Offsets, group: GroupMetadata | str) -> None:
        """Add offsets of a consumer group to the transaction. An offset is that of the next record to read.

        Args:
            group: The consumer's `group_metadata()`. The coordinator then refuses the offsets if the consumer has lost
                its partitions. A plain group id works too, but without that protection.
        Raises:
            TransactionAborted: The offsets were refused, for example because the consumer has lost its partitions;
                abort.
            ConnectionFailed: The coordinator was not reached in time.
        """
        self._expect(State.OPEN, "send_offsets")
        wanted = with_metadata(offsets)
        if not wanted:
            return
        member = GroupMetadata(group) if isinstance(group, str) else group
        self._begun = self._begun or None
        with self._recording_failures():
            self._link.send_offsets(self._sequences.current, wanted, member)
        self._begun = True

    def commit(self) -> None:
        """Commit the transaction, which makes its records and offsets visible.

        Raises:
            TransactionAborted: A record or an offset was not stored; call `abort`.
            ProducerFenced: Another producer with the same transactional id has taken over, or the transaction has timed
                out.
            ConnectionFailed: The transaction may or may not be committed; call `commit` again.
        """
        if self._state is not State.COMMITTING:
            self._expect(State.OPEN, "commit")
            self.flush()
        self._end(State.COMMITTING)

    def abort(self) -> None:
        """Abort the transaction, whether or not it has failed. Records that are not sent yet are dropped.

        Raise the ProducerFailed of an earlier call if the producer cannot be used any more.
        """
        if self._state not in (State.FAILED, State.ABORTING) or (self._failure and self._failure.fatal):
            self._expect(State.OPEN, "abort")
        self._open.clear()
        # Batches that were sent have used up sequence numbers, though they may not be stored.
        self._must_recover |= self._outbox.abandon()
        self._end(State.ABORTING)

    @property
    def identity(self) -> TransactionIdentity:
        """The producer's transactional id, producer id and epoch. Raises ValueError before `init` or `begin`."""
        if self._state is State.NEW:
            self._expect(State.READY, "identity")
        return TransactionIdentity(self.transactional_id, *self._sequences.current)

    def leave_open(self) -> TransactionIdentity | None:
        """Send all records, and leave the transaction open, so that any process can end it with `end_transaction`.

        Return the TransactionIdentity that `end_transaction` needs, or None if the transaction is empty, so that there
        is nothing to end. This producer's next `begin` gets a new epoch, which aborts the transaction if it is still
        open.
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
        """Begin a transaction for a `with` block, and commit the transaction at the end of the block.

        After an exception in the block, abort the transaction and raise the exception again.
        """
        self.begin()
        try:
            yield
            self.commit()
        except BaseException as error:
            if self._state in (State.OPEN, State.FAILED) and not isinstance(error, ProducerFailed):
                try:
                    self.abort()
                except (ClientError, KafkaError) as failure:
                    log.warning("%s", failure)  # the caller has to see the original error
            raise

    def close(self) -> None:
        """Abort an open transaction, if the coordinator can be reached, and close the connections."""
        try:
            if self._state in (State.OPEN, State.FAILED):
                self.abort()
        except (ClientError, KafkaError):
            pass  # the next producer with this id ends it, or the transaction's time-out does
        finally:
            self._link.close()
            super().close()

    def drop(self) -> None:
        """Close the connections at once, without aborting an open transaction.

        The transaction ends when it times out, or when the next producer with this transactional id starts.
        """
        self._link.close()
        super().close()

    def _end(self, state: State) -> None:
        """Commit (state COMMITTING) or abort (state ABORTING) the transaction.

        Then get a higher epoch if the sequence numbers may have gaps.
        """
        self._state = state
        if self._begun is not False:
            with self._recording_failures():
                self._end_at_coordinator(commit=state is State.COMMITTING)
            self._begun = False
        if self._must_recover:
            with self._recording_failures():
                self._sequences.reset(self._link.init(self._transaction_timeout_s, self._sequences.current))
            self._must_recover = False
        self._added.clear()
        self._failure = None
        self._failed = None
        self._state = State.READY

    def _end_at_coordinator(self, *, commit: bool) -> None:
        """Send EndTxn to the coordinator. Ignore an error that says that there is no transaction to end."""
        try:
            self._link.end(self._sequences.current, commit=commit)
        except TransactionFailed as error:
            if error.code == Errors.INVALID_PRODUCER_ID_MAPPING and not commit:
                # The transactional id has expired, which never happens while a transaction is open: there is nothing to
                # abort. InitProducerId gets a new producer id, or is refused if another producer has come.
                self._must_recover = True
            elif error.code != Errors.INVALID_TXN_STATE or self._begun:
                raise
            # INVALID_TXN_STATE while `_begun` is None: the coordinator never learned of the transaction.

    def _may_send(self, what: str) -> None:
        """Raise the failure of an earlier call, or ValueError if no transaction is open.

        `what` names the method called.
        """
        self._expect(State.OPEN, what)

    def _raise_failure(self) -> None:
        """Raise the TransactionFailed with which the transaction has failed, if there is one."""
        if self._failure is not None:
            raise self._failure

    def _expect(self, state: State, what: str) -> None:
        """Return if the producer is in the state `state` and has not failed. `what` names the method called.

        Otherwise raise the TransactionFailed of the earlier failure, or ValueError if the method is not allowed in the
        current state. `abort` is allowed after a failure that is not fatal.
        """
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
        raise ValueError(f"{what}() is not possible: producer {self.transactional_id!r} {self._state.value}; {hint}")

    @contextmanager
    def _recording_failures(self) -> Iterator[None]:
        """Pass a TransactionFailed that is raised in the `with` block to `_record_failure`, and raise it again."""
        try:
            yield
        except TransactionFailed as error:
            self._record_failure(error)
            raise

    def _record_failure(self, failure: TransactionFailed) -> None:
        """Store a failure, so that later calls raise it. A fatal failure replaces a stored failure that is not fatal.

        A failure that is not fatal is ignored while no transaction is open, so that the call may be repeated.
        """
        if not failure.fatal and not self.in_transaction:
            return  # no transaction to abort, so the same call may be repeated
        self._must_recover = True
        self._state = State.FAILED
        if self._failure is None or (failure.fatal and not self._failure.fatal):
            self._failure = failure

    def _make_room(self) -> None:
        """Send waiting batches only if they fill a request, or if all their partitions are in the transaction already.

        So the partitions that are new in the transaction are added with one AddPartitionsToTxn, as far as possible.
        """
        if self._outbox.waiting_bytes >= self._request_bytes or self._outbox.waiting_partitions() <= self._added:
            super()._make_room()

    def before_sending(self, batches: Sequence[PendingBatch]) -> None:
        """Add the partitions of all waiting batches to the transaction, unless they are in it already."""
        new = self._outbox.waiting_partitions() - self._added
        if new:
            self._begun = self._begun or None
            self._link.add_partitions(self._sequences.current, sorted(new))
            self._begun = True
            self._added |= new

    def refused(self, batch: PendingBatch, error: KafkaError | ClientError) -> None:
        """Let the transaction fail, because one of its batches was not stored."""
        super().refused(batch, error)
        if isinstance(error, TransactionFailed):
            self._record_failure(error)
        elif isinstance(error, KafkaError) and error.code == Errors.PRODUCER_FENCED:
            self._record_failure(error_for(self.transactional_id, error.code))
        else:
            code = error.code if isinstance(error, KafkaError) else Errors.NETWORK_EXCEPTION
            where = f"{batch.where[0]}-{batch.where[1]}"
            text = f"records for {where} were not stored ({error}); abort the transaction and begin a new one"
            self._record_failure(TransactionAborted(self.transactional_id, code, text))
