"""The transactional producer's reaction to each response of its coordinators."""

from collections import defaultdict

import pytest

from kafkapy.client import (
    ConnectionFailed,
    GroupMetadata,
    OffsetAndMetadata,
    ProducerFailed,
    ProducerFenced,
    TransactionAborted,
    TransactionalProducer,
    TransactionFailed,
)
from kafkapy.client.groups import coordinator_link
from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.record.batch import records_of
from kafkapy.record.legacy import iter_entries


@pytest.fixture(autouse=True)
def hardly_any_pauses(monkeypatch):
    monkeypatch.setattr(coordinator_link, "BACKOFF_S", 0.001)


class Coordinator:
    """The coordinator of every transactional id and group, which also keeps produced records. The error codes in
    `errors[api]` are its first responses."""

    def __init__(self, broker):
        self.broker = broker
        self.errors = defaultdict(list)
        self.transactional_id = "x"
        self.epoch = 0
        self.stored = []  # (partition, producer epoch, base sequence, values)
        self.done = []  # "committed" or "aborted" for each transaction
        broker.topics = {"t": [1, 1]}
        for api in (
            apis.FIND_COORDINATOR,
            apis.INIT_PRODUCER_ID,
            apis.ADD_PARTITIONS_TO_TXN,
            apis.ADD_OFFSETS_TO_TXN,
            apis.TXN_OFFSET_COMMIT,
            apis.END_TXN,
            apis.PRODUCE,
        ):
            broker.answers[api.key] = lambda request, api=api: self.answer(api, request)

    def answer(self, api, request):
        error = self.errors[api.name].pop(0) if self.errors[api.name] else Errors.NONE
        return error if not isinstance(error, int) else getattr(self, api.name)(request, error)

    def FindCoordinator(self, request, code):
        shape = apis.FIND_COORDINATOR.Response
        place = {"node_id": 1, "host": "127.0.0.1", "port": self.broker.port, "error_code": code}
        return shape(coordinators=[shape.Coordinators(key=key, **place) for key in request.coordinator_keys])

    def InitProducerId(self, request, code):
        if not code and request.producer_id >= 0:
            self.epoch += 1
        return apis.INIT_PRODUCER_ID.Response(error_code=code, producer_id=9, producer_epoch=self.epoch)

    def AddPartitionsToTxn(self, request, code):
        """Answer the last partition with the code. After an error the others get OPERATION_NOT_ATTEMPTED."""
        shape = apis.ADD_PARTITIONS_TO_TXN.Response.ResultsByTopicV3AndBelow
        other = Errors.OPERATION_NOT_ATTEMPTED if code else Errors.NONE
        return apis.ADD_PARTITIONS_TO_TXN.Response(
            results_by_topic_v3_and_below=[
                shape(
                    name=topic.name,
                    results_by_partition=[
                        shape.ResultsByPartition(
                            partition_index=index, partition_error_code=code if index == topic.partitions[-1] else other
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def AddOffsetsToTxn(self, request, code):
        return apis.ADD_OFFSETS_TO_TXN.Response(error_code=code)

    def TxnOffsetCommit(self, request, code):
        shape = apis.TXN_OFFSET_COMMIT.Response.Topics
        return apis.TXN_OFFSET_COMMIT.Response(
            topics=[
                shape(
                    name=topic.name,
                    partitions=[
                        shape.Partitions(partition_index=one.partition_index, error_code=code)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def EndTxn(self, request, code):
        if not code:
            self.done.append("committed" if request.committed else "aborted")
        return apis.END_TXN.Response(error_code=code)

    def Produce(self, request, code):
        shape = apis.PRODUCE.Response.Responses
        assert request.transactional_id == self.transactional_id
        topics = []
        for topic in request.topic_data:
            answers = []
            for one in topic.partition_data:
                data = memoryview(bytes(one.records))
                for header in iter_entries(data) if not code else ():
                    assert header.is_transactional
                    values = [record.value for record in records_of(data, header)]
                    self.stored.append((one.index, header.producer_epoch, header.base_sequence, values))
                answers.append(shape.PartitionResponses(index=one.index, error_code=code, base_offset=0))
            topics.append(shape(name=topic.name, partition_responses=answers))
        return apis.PRODUCE.Response(responses=topics)


@pytest.fixture
def coordinator(fake_broker):
    return Coordinator(fake_broker)


@pytest.fixture
def producer(fake_broker, coordinator):
    producer = TransactionalProducer(fake_broker.address, "x", timeout_s=5.0)
    producer.cluster.timeout_s = 2.0
    yield producer
    producer.close()


APIS = ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"]


def copy(producer):
    """Run a transaction with records and offsets."""
    producer.begin()
    producer.send("t", b"0", partition=0)
    producer.send("t", b"1", partition=1)
    producer.flush()
    producer.send_offsets({("t", 0): OffsetAndMetadata(5, "m", 2)}, GroupMetadata("g", 3, "me", "i"))
    producer.commit()


@pytest.mark.parametrize("api", ["FindCoordinator", *APIS])
@pytest.mark.parametrize(
    "code", [Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE, Errors.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_a_coordinator_that_moves_or_loads_is_asked_again(coordinator, producer, api, code):
    coordinator.errors[api] += [code, code]
    copy(producer)
    assert coordinator.done == ["committed"]
    assert coordinator.stored == [(0, 0, 0, [b"0"]), (1, 0, 0, [b"1"])]


@pytest.mark.parametrize("api", ["FindCoordinator", *APIS])
def test_a_coordinator_that_hangs_up_is_asked_again(coordinator, producer, hang_up, api):
    coordinator.errors[api] += [hang_up, hang_up]
    copy(producer)
    assert coordinator.done == ["committed"]


@pytest.mark.parametrize("api", ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"])
def test_the_end_of_the_last_transaction_is_waited_for(coordinator, producer, api):
    coordinator.errors[api] += [Errors.CONCURRENT_TRANSACTIONS] * 3
    copy(producer)
    assert coordinator.done == ["committed"]


def test_committed_offsets_carry_the_member_and_the_offset_metadata_and_epoch(fake_broker, coordinator, producer):
    copy(producer)
    (sent,) = fake_broker.requests("TxnOffsetCommit")
    assert (sent.group_id, sent.generation_id, sent.member_id, sent.group_instance_id) == ("g", 3, "me", "i")
    (one,) = sent.topics[0].partitions
    assert (one.committed_offset, one.committed_metadata, one.committed_leader_epoch) == (5, "m", 2)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("code", [Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_stays_fenced(coordinator, producer, api, code):
    coordinator.errors[api].append(code)
    with pytest.raises(ProducerFenced, match="another producer has taken over"):
        copy(producer)
    with pytest.raises(ProducerFenced):
        producer.begin()
    with pytest.raises(ProducerFenced):
        producer.abort()
    assert coordinator.done == []


def test_a_producer_is_also_fenced_by_the_error_of_a_produce_response(coordinator, producer):
    coordinator.errors["Produce"].append(Errors.PRODUCER_FENCED)
    with pytest.raises(ProducerFenced):
        copy(producer)


@pytest.mark.parametrize("api", APIS)
def test_a_fatal_error_ends_the_producer(coordinator, producer, api):
    coordinator.errors[api].append(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(ProducerFailed, match="transactional id 'x'") as error:
        copy(producer)
    assert error.value.fatal


@pytest.mark.parametrize(
    ("api", "code"),
    [
        ("AddPartitionsToTxn", Errors.TOPIC_AUTHORIZATION_FAILED),
        ("AddPartitionsToTxn", Errors.INVALID_PRODUCER_ID_MAPPING),
        ("AddOffsetsToTxn", Errors.GROUP_AUTHORIZATION_FAILED),
        ("TxnOffsetCommit", Errors.ILLEGAL_GENERATION),
        ("TxnOffsetCommit", Errors.UNKNOWN_MEMBER_ID),
        ("TxnOffsetCommit", Errors.FENCED_INSTANCE_ID),
        ("TxnOffsetCommit", Errors.OFFSET_METADATA_TOO_LARGE),
        ("EndTxn", Errors.TRANSACTION_ABORTABLE),
        ("Produce", Errors.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ("Produce", Errors.UNKNOWN_PRODUCER_ID),
        ("Produce", Errors.INVALID_PRODUCER_EPOCH),
        ("Produce", Errors.TRANSACTION_ABORTABLE),
        ("Produce", Errors.INVALID_TXN_STATE),
        ("Produce", Errors.MESSAGE_TOO_LARGE),
    ],
)
def test_after_an_abortable_error_it_aborts_and_continues_with_a_new_epoch(
    fake_broker, coordinator, producer, api, code
):
    coordinator.errors[api].append(code)
    with pytest.raises(TransactionAborted, match=r"[Aa]bort") as error:
        copy(producer)
    assert error.value.code == code
    assert not error.value.fatal
    with pytest.raises(TransactionAborted):
        producer.commit()
    producer.abort()
    assert coordinator.done == ["aborted"]
    (recovered,) = [one for one in fake_broker.requests("InitProducerId") if one.producer_id >= 0]
    assert (recovered.producer_id, recovered.producer_epoch) == (9, 0)
    coordinator.stored.clear()
    copy(producer)
    assert coordinator.stored == [(0, 1, 0, [b"0"]), (1, 1, 0, [b"1"])]
    assert coordinator.done == ["aborted", "committed"]


def test_the_partition_that_was_refused_is_named(coordinator, producer):
    coordinator.errors["AddPartitionsToTxn"].append(Errors.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(TransactionAborted, match="t-1"):
        copy(producer)


def test_an_abort_succeeds_if_the_coordinator_knows_no_transaction(coordinator, producer):
    coordinator.errors["AddPartitionsToTxn"].append(Errors.TOPIC_AUTHORIZATION_FAILED)
    coordinator.errors["EndTxn"].append(Errors.INVALID_TXN_STATE)
    with pytest.raises(TransactionAborted):
        copy(producer)
    producer.abort()
    copy(producer)
    assert coordinator.done == ["committed"]


@pytest.mark.parametrize("api", ["AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"])
def test_a_producer_whose_transactional_id_has_expired_gets_a_new_producer_id(fake_broker, coordinator, producer, api):
    known = {"x": False}  # whether the coordinator has the producer's id; InitProducerId gives one
    expired = Errors.INVALID_PRODUCER_ID_MAPPING
    init, end = coordinator.InitProducerId, coordinator.EndTxn

    def init_again(request, code):
        known["x"] = True
        return init(request, code)

    coordinator.InitProducerId = init_again
    coordinator.EndTxn = lambda request, code: end(request, code if known["x"] else expired)
    producer.init()
    known["x"] = False
    coordinator.errors[api].append(expired)
    with pytest.raises(TransactionAborted, match="abort") as error:
        copy(producer)
    assert error.value.code == expired
    producer.abort()
    (recovered,) = [one for one in fake_broker.requests("InitProducerId") if one.producer_id >= 0]
    assert (recovered.producer_id, recovered.producer_epoch) == (9, 0)
    copy(producer)
    assert coordinator.done == ["committed"]


def test_an_abort_of_an_expired_transactional_id_has_nothing_to_end(fake_broker, coordinator, producer):
    producer.begin()
    producer.send("t", b"0", partition=0)
    producer.flush()
    coordinator.errors["EndTxn"].append(Errors.INVALID_PRODUCER_ID_MAPPING)
    producer.abort()
    assert len(fake_broker.requests("InitProducerId")) == 2
    copy(producer)
    assert coordinator.done == ["committed"]


def test_a_commit_whose_answer_is_lost_can_be_asked_for_again(coordinator, producer, silence):
    producer.cluster.timeout_s = 0.2
    coordinator.errors["EndTxn"] += [silence, silence, silence]
    with pytest.raises(ConnectionFailed, match="did not answer EndTxn"):
        copy(producer)
    with pytest.raises(ValueError, match=r"call commit\(\) again: whether it was committed is not known"):
        producer.abort()
    coordinator.errors.clear()
    producer.commit()
    assert coordinator.done == ["committed"]
    producer.begin()
    producer.abort()


def test_an_abort_waits_for_batches_in_flight(fake_broker, coordinator, producer):
    producer.begin()
    producer.send("t", b"0", partition=0)
    for batch in list(producer._open.values()):
        producer._close_batch(batch)
    producer._outbox.step(wait=False)
    producer.send("t", b"1", partition=0)  # this record is never sent
    producer.abort()
    assert [values for *_, values in coordinator.stored] == [[b"0"]]
    assert [name for name, _, _ in fake_broker.seen][-2:] == ["Produce", "EndTxn"]
    with producer.transaction():
        producer.send("t", b"2", partition=0)
    # The sequence continues after the stored batch, without a new epoch.
    assert coordinator.stored[-1] == (0, 0, 1, [b"2"])


def test_an_exception_is_not_hidden_by_an_abort_that_fails(coordinator, producer):
    coordinator.errors["EndTxn"].append(Errors.PRODUCER_FENCED)

    def fail():
        with producer.transaction():
            producer.send("t", b"0")
            producer.flush()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    with pytest.raises(TransactionFailed):
        producer.begin()


def test_closing_aborts_the_open_transaction(fake_broker, coordinator):
    with TransactionalProducer(fake_broker.address, "x") as producer:
        producer.begin()
        producer.send("t", b"0")
        producer.flush()
    assert coordinator.done == ["aborted"]


def test_records_without_key_go_where_there_is_a_leader(fake_broker, coordinator, producer):
    fake_broker.topics = {"t": [-1, 1, -1]}
    for values in ([b"1", b"2"], [b"3"]):
        with producer.transaction():
            for value in values:
                producer.send("t", value)
    assert [(partition, values) for partition, _, _, values in coordinator.stored] == [(1, [b"1", b"2"]), (1, [b"3"])]
