"""Ends a transaction that another producer has left open with `TransactionalProducer.leave_open`.

Source: Kafka's TransactionCoordinator.endTransaction, which accepts a repeated EndTxn with the same result (KIP-98).
"""

from typing import NamedTuple

from kafkapy.client.administration.txn_admin import TransactionAdmin, TransactionDescription
from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import ProducerFenced, TransactionFailed
from kafkapy.client.producing.producer_id import ProducerId
from kafkapy.client.producing.transaction_link import TransactionLink
from kafkapy.errors import Errors


class TransactionIdentity(NamedTuple):
    """The transactional id, producer id and epoch of a producer, which together are enough to end its transaction."""

    transactional_id: str
    producer_id: int
    epoch: int


def end_transaction(cluster: Cluster, identity: TransactionIdentity, commit: bool) -> None:
    """Commit or abort a transaction that `TransactionalProducer.leave_open` has left open.

    The call may be repeated with the same `commit`. It retries up to the cluster's time limit. It succeeds without
    doing anything if the transaction has no records. An abort also succeeds if the producer was fenced in the meantime,
    because the coordinator then aborted its open transaction (unless it was committed before), or if the transactional
    id has expired, because an id with an open transaction never expires.

    Raises:
        ProducerFenced: The transaction cannot be committed, because it was aborted by its time-out or by a newer
            producer with the same transactional id.
        TransactionFailed: The transaction was aborted and `commit` is True, or it was committed and `commit` is False;
            or the coordinator refuses to end it.
        ClientError: The coordinator was not reached. The transaction may or may not have ended; call again.
    """
    link = TransactionLink(cluster, identity.transactional_id)
    try:
        link.end(ProducerId(identity.producer_id, identity.epoch), commit=commit)
    except ProducerFenced:
        if commit:
            raise
    except TransactionFailed as error:
        if error.code == Errors.INVALID_PRODUCER_ID_MAPPING and not commit:
            return
        if error.code != Errors.INVALID_TXN_STATE:
            raise
        _raise_unless_empty(cluster, identity, error)
    finally:
        link.close()


def _raise_unless_empty(cluster: Cluster, identity: TransactionIdentity, error: TransactionFailed) -> None:
    """Return if the transaction has no records. Otherwise raise a TransactionFailed or the coordinator's KafkaError.

    Called after INVALID_TXN_STATE. This code means that the transaction is empty, or that it has ended with a commit
    instead of an abort or the reverse. Only the transaction's state tells the two cases apart.
    """
    answer = TransactionAdmin(cluster).describe([identity.transactional_id])[identity.transactional_id]
    if not isinstance(answer, TransactionDescription):
        raise answer
    if answer.state != "Empty":
        text = f"the transaction has ended already, the other way: its state is {answer.state}"
        raise type(error)(identity.transactional_id, error.code, text)
