"""Administration of transactions: finding those that hang, and the markers written to end them."""

import time

import pytest

from kafkapy.client.administration.txn_admin import ProducerState, TransactionAdmin
from kafkapy.client.cluster import Cluster
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol import apis

OLD = round(time.time() * 1000) - 3_600_000
MINUTE = 60_000


@pytest.fixture
def admin(fake_broker):
    """Return an administration client; broker 1 is the coordinator of every transactional id."""
    shape = apis.FIND_COORDINATOR.Response
    fake_broker.answers[apis.FIND_COORDINATOR.key] = lambda request: shape(
        coordinators=[shape.Coordinators(key=key, node_id=1) for key in request.coordinator_keys]
    )
    fake_broker.topics["t"] = [1, 1, 1]
    with Cluster(fake_broker.address, timeout_s=5) as cluster:
        yield TransactionAdmin(cluster)


def know_producers(broker, producers):
    """Have the broker answer DescribeProducers with `producers`: for each partition of t, (producer id, time of its
    last write, first offset of its transaction)."""
    shape = apis.DESCRIBE_PRODUCERS.Response.Topics
    state = shape.Partitions.ActiveProducers

    def answer(request):
        return apis.DESCRIBE_PRODUCERS.Response(
            topics=[
                shape(
                    name=topic.name,
                    partitions=[
                        shape.Partitions(
                            partition_index=index,
                            active_producers=[
                                state(
                                    producer_id=producer,
                                    producer_epoch=4,
                                    last_sequence=9,
                                    last_timestamp=written,
                                    coordinator_epoch=-1,
                                    current_txn_start_offset=start,
                                )
                                for producer, written, start in producers.get(index, ())
                            ],
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    broker.answers[apis.DESCRIBE_PRODUCERS.key] = answer


def know_transactions(broker, transactions):
    """Have the broker list and describe `transactions`: {transactional id: (producer id, partitions of t)}."""
    listed, state = apis.LIST_TRANSACTIONS.Response, apis.DESCRIBE_TRANSACTIONS.Response
    broker.answers[apis.LIST_TRANSACTIONS.key] = lambda request: listed(
        transaction_states=[
            listed.TransactionStates(transactional_id=id, producer_id=producer, transaction_state="Ongoing")
            for id, (producer, _) in transactions.items()
            if producer in request.producer_id_filters
        ]
    )
    broker.answers[apis.DESCRIBE_TRANSACTIONS.key] = lambda request: state(
        transaction_states=[
            state.TransactionStates(
                transactional_id=id,
                transaction_state="Ongoing",
                transaction_timeout_ms=60_000,
                transaction_start_time_ms=-1,
                producer_id=transactions[id][0],
                topics=[state.TransactionStates.Topics(topic="t", partitions=transactions[id][1])],
            )
            if id in transactions
            else state.TransactionStates(transactional_id=id, error_code=Errors.TRANSACTIONAL_ID_NOT_FOUND)
            for id in request.transactional_ids
        ]
    )


def hanging(admin, older_than_ms=MINUTE):
    found = admin.find_hanging([("t", 0), ("t", 1), ("t", 2)], older_than_ms)
    return {(one.partition[1], one.producer.producer_id, one.id) for one in found}


def test_a_transaction_of_an_unknown_producer_is_hanging(fake_broker, admin):
    know_producers(fake_broker, {0: [(7, OLD, 5)], 1: [(8, OLD, -1)]})
    know_transactions(fake_broker, {})
    assert hanging(admin) == {(0, 7, None)}


def test_a_transaction_in_a_partition_unknown_to_its_coordinator_is_hanging(fake_broker, admin):
    know_producers(fake_broker, {0: [(7, OLD, 5)], 1: [(7, OLD, 0)]})
    know_transactions(fake_broker, {"x": (7, [1, 2])})
    assert hanging(admin) == {(0, 7, "x")}


def test_a_transaction_with_recent_writes_does_not_count_as_hanging(fake_broker, admin):
    lately = round(time.time() * 1000) - 1000
    know_producers(fake_broker, {0: [(7, lately, 5)]})
    know_transactions(fake_broker, {})
    assert hanging(admin) == set()
    assert hanging(admin, 0) == {(0, 7, None)}


def test_coordinators_get_no_request_if_no_transaction_is_open(fake_broker, admin):
    know_producers(fake_broker, {0: [(7, OLD, -1)]})
    assert hanging(admin) == set()


def test_a_partition_that_cannot_be_asked_ends_the_search(fake_broker, admin):
    shape = apis.DESCRIBE_PRODUCERS.Response.Topics
    fake_broker.answers[apis.DESCRIBE_PRODUCERS.key] = lambda request: apis.DESCRIBE_PRODUCERS.Response(
        topics=[
            shape(
                name="t",
                partitions=[
                    shape.Partitions(
                        partition_index=0, error_code=Errors.TOPIC_AUTHORIZATION_FAILED, error_message="no"
                    )
                ],
            )
        ]
    )
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED: t-0: no"):
        admin.find_hanging([("t", 0)], 0)


def test_leaders_that_have_moved_are_asked_again(fake_broker, second_broker, admin):
    fake_broker.topics["t"] = [1, 2]
    know_producers(second_broker, {1: [(8, OLD, -1)]})
    know_producers(fake_broker, {0: [(7, OLD, -1)]})
    shape = apis.DESCRIBE_PRODUCERS.Response.Topics
    good, bad = (
        fake_broker.answers[apis.DESCRIBE_PRODUCERS.key],
        apis.DESCRIBE_PRODUCERS.Response(
            topics=[
                shape(
                    name="t",
                    partitions=[shape.Partitions(partition_index=0, error_code=Errors.NOT_LEADER_OR_FOLLOWER)],
                )
            ]
        ),
    )
    answers = iter([bad])
    fake_broker.answers[apis.DESCRIBE_PRODUCERS.key] = lambda request: next(answers, None) or good(request)
    found = admin.producers([("t", 0), ("t", 1)])
    assert {where: [one.producer_id for one in states] for where, states in found.items()} == {
        ("t", 0): [7],
        ("t", 1): [8],
    }
    assert len(fake_broker.requests("DescribeProducers")) == 2
    assert len(second_broker.requests("DescribeProducers")) == 1


@pytest.mark.parametrize(("epoch", "written"), [(-1, 0), (6, 6)])
def test_the_marker_has_the_producer_state_of_the_partition(fake_broker, admin, epoch, written):
    shape = apis.WRITE_TXN_MARKERS.Response.Markers
    codes = iter([Errors.NOT_LEADER_OR_FOLLOWER, Errors.NONE, Errors.INVALID_PRODUCER_EPOCH])
    fake_broker.answers[apis.WRITE_TXN_MARKERS.key] = lambda _: apis.WRITE_TXN_MARKERS.Response(
        markers=[
            shape(
                producer_id=7,
                topics=[
                    shape.Topics(
                        name="t", partitions=[shape.Topics.Partitions(partition_index=1, error_code=next(codes))]
                    )
                ],
            )
        ]
    )
    producer = ProducerState(7, 4, 9, OLD, epoch, 5)
    admin.abort_in_partition(("t", 1), producer)
    (marker,) = fake_broker.requests("WriteTxnMarkers")[1].markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 4, written)
    assert (marker.transaction_result, marker.topics[0].name, marker.topics[0].partition_indexes) == (False, "t", [1])
    with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH: t-1"):
        admin.abort_in_partition(("t", 1), producer)


def test_an_id_is_fenced_with_its_own_time_out_after_the_abort(fake_broker, admin):
    know_transactions(fake_broker, {"x": (7, [0])})
    shape = apis.INIT_PRODUCER_ID.Response
    codes = iter([Errors.CONCURRENT_TRANSACTIONS, Errors.NONE])
    fake_broker.answers[apis.INIT_PRODUCER_ID.key] = lambda _: shape(error_code=next(codes), producer_epoch=1)
    admin.abort("x")
    requests = fake_broker.requests("InitProducerId")
    assert [(one.transactional_id, one.transaction_timeout_ms) for one in requests] == [("x", 60_000)] * 2


def test_aborting_an_unknown_transactional_id_does_not_create_it(fake_broker, admin):
    know_transactions(fake_broker, {})
    with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_NOT_FOUND: transactional id 'x'"):
        admin.abort("x")
    assert fake_broker.requests("InitProducerId") == []


def test_states_that_a_broker_does_not_know_are_named(fake_broker, admin):
    shape = apis.LIST_TRANSACTIONS.Response
    fake_broker.answers[apis.LIST_TRANSACTIONS.key] = lambda request: shape(unknown_state_filters=request.state_filters)
    with pytest.raises(KafkaError, match="broker 1 does not know the transaction state 'Odd'"):
        admin.list_transactions(states=["Odd"])


def test_partitions_that_a_response_leaves_out_are_errors(fake_broker, admin):
    fake_broker.answers[apis.DESCRIBE_PRODUCERS.key] = lambda request: apis.DESCRIBE_PRODUCERS.Response()
    (answer,) = admin.producers([("t", 0)]).values()
    assert str(answer) == "UNKNOWN_SERVER_ERROR: the broker's response leaves the partition out"
    fake_broker.answers[apis.WRITE_TXN_MARKERS.key] = lambda request: apis.WRITE_TXN_MARKERS.Response()
    with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR: t-0"):
        admin.abort_in_partition(("t", 0), ProducerState(7, 0, 0, 0, 0, 0))
