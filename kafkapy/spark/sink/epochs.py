"""The driver's work at the end of an epoch: decides which transactions belong to it, commits these, and aborts others.

See writers.py for the protocol. `commit_epoch` and `abort_epoch` can be repeated after any of their steps, also by
another process or driver. While a broker cannot be reached, both are retried from their beginning.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from kafkapy.client.administration.txn_admin import TransactionAdmin, TransactionDescription
from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import ClientError, TransactionFailed, UnsupportedByBroker
from kafkapy.client.producing.transaction_ends import TransactionIdentity, end_transaction
from kafkapy.client.producing.transactional_producer import TransactionalProducer
from kafkapy.errors import Errors, KafkaError
from kafkapy.record.compression import GZIP
from kafkapy.spark.options.sink_options import SinkOptions
from kafkapy.spark.retries import with_retries
from kafkapy.spark.sink.decisions import Decision, Decisions, Share, key_of, value_of

OPEN = "Ongoing"
INITIALISED = "Empty"  # the producer has an id and an epoch, but no transaction yet
DRIVER_TIMEOUT_S = 60.0  # the driver's own transactions take milliseconds

# Errors for a transaction that the coordinator has aborted or no longer knows.
ENDED_OTHERWISE = (
    Errors.PRODUCER_FENCED,
    Errors.INVALID_PRODUCER_EPOCH,
    Errors.INVALID_TXN_STATE,
    Errors.INVALID_PRODUCER_ID_MAPPING,
)

log = logging.getLogger("kafkapy.spark")


class SinkFailed(RuntimeError):
    """Base class of the errors for a failed epoch.

    The message says what happened to the epoch's rows, and what to do.
    """


class EpochExpired(SinkFailed):
    """The error for a transaction that was aborted by its time-out before the driver decided to commit the epoch.

    No row of the epoch is visible.
    """


class DecidedTransactionLost(SinkFailed):
    """The error for a transaction that was aborted by its time-out after the driver decided to commit the epoch.

    The rows of that transaction are missing, and the rows of the epoch's other transactions are visible.
    """


class DecisionLost(SinkFailed):
    """The error for a decision that tasks have read in the decision topic but that is no longer there.

    The decision says which transactions belong to an epoch.
    """


def id_of_driver(options: SinkOptions, query: str) -> str:
    """Return the transactional id of a query's driver. The ids of the query's tasks begin with this id and a dash."""
    return f"{options.id_prefix}-{query}"


def identity_of(share: Share) -> TransactionIdentity:
    """Return the transactional id, producer id and producer epoch of a share, a task's transaction."""
    return TransactionIdentity(share.transactional_id, share.producer_id, share.producer_epoch)


def commit_epoch(
    options: SinkOptions,
    query: str,
    epoch: int,
    shares: Sequence[Share],
    *,
    replayable: bool = True,
    known: bool = False,
) -> None:
    """Commit the transactions of an epoch: those that the decision topic lists for the epoch, else those in `shares`.

    Other open transactions of the query are aborted.

    Args:
        replayable: Spark may run the epoch again, so its record in the decision topic must be kept.
        known: A task has seen that the decision topic lists the epoch's transactions.
    Raises:
        EpochExpired, DecidedTransactionLost, DecisionLost, DecisionsUnusable, ClientError, KafkaError.
    """
    with_retries(lambda: _commit(options, query, epoch, shares, replayable, known), options.producer.delivery_timeout_s)


def abort_epoch(
    options: SinkOptions, query: str, epoch: int, shares: Sequence[Share], *, replayable: bool = True
) -> None:
    """Abort the transactions in `shares`, the tasks' parts of an epoch, unless it was already decided to commit them.

    If it was decided, the decision topic lists transactions for the epoch, and the next run of the epoch commits
    these.

    Args:
        replayable: Spark may run the epoch again, perhaps has already. If False, no other driver has transactions of
            the query, so the transactions of attempts without a share are aborted, too, and attempts that still run
            can begin none.
    """
    with_retries(lambda: _abort(options, query, epoch, shares, replayable), options.producer.delivery_timeout_s)


def _commit(
    options: SinkOptions, query: str, epoch: int, shares: Sequence[Share], replayable: bool, known: bool
) -> None:
    """Commit an epoch without retries: steps 3 to 6 of the protocol in writers.py."""
    with _driver(options, query) as driver:
        latest = _latest(options, driver.cluster, query)
        if latest is not None and not latest.done:
            _end(options, driver.cluster, latest)
        if latest is not None and (latest.epoch > epoch or (latest.epoch == epoch and latest.done)):
            # Another driver has finished this epoch. Other open transactions may be of its next epoch.
            _abort_each(driver.cluster, map(identity_of, shares))
            return
        if latest is None or latest.epoch < epoch:
            if known:
                raise DecisionLost(_forgotten(options, query, epoch))
            _expect_open(driver.cluster, epoch, shares)
            decision = Decision(query, epoch, tuple(shares))
            records: list[tuple[bytes, bytes | None]] = [(key_of(query, epoch), value_of(decision))]
            if latest is not None:  # a done epoch, not always the one before: epochs without rows have no record
                records.append((key_of(query, latest.epoch), None))
            _write(options, driver, records)
            _end(options, driver.cluster, decision)
        last = [(key_of(query, epoch), value_of(Decision(query, epoch, done=True)) if replayable else None)]
        try:
            _finish(options, driver, query, last)
        except (ClientError, KafkaError) as error:
            if replayable:
                raise
            # All rows are visible, so the batch must not be reported as failed.
            log.warning("The decision of a batch that is committed stays in %s: %s", options.decision_topic, error)


def _abort(options: SinkOptions, query: str, epoch: int, shares: Sequence[Share], replayable: bool) -> None:
    """Abort the transactions in `shares`, without retries, unless it was already decided to commit the epoch."""
    with _driver(options, query) as driver:
        latest = _latest(options, driver.cluster, query)
        if latest is not None and latest.epoch >= epoch and (replayable or not latest.done):
            return
        if not replayable:
            _write(options, driver, [(key_of(query, epoch), value_of(Decision(query, epoch, done=True)))])
        _abort_each(driver.cluster, map(identity_of, shares))
        if not replayable:
            _fence_each(driver.cluster, id_of_driver(options, query) + "-")


@contextmanager
def _driver(options: SinkOptions, query: str) -> Iterator[TransactionalProducer]:
    """Provide the producer of the query's driver within a `with` block.

    Initialising the producer fences older drivers of the query, and completes or aborts their transactions.
    """
    properties = options.producer
    with Cluster(
        properties.bootstrap_servers,
        client_id=properties.client_id,
        timeout_s=properties.request_timeout_s,
        security=properties.security,
    ) as cluster:
        driver = TransactionalProducer(
            cluster, id_of_driver(options, query), transaction_timeout_s=DRIVER_TIMEOUT_S, codec=GZIP
        )
        with driver:
            driver.init()
            yield driver


def _latest(options: SinkOptions, cluster: Cluster, query: str) -> Decision | None:
    """Return the query's last record in the decision topic as a Decision, or None if there is none."""
    decisions = Decisions(cluster, options.decision_topic)
    decisions.read_all(options.producer.delivery_timeout_s)
    return decisions.latest(query)


def _write(options: SinkOptions, driver: TransactionalProducer, records: Iterable[tuple[bytes, bytes | None]]) -> None:
    """Write records to the decision topic in one transaction."""
    with driver.transaction():
        for key, value in records:
            driver.send(options.decision_topic, value, key, partition=0)


def _finish(
    options: SinkOptions, driver: TransactionalProducer, query: str, records: Iterable[tuple[bytes, bytes | None]]
) -> None:
    """Write the last records of an epoch to the decision topic, and abort open transactions that belong to no share.

    The open transactions are looked up before the records are written. If the write succeeds, no other driver had
    taken over when they were looked up, so none of them can belong to the next epoch. Each is aborted with the
    producer epoch that was found, which does not affect a later transaction with the same id.
    """
    left = _open_transactions(driver.cluster, id_of_driver(options, query) + "-")
    _write(options, driver, records)
    _abort_each(driver.cluster, left)


def _abort_each(cluster: Cluster, left: Iterable[TransactionIdentity]) -> None:
    """Abort each of the transactions in `left`. Log a warning for a transaction that cannot be aborted."""
    for each in left:
        try:
            end_transaction(cluster, each, commit=False)
        except TransactionFailed as error:
            if error.code != Errors.INVALID_TXN_STATE:  # INVALID_TXN_STATE: it was committed
                log.warning("An open transaction of another attempt was not aborted: %s", error)


def _fence_each(cluster: Cluster, prefix: str) -> None:
    """Abort the open transactions whose transactional ids begin with `prefix`, and fence all producers with such ids.

    Spark does not wait for the end of attempts that it kills. If such an attempt has initialised its producer before
    this call, it is fenced before it begins a transaction, or its transaction is aborted. If it does so later, it reads
    that the epoch is done, because the caller has written that before this call.
    """
    admin = TransactionAdmin(cluster)
    try:
        listed = admin.list_transactions(states=[INITIALISED, OPEN])
    except UnsupportedByBroker:  # before Kafka 3.0: the transactions end by their time-outs
        return
    for one in listed:
        if one.id.startswith(prefix):
            try:
                admin.abort(one.id)
            except KafkaError as error:
                if error.code != Errors.TRANSACTIONAL_ID_NOT_FOUND:  # TRANSACTIONAL_ID_NOT_FOUND: the id has expired
                    log.warning("An open transaction of another attempt was not aborted: %s", error)


def _open_transactions(cluster: Cluster, prefix: str) -> list[TransactionIdentity]:
    """Return the open transactions whose transactional ids begin with `prefix`.

    Return none if the broker cannot list transactions (before Kafka 3.0); they end by their time-outs then.
    """
    admin = TransactionAdmin(cluster)
    try:
        ids = [one.id for one in admin.list_transactions(states=[OPEN]) if one.id.startswith(prefix)]
        described = admin.describe(ids)
    except UnsupportedByBroker:  # before Kafka 3.0: the transactions end by their time-outs
        return []
    return [
        TransactionIdentity(one.id, one.producer_id, one.producer_epoch)
        for one in described.values()
        if isinstance(one, TransactionDescription) and one.state == OPEN
    ]


def _expect_open(cluster: Cluster, epoch: int, shares: Sequence[Share]) -> None:
    """Raise EpochExpired unless the transactions of all shares are still open.

    The caller writes the decision to commit them within milliseconds after this check.
    """
    try:
        described = TransactionAdmin(cluster).describe(share.transactional_id for share in shares)
    except UnsupportedByBroker:
        return
    for share in shares:
        one = described[share.transactional_id]
        if not isinstance(one, TransactionDescription):
            raise one
        found = one.state, one.producer_id, one.producer_epoch
        if found != (OPEN, share.producer_id, share.producer_epoch):
            raise EpochExpired(
                f"Epoch {epoch} is not committed: its transaction {share.transactional_id} was ended by the broker "
                "before the last task was ready. Nothing of the epoch is visible; start the query again, with a longer "
                "kafka.transaction.timeout.ms (the broker's transaction.max.timeout.ms is its limit) or with less data "
                "an epoch."
            )


def _end(options: SinkOptions, cluster: Cluster, decision: Decision) -> None:
    """Commit the transactions of a decision.

    If the broker has aborted some of them, commit all others first, and then raise DecidedTransactionLost, or log a
    warning with onLostTransactions=skip.
    """
    lost = []
    for share in decision.shares:
        try:
            end_transaction(cluster, identity_of(share), commit=True)
        except TransactionFailed as error:
            if error.code not in ENDED_OTHERWISE:
                raise
            lost.append(share)
    if lost:
        text = _lost(decision, lost)
        if not options.skip_lost:
            raise DecidedTransactionLost(text)
        log.warning("%s", text)


def _forgotten(options: SinkOptions, query: str, epoch: int) -> str:
    """Return the message of the error DecisionLost for an epoch."""
    return (
        f"Tasks have seen that epoch {epoch} of query {query} is decided, but topic {options.decision_topic!r} does "
        "not say so any more: it was deleted, or has lost records. The epoch's rows are committed, or were about to "
        "be: compare them with its input before you start the query in a new session, which writes all of them again."
    )


def _lost(decision: Decision, lost: Sequence[Share]) -> str:
    """Return the message of the error DecidedTransactionLost. `lost` has the transactions that were not committed."""
    rows = sum(share.rows for share in lost)
    return (
        f"Epoch {decision.epoch} of query {decision.query} is decided, but {len(lost)} of its {len(decision.shares)} "
        f"transactions ended by their time-out before they were committed, and {rows} of its "
        f"{sum(share.rows for share in decision.shares)} rows are missing (the other rows are visible): "
        f"{', '.join(share.transactional_id for share in lost)}. The driver or the broker was down for longer than "
        "kafka.transaction.timeout.ms. To continue without these rows, start the query with the option "
        "onLostTransactions=skip; the epoch's offsets in the checkpoint say which input to load again."
    )
