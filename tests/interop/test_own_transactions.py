"""kafkapy's transactional producer and read_committed consumer work with kafkapy and with Apache Kafka."""

import time
from collections.abc import Iterator

import pytest

from kafkapy.client import (
    Admin,
    Consumer,
    GroupConsumer,
    OffsetAndMetadata,
    ProducerFailed,
    ProducerFenced,
    TransactionAborted,
    TransactionalProducer,
    TransactionFailed,
    TransactionIdentity,
    end_transaction,
)
from kafkapy.client.administration.admin import LATEST
from kafkapy.client.fetched import Isolation
from kafkapy.errors import Errors, KafkaError
from tests.harness.brokers import Broker

PATIENCE_S = 30.0
TIMEOUT_S = 2.0  # time-out in tests of slow transactions, long enough to send records on a busy machine


class Rig:
    """A topic, and producers and consumers, which are closed at the end of the test."""

    def __init__(self, servers: str, name: str) -> None:
        self.servers = servers
        self.name = name
        self.admin = Admin(servers)
        self.admin.create_topic(name, 3)
        self._opened: list[TransactionalProducer | GroupConsumer] = []

    def producer(self, **more: float | str) -> TransactionalProducer:
        transactional_id = str(more.pop("transactional_id", self.name))
        producer = TransactionalProducer(self.servers, transactional_id, **more)  # type: ignore[arg-type]
        self._opened.append(producer)
        return producer

    def consumer(self, topic: str) -> GroupConsumer:
        """Return a group consumer that is subscribed to the topic."""
        consumer = GroupConsumer(
            self.servers,
            self.name,
            auto_offset_reset="earliest",
            auto_commit=False,
            isolation="read_committed",
            heartbeat_interval_s=0.05,
            session_timeout_s=6.0,
        )
        self._opened.append(consumer)
        consumer.subscribe([topic])
        return consumer

    def read(self, topic: str | None = None) -> list[int]:
        """Wait until all transactions have ended, since commits return before their markers are written. Return the
        committed values."""
        name = topic or self.name
        partitions = [(name, index) for index in self.admin.cluster.topic(name).partitions]
        deadline = time.monotonic() + PATIENCE_S
        ends = dict.fromkeys(partitions, LATEST)
        while self.admin.offsets(ends, isolation=0) != self.admin.offsets(ends, isolation=1):
            assert time.monotonic() < deadline, "a transaction does not end"
            time.sleep(0.005)
        return self.peek(topic=topic)

    def peek(self, isolation: Isolation = "read_committed", topic: str | None = None) -> list[int]:
        """Return the values that can be read without waiting."""
        consumer = Consumer(self.admin.cluster, isolation=isolation)
        consumer.assign_topic(topic or self.name)
        return sorted(int(record.value or b"") for record in consumer.records())

    def close(self) -> None:
        for one in self._opened:
            one.close()
        self.admin.close()


@pytest.fixture
def rig(coordinator: Broker, topic_name: str) -> Iterator[Rig]:
    rig = Rig(coordinator.bootstrap, topic_name)
    yield rig
    rig.close()


def send(producer: TransactionalProducer, topic: str, values: range) -> None:
    for value in values:
        producer.send(topic, b"%d" % value, partition=value % 3)


def test_a_transaction_is_read_when_it_is_committed(rig: Rig) -> None:
    producer = rig.producer()
    with producer.transaction():
        send(producer, rig.name, range(10))
        producer.flush()
        assert rig.peek() == []
        assert rig.peek("read_uncommitted") == list(range(10))
    assert rig.read() == list(range(10))


def test_an_aborted_transaction_is_never_read(rig: Rig) -> None:
    producer = rig.producer()
    for first in range(0, 60, 10):
        producer.begin()
        send(producer, rig.name, range(first, first + 10))
        if first % 20:
            producer.flush()  # otherwise the abort would drop the unsent records
            producer.abort()
        else:
            producer.commit()
    assert rig.read() == [value for value in range(60) if value // 10 % 2 == 0]


def test_an_exception_in_the_block_aborts(rig: Rig) -> None:
    producer = rig.producer()

    def fail() -> None:
        with producer.transaction():
            send(producer, rig.name, range(10))
            producer.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with producer.transaction():
        send(producer, rig.name, range(10, 20))
    assert rig.read() == list(range(10, 20))


def test_an_empty_transaction_is_allowed(rig: Rig) -> None:
    producer = rig.producer()
    with producer.transaction():
        pass
    producer.begin()
    producer.abort()
    assert not producer.in_transaction


def test_transactions_of_two_producers_do_not_hide_each_other(rig: Rig) -> None:
    one, other = rig.producer(), rig.producer(transactional_id=f"{rig.name}-other")
    one.begin()
    send(one, rig.name, range(10))
    one.flush()
    with other.transaction():
        send(other, rig.name, range(10, 20))
    assert rig.peek() == []  # the other producer's records come after an open transaction
    one.abort()
    assert rig.read() == list(range(10, 20))


def test_offsets_are_committed_with_the_transaction(rig: Rig) -> None:
    producer = rig.producer()
    target = rig.admin.create_topic(f"{rig.name}-target", 1).name
    with producer.transaction():
        send(producer, rig.name, range(30))
    consumer = rig.consumer(rig.name)
    deadline = time.monotonic() + PATIENCE_S
    copied = rounds = 0
    while copied < 30:
        assert time.monotonic() < deadline, f"{copied} of 30 records copied"
        before = consumer.positions()
        records = consumer.poll(0.2)
        if not records:
            continue
        rounds += 1
        producer.begin()
        for record in records:
            producer.send(target, record.value)
        producer.send_offsets(consumer.positions(), consumer.group_metadata())
        if rounds == 1:  # the first transaction is aborted and repeated
            producer.abort()
            for (topic, index), _ in consumer.positions().items():
                consumer.seek(topic, index, before.get((topic, index), 0))
            continue
        producer.commit()
        copied += len(records)
    assert rig.read(topic=target) == list(range(30))
    ends = {where: OffsetAndMetadata(offset) for where, offset in consumer.positions().items()}
    assert consumer.committed(ends) == ends


def test_offsets_of_an_open_transaction_are_waited_for(rig: Rig) -> None:
    producer = rig.producer()
    producer.begin()
    producer.send_offsets({(rig.name, 0): 5}, rig.name)
    consumer = rig.consumer(rig.name)
    deadline = time.monotonic() + PATIENCE_S
    while not consumer.assignment:
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    consumer.poll(0.1)
    assert (rig.name, 0) not in consumer.positions()
    producer.commit()
    assert consumer.position(rig.name, 0) == 5


def test_a_newer_producer_fences_the_older_one(rig: Rig) -> None:
    old, new = rig.producer(), rig.producer()
    old.begin()
    send(old, rig.name, range(10))
    old.flush()
    new.init()
    with pytest.raises(ProducerFenced, match="another producer has taken over"):
        old.commit()
    with pytest.raises(ProducerFenced):
        old.begin()
    with pytest.raises(ProducerFenced):
        old.abort()
    with new.transaction():
        send(new, rig.name, range(10, 20))
    assert rig.read() == list(range(10, 20))


def test_a_fenced_producer_gets_an_error_when_it_sends(rig: Rig) -> None:
    old, new = rig.producer(), rig.producer()
    old.init()
    new.init()
    old.begin()
    old.send(rig.name, b"1")
    with pytest.raises(ProducerFenced):
        old.flush()
    assert rig.peek("read_uncommitted") == []


def test_a_transaction_that_takes_too_long_is_ended_by_the_broker(rig: Rig) -> None:
    slow = rig.producer(transaction_timeout_s=TIMEOUT_S)
    slow.begin()
    send(slow, rig.name, range(10))
    slow.flush()
    other = rig.producer(transactional_id=f"{rig.name}-other")
    with other.transaction():
        send(other, rig.name, range(10, 20))
    assert rig.read() == list(range(10, 20))
    with pytest.raises(ProducerFenced, match="took longer than transaction_timeout_s"):
        slow.commit()


def test_a_time_out_that_the_broker_does_not_allow_is_refused(rig: Rig) -> None:
    with pytest.raises(ProducerFailed, match=r"time-out of 1e\+06 s .*transaction.max.timeout.ms") as error:
        rig.producer(transaction_timeout_s=1e6).init()
    assert error.value.code == Errors.INVALID_TRANSACTION_TIMEOUT


def test_after_a_refused_batch_the_transaction_is_aborted_and_the_next_one_works(rig: Rig) -> None:
    producer = rig.producer(batch_bytes=4_000_000)
    with producer.transaction():
        send(producer, rig.name, range(3))
    producer.begin()
    send(producer, rig.name, range(3, 6))
    producer.send(rig.name, b"x" * 3_000_000, partition=0)
    with pytest.raises(
        TransactionAborted, match=r"were not stored \(MESSAGE_.*\); abort the transaction and begin a new one"
    ) as error:
        producer.commit()
    assert error.value.code == Errors.MESSAGE_TOO_LARGE
    with pytest.raises(TransactionAborted):
        producer.send(rig.name, b"6")
    producer.abort()
    for first in (10, 20):
        with producer.transaction():
            send(producer, rig.name, range(first, first + 3))
    assert rig.read() == [0, 1, 2, 10, 11, 12, 20, 21, 22]


def test_offsets_of_a_former_member_are_refused(rig: Rig) -> None:
    producer = rig.producer()
    with producer.transaction():
        send(producer, rig.name, range(3))
    consumer = rig.consumer(rig.name)
    deadline = time.monotonic() + PATIENCE_S
    while not consumer.poll(0.2):
        assert time.monotonic() < deadline
    member = consumer.group_metadata()
    for stale in (member._replace(generation=member.generation + 1), member._replace(member_id="somebody")):
        producer.begin()
        producer.send(rig.name, b"9", partition=0)
        with pytest.raises(TransactionAborted, match="lost its partitions; abort, poll, and read them again"):
            producer.send_offsets({(rig.name, 0): 1}, stale)
        producer.abort()
    with producer.transaction():
        producer.send_offsets({(rig.name, 0): 1}, member)
    assert consumer.committed([(rig.name, 0)]) == {(rig.name, 0): OffsetAndMetadata(1)}
    assert rig.read() == [0, 1, 2]


def test_a_missing_topic_does_not_end_the_transaction(rig: Rig) -> None:
    producer = rig.producer()
    with producer.transaction():
        with pytest.raises(KafkaError) as error:
            producer.send("not a name", b"0")
        assert error.value.code == Errors.INVALID_TOPIC_EXCEPTION
        producer.send(rig.name, b"1")
    assert rig.read() == [1]


def test_the_error_for_a_call_in_the_wrong_state_says_what_to_call(rig: Rig) -> None:
    producer = rig.producer()
    with pytest.raises(
        ValueError, match=r"send\(\) is not possible: .* was not initialized; call init\(\) or begin\(\)"
    ):
        producer.send(rig.name, b"")
    producer.init()
    with pytest.raises(ValueError, match=r"commit\(\) is not possible: .* is in no transaction; call begin\(\) first"):
        producer.commit()
    with pytest.raises(ValueError, match=r"abort\(\) is not possible"):
        producer.abort()
    producer.begin()
    with pytest.raises(
        ValueError, match=r"begin\(\) is not possible: .* is in a transaction; commit\(\) or abort\(\) it"
    ):
        producer.begin()
    with pytest.raises(ValueError, match="transactional id is empty"):
        rig.producer(transactional_id="")


def left_open(rig: Rig, values: range) -> TransactionIdentity:
    producer = rig.producer()
    producer.begin()
    send(producer, rig.name, values)
    identity = producer.leave_open()
    assert identity is not None
    assert identity.transactional_id == rig.name
    producer.close()  # does not end the transaction
    return identity


@pytest.mark.parametrize("commit", [True, False])
def test_another_client_ends_a_transaction_that_was_left_open(rig: Rig, commit: bool) -> None:
    identity = left_open(rig, range(10))
    assert rig.peek() == []
    assert rig.peek("read_uncommitted") == list(range(10))
    for _ in range(3):  # ending it again is not an error
        end_transaction(rig.admin.cluster, identity, commit)
    assert rig.read() == (list(range(10)) if commit else [])
    with pytest.raises(TransactionFailed, match="has ended already, the other way: its state is Complete"):
        end_transaction(rig.admin.cluster, identity, not commit)


def test_a_resumed_producer_aborts_the_transaction_that_it_left_open(rig: Rig) -> None:
    producer = rig.producer()
    producer.begin()
    send(producer, rig.name, range(10))
    identity = producer.leave_open()
    assert identity is not None
    with producer.transaction():
        send(producer, rig.name, range(10, 20))
        assert producer.identity.epoch > identity.epoch
    assert rig.read() == list(range(10, 20))
    with pytest.raises(ProducerFenced):
        end_transaction(rig.admin.cluster, identity, commit=True)
    end_transaction(rig.admin.cluster, identity, commit=False)  # the transaction was aborted


def test_a_producer_continues_after_another_client_has_committed_its_transaction(rig: Rig) -> None:
    producer = rig.producer()
    for first in range(0, 30, 10):
        producer.begin()
        send(producer, rig.name, range(first, first + 10))
        identity = producer.leave_open()
        assert identity is not None
        end_transaction(rig.admin.cluster, identity, commit=True)
    assert rig.read() == list(range(30))


def test_a_transaction_without_records_has_nothing_to_end(rig: Rig) -> None:
    producer = rig.producer()
    with pytest.raises(ValueError, match="was not initialized"):
        _ = producer.identity
    producer.begin()
    identity = producer.identity
    assert producer.leave_open() is None
    for commit in (True, False):
        end_transaction(rig.admin.cluster, identity, commit)


def test_a_transaction_that_was_left_open_too_long_cannot_be_committed(rig: Rig) -> None:
    producer = rig.producer(transaction_timeout_s=TIMEOUT_S)
    producer.begin()
    send(producer, rig.name, range(10))
    identity = producer.leave_open()
    assert identity is not None
    assert rig.read() == []  # waits until the broker has ended the transaction
    with pytest.raises(ProducerFenced, match="took longer than transaction_timeout_s"):
        end_transaction(rig.admin.cluster, identity, commit=True)
    end_transaction(rig.admin.cluster, identity, commit=False)
