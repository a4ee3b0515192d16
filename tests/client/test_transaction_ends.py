"""Transactions that a producer leaves open and another process ends: the requests, and each possible response."""

import pytest

from kafkapy.client import (
    Cluster,
    ConnectionFailed,
    ProducerFailed,
    ProducerFenced,
    TransactionalProducer,
    TransactionFailed,
    TransactionIdentity,
    end_transaction,
)
from kafkapy.client.groups import coordinator_link
from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.record.batch import BatchBuilder
from kafkapy.record.encoded import EncodedBatch
from tests.client.test_transactional_producer import Coordinator

IDENTITY = TransactionIdentity("x", 9, 3)


@pytest.fixture
def coordinator(fake_broker, monkeypatch):
    monkeypatch.setattr(coordinator_link, "BACKOFF_S", 0.001)
    return Coordinator(fake_broker)


@pytest.fixture
def cluster(fake_broker, coordinator):
    with Cluster(fake_broker.address, timeout_s=2.0) as cluster:
        yield cluster


def state_is(fake_broker, state):
    shape = apis.DESCRIBE_TRANSACTIONS.Response
    fake_broker.answers[apis.DESCRIBE_TRANSACTIONS.key] = lambda request: shape(
        transaction_states=[
            shape.TransactionStates(
                transactional_id="x", transaction_state=state, producer_id=9, producer_epoch=3, topics=[]
            )
        ]
    )


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_ended_with_the_identity_of_its_producer(fake_broker, coordinator, cluster, commit):
    end_transaction(cluster, IDENTITY, commit)
    (request,) = fake_broker.requests("EndTxn")
    asked = (request.transactional_id, request.producer_id, request.producer_epoch, request.committed)
    assert asked == (*IDENTITY, commit)


def test_a_transaction_of_an_expired_id_counts_as_aborted_and_cannot_commit(coordinator, cluster):
    coordinator.errors["EndTxn"] += [Errors.INVALID_PRODUCER_ID_MAPPING] * 2
    end_transaction(cluster, IDENTITY, commit=False)
    with pytest.raises(TransactionFailed, match="expired"):
        end_transaction(cluster, IDENTITY, commit=True)


@pytest.mark.parametrize(
    "code", [Errors.NOT_COORDINATOR, Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.CONCURRENT_TRANSACTIONS]
)
def test_retriable_errors_are_retried(coordinator, cluster, hang_up, code):
    coordinator.errors["EndTxn"] += [code, hang_up, code]
    end_transaction(cluster, IDENTITY, commit=True)
    assert coordinator.done == ["committed"]


def test_a_coordinator_that_does_not_answer_is_an_error(coordinator, cluster, silence):
    cluster.timeout_s = 0.1
    coordinator.errors["EndTxn"] += [silence] * 10
    with pytest.raises(ConnectionFailed, match="did not answer EndTxn"):
        end_transaction(cluster, IDENTITY, commit=True)


@pytest.mark.parametrize("code", [Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_EPOCH])
def test_the_transaction_of_a_fenced_producer_can_only_be_aborted(coordinator, cluster, code):
    coordinator.errors["EndTxn"] += [code, code]
    with pytest.raises(ProducerFenced, match="took longer than transaction_timeout_s"):
        end_transaction(cluster, IDENTITY, commit=True)
    end_transaction(cluster, IDENTITY, commit=False)


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_without_records_counts_as_ended(fake_broker, coordinator, cluster, commit):
    state_is(fake_broker, "Empty")
    coordinator.errors["EndTxn"].append(Errors.INVALID_TXN_STATE)
    end_transaction(cluster, IDENTITY, commit)


def test_committing_an_aborted_transaction_is_an_error(fake_broker, coordinator, cluster):
    state_is(fake_broker, "CompleteAbort")
    coordinator.errors["EndTxn"].append(Errors.INVALID_TXN_STATE)
    with pytest.raises(ProducerFailed, match=r"'x': .* has ended already, the other way: .* CompleteAbort"):
        end_transaction(cluster, IDENTITY, commit=True)


def batch_for(partition):
    builder = BatchBuilder()
    builder.append(5, None, b"%d" % partition)
    return EncodedBatch("t", partition, bytearray(builder.build()), 1, 10)


def test_new_partitions_are_added_in_one_request(fake_broker, coordinator):
    with TransactionalProducer(fake_broker.address, "x") as producer:
        producer.begin()
        for partition in (0, 1, 0):
            producer.send_batch(batch_for(partition))
        identity = producer.leave_open()
    assert identity == ("x", 9, 0)
    assert [values for _, _, _, values in coordinator.stored] == [[b"0"], [b"1"], [b"0"]]
    assert len(fake_broker.requests("AddPartitionsToTxn")) == 1
    assert coordinator.done == []


def test_the_next_transaction_begins_in_a_new_epoch(fake_broker, coordinator):
    with TransactionalProducer(fake_broker.address, "x") as producer:
        producer.begin()
        producer.send_batch(batch_for(0))
        producer.leave_open()
        with pytest.raises(ValueError, match="call init"):
            producer.send_batch(batch_for(0))
        coordinator.epoch = 4
        producer.begin()
        assert producer.identity == ("x", 9, 4)
        producer.send_batch(batch_for(0))
        producer.commit()
    # Sequence numbers begin at 0 again with a new epoch.
    assert [(epoch, sequence) for _, epoch, sequence, _ in coordinator.stored] == [(0, 0), (4, 0)]
