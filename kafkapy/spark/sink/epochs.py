"""What the driver does at the end of an epoch: decides it, and ends its transactions. writers.py has the protocol.

Both functions may be called again after any of their steps, in another process or by another driver, and are called
from their beginning again while a broker is away.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import ClientError, TransactionFailed, UnsupportedByBroker
from kafkapy.client.transaction_ends import TransactionIdentity, end_transaction
from kafkapy.client.transactional_producer import TransactionalProducer
from kafkapy.client.txn_admin import TransactionAdmin, TransactionDescription
from kafkapy.errors import Errors, KafkaError
from kafkapy.record.compression import GZIP
from kafkapy.spark.options.sink_options import SinkOptions
from kafkapy.spark.patience import patiently
from kafkapy.spark.sink.decisions import Decision, Decisions, Share, key_of, value_of

OPEN = "Ongoing"
DRIVER_TIMEOUT_S = 60.0  # of the driver's own transactions, which take milliseconds

# What a coordinator says of a transaction that it has aborted, or no longer knows.
ENDED_OTHERWISE = (
    Errors.PRODUCER_FENCED,
    Errors.INVALID_PRODUCER_EPOCH,
    Errors.INVALID_TXN_STATE,
    Errors.INVALID_PRODUCER_ID_MAPPING,
)

log = logging.getLogger("kafkapy.spark")


class SinkFailed(RuntimeError):
    """The text says what happened to the epoch, and what to do."""


class EpochExpired(SinkFailed):
    """The broker aborted a transaction before the epoch was decided: nothing of the epoch is visible."""


class DecidedTransactionLost(SinkFailed):
    """The broker aborted a transaction after the epoch was decided: its rows are missing, others are visible."""


class DecisionLost(SinkFailed):
    """The decision topic has forgotten an epoch that tasks have found decided there."""


def id_of_driver(options: SinkOptions, query: str) -> str:
    """The transactional id of a query's driver; those of its tasks are this, a dash, and more."""
    return f"{options.id_prefix}-{query}"


def identity_of(share: Share) -> TransactionIdentity:
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
    """Makes the shares visible, or where the epoch was decided before, what was decided then; all others are aborted.

    Args:
        replayable: the epoch may come again, so that it must be remembered.
        known: a task has found the epoch decided.
    Raises:
        EpochExpired, DecidedTransactionLost, DecisionLost, DecisionsUnusable, ClientError, KafkaError.
    """
    patiently(lambda: _commit(options, query, epoch, shares, replayable, known), options.producer.delivery_timeout_s)


def abort_epoch(
    options: SinkOptions, query: str, epoch: int, shares: Sequence[Share], *, replayable: bool = True
) -> None:
    """Aborts the shares, unless the epoch is decided: then the next run finishes it.

    Args:
        replayable: the epoch may come again, perhaps has already. Otherwise nobody else has transactions of the query,
            and what attempts without a share have left open is aborted too.
    """
    patiently(lambda: _abort(options, query, epoch, shares, replayable), options.producer.delivery_timeout_s)


def _commit(
    options: SinkOptions, query: str, epoch: int, shares: Sequence[Share], replayable: bool, known: bool
) -> None:
    with _driver(options, query) as driver:
        latest = _latest(options, driver.cluster, query)
        if latest is not None and not latest.done:
            _end(options, driver.cluster, latest)
        if latest is not None and (latest.epoch > epoch or (latest.epoch == epoch and latest.done)):
            # Others have been here. What is open beside the shares may be of an epoch that they are about to decide.
            _abort_each(driver.cluster, map(identity_of, shares))
            return
        if latest is None or latest.epoch < epoch:
            if known:
                raise DecisionLost(_forgotten(options, query, epoch))
            _expect_open(driver.cluster, epoch, shares)
            decision = Decision(query, epoch, tuple(shares))
            _write(options, driver, [(key_of(query, epoch), value_of(decision))])
            _end(options, driver.cluster, decision)
        last = [(key_of(query, epoch), value_of(Decision(query, epoch, done=True)) if replayable else None)]
        if epoch:
            last.append((key_of(query, epoch - 1), None))
        try:
            _settle(options, driver, query, last)
        except (ClientError, KafkaError) as error:
            if replayable:
                raise
            # All is visible, and it must not be told that it failed.
            log.warning("The decision of a batch that is committed stays in %s: %s", options.decision_topic, error)


def _abort(options: SinkOptions, query: str, epoch: int, shares: Sequence[Share], replayable: bool) -> None:
    with _driver(options, query) as driver:
        latest = _latest(options, driver.cluster, query)
        if latest is not None and latest.epoch >= epoch:
            return
        left = [identity_of(share) for share in shares]
        if not replayable:
            left += _open_transactions(driver.cluster, id_of_driver(options, query) + "-")
        _abort_each(driver.cluster, dict.fromkeys(left))


@contextmanager
def _driver(options: SinkOptions, query: str) -> Iterator[TransactionalProducer]:
    """The query's driver. From here on an older one can write nothing, and what it was writing is written or not."""
    properties = options.producer
    servers, timeout_s = properties.bootstrap_servers, properties.request_timeout_s
    with Cluster(servers, client_id=properties.client_id, timeout_s=timeout_s) as cluster:
        driver = TransactionalProducer(
            cluster, id_of_driver(options, query), transaction_timeout_s=DRIVER_TIMEOUT_S, codec=GZIP
        )
        with driver:
            driver.init()
            yield driver


def _latest(options: SinkOptions, cluster: Cluster, query: str) -> Decision | None:
    decisions = Decisions(cluster, options.decision_topic)
    decisions.read_all(options.producer.delivery_timeout_s)
    return decisions.latest(query)


def _write(options: SinkOptions, driver: TransactionalProducer, records: Iterable[tuple[bytes, bytes | None]]) -> None:
    with driver.transaction():
        for key, value in records:
            driver.send(options.decision_topic, value, key, partition=0)


def _settle(
    options: SinkOptions, driver: TransactionalProducer, query: str, records: Iterable[tuple[bytes, bytes | None]]
) -> None:
    """Writes the last records of an epoch that this driver did not find done, and aborts the transactions that attempts
    without a share have left open.

    They are looked up before the records are written. That this succeeds shows that no other driver had taken over by
    then, so that none had begun the next epoch, and nothing of what was found can be of it. Each is then aborted by the
    producer epoch that was found, which leaves a later transaction of the same id alone.
    """
    left = _open_transactions(driver.cluster, id_of_driver(options, query) + "-")
    _write(options, driver, records)
    _abort_each(driver.cluster, left)


def _abort_each(cluster: Cluster, left: Iterable[TransactionIdentity]) -> None:
    for each in left:
        try:
            end_transaction(cluster, each, commit=False)
        except TransactionFailed as error:
            if error.code != Errors.INVALID_TXN_STATE:  # which is what it is when it was committed
                log.warning("A transaction that an attempt has left open is not aborted: %s", error)


def _open_transactions(cluster: Cluster, prefix: str) -> list[TransactionIdentity]:
    admin = TransactionAdmin(cluster)
    try:
        ids = [one.id for one in admin.list_transactions(states=[OPEN]) if one.id.startswith(prefix)]
        described = admin.describe(ids)
    except UnsupportedByBroker:  # before Kafka 3.0: they end by their time-out
        return []
    return [
        TransactionIdentity(one.id, one.producer_id, one.producer_epoch)
        for one in described.values()
        if isinstance(one, TransactionDescription) and one.state == OPEN
    ]


def _expect_open(cluster: Cluster, epoch: int, shares: Sequence[Share]) -> None:
    """Raises EpochExpired unless all transactions can still be committed. Between this and the decision are ms."""
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
    """Commits the transactions of a decision, all that can be before it says which could not."""
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
    return (
        f"Tasks have found epoch {epoch} of query {query} decided, and topic {options.decision_topic!r} no longer says "
        "so: it was deleted, or has lost records. The epoch's rows were committed, or were about to be: compare them "
        "with its input before the query is started in a new session, which writes all of them anew."
    )


def _lost(decision: Decision, lost: Sequence[Share]) -> str:
    rows = sum(share.rows for share in lost)
    return (
        f"Epoch {decision.epoch} of query {decision.query} is decided, but {len(lost)} of its {len(decision.shares)} "
        f"transactions ended by their time-out before they were committed, and {rows} of its "
        f"{sum(share.rows for share in decision.shares)} rows are missing (the other rows are visible): "
        f"{', '.join(share.transactional_id for share in lost)}. The driver or the broker was away for longer than "
        "kafka.transaction.timeout.ms. To go on without these rows start the query with the option "
        "onLostTransactions=skip; the epoch's offsets in the checkpoint say which input to load again."
    )
