"""Ends a transaction that another producer has left open; see `TransactionalProducer.leave_open`.

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
    """The identity of a producer, which is all that is needed to end its transaction."""

    transactional_id: str
    producer_id: int
    epoch: int


def end_transaction(cluster: Cluster, identity: TransactionIdentity, commit: bool) -> None:
    """Commit or abort a transaction that `TransactionalProducer.leave_open` has left open.

    The call may be repeated with the same `commit`. It retries up to the cluster's time limit. It succeeds without
    doing anything if the transaction has no records. An abort also succeeds if the producer was fenced since, because
    the coordinator aborted its open transaction then (unless it was committed before), or if the transactional id has
    expired, because an id with an open transaction never expires.

    Raises:
        ProducerFenced: The transaction cannot be committed: it was aborted by its time-out, or by a newer producer with
            the same transactional id.
        TransactionFailed: The transaction has already ended the other way, or the coordinator refuses to end it.
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
    """Raise an error unless the transaction is empty.

    INVALID_TXN_STATE means either that or an end the other way; only the transaction's state tells them apart.
    """
    answer = TransactionAdmin(cluster).describe([identity.transactional_id])[identity.transactional_id]
    if not isinstance(answer, TransactionDescription):
        raise answer
    if answer.state != "Empty":
        text = f"the transaction has ended already, the other way: its state is {answer.state}"
        raise type(error)(identity.transactional_id, error.code, text)
