"""Ending a transaction that another producer has left open; see `TransactionalProducer.leave_open`.

Source: Kafka's TransactionCoordinator.endTransaction, which takes the same end twice: KIP-98.
"""

from typing import NamedTuple

from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import ProducerFenced, TransactionFailed
from kafkapy.client.transaction_link import ProducerId, TransactionLink
from kafkapy.client.txn_admin import TransactionAdmin, TransactionDescription
from kafkapy.errors import Errors


class TransactionIdentity(NamedTuple):
    """What a transaction can be ended with, by whoever has it."""

    transactional_id: str
    producer_id: int
    epoch: int


def end_transaction(cluster: Cluster, identity: TransactionIdentity, commit: bool) -> None:
    """Commits or aborts. The same end may be asked for again: it is tried until the cluster's time limit is over.

    A transaction without records counts as ended. So does, for an abort, one whose producer was shut out since: the
    broker had to abort what it left open (unless it was committed before).

    Raises:
        ProducerFenced: it cannot be committed: it took longer than its time-out and the broker aborted it, or a newer
            producer with the same id has.
        TransactionFailed: it was ended the other way; or the coordinator refuses for another reason.
        ClientError: the coordinator was not reached; whether the transaction has ended is not known. Ask again.
    """
    link = TransactionLink(cluster, identity.transactional_id)
    try:
        link.end(ProducerId(identity.producer_id, identity.epoch), commit=commit)
    except ProducerFenced:
        if commit:
            raise
    except TransactionFailed as error:
        if error.code != Errors.INVALID_TXN_STATE:
            raise
        _raise_unless_empty(cluster, identity, error)
    finally:
        link.close()


def _raise_unless_empty(cluster: Cluster, identity: TransactionIdentity, error: TransactionFailed) -> None:
    """What the coordinator says of a transaction without records, and of one that ended the other way, is the same."""
    answer = TransactionAdmin(cluster).describe([identity.transactional_id])[identity.transactional_id]
    if not isinstance(answer, TransactionDescription):
        raise answer
    if answer.state != "Empty":
        told = f"the transaction has ended already, the other way: its state is {answer.state}"
        raise type(error)(identity.transactional_id, error.code, told)
