"""The end of an epoch, without Spark: killed at every request to the broker, and repeated by the next driver."""

import socket
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from kafkapy.client import (
    Admin,
    Cluster,
    Consumer,
    TransactionAdmin,
    TransactionalProducer,
    TransactionIdentity,
    end_transaction,
)
from kafkapy.client.connection import Connection
from kafkapy.client.errors import ConnectionFailed, ProducerFenced
from kafkapy.spark.options.sink_options import SinkOptions, sink_options
from kafkapy.spark.sink import epochs
from kafkapy.spark.sink.decisions import Decisions, DecisionsUnusable, Share, ensure_decision_topic
from kafkapy.spark.sink.delivery import Written, write_exactly_once
from kafkapy.spark.sink.epochs import (
    DecidedTransactionLost,
    DecisionLost,
    EpochExpired,
    abort_epoch,
    commit_epoch,
)
from kafkapy.spark.sink.worker import TaskIds
from tests.harness.brokers import Broker

TASKS = 3


class Killed(BaseException):
    """The end of the process by a kill: nothing runs after it."""


class Run:
    """A query that writes numbers to a topic of its own."""

    def __init__(self, bootstrap: str, topic: str, **more: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.query = str(uuid.uuid4())
        self.options: SinkOptions = sink_options(
            {
                "kafka.bootstrap.servers": bootstrap,
                "topic": topic,
                "delivery": "exactly-once",
                "kafka.delivery.timeout.ms": "30000",
                **more,
            }
        )
        with Admin(bootstrap) as admin:
            admin.create_topic(topic, 2)
            ensure_decision_topic(admin.cluster, self.options.decision_topic)

    def task(self, epoch: int, number: int) -> Written:
        """Run a task that writes three rows, which name their epoch and task."""
        values = [f"{epoch}/{number}/{row}" for row in range(3)]
        rows = pa.record_batch({"key": pa.array(values), "value": pa.array(values)})
        return write_exactly_once(self.options, self.query, epoch, iter([rows]))

    def epoch(self, number: int) -> None:
        """Run all tasks of the epoch and its commit, as Spark would."""
        messages = [self.task(number, task) for task in range(TASKS)]
        self.commit(number, messages)

    def commit(self, number: int, messages: list[Written]) -> None:
        shares = shares_of(messages)
        known = any(message.decided for message in messages)
        if shares or known:
            commit_epoch(self.options, self.query, number, shares, known=known)

    def seen(self) -> Counter[str]:
        """Return the values that a read_committed consumer gets. Check that no open transaction blocks it."""
        with Consumer(self.bootstrap, isolation="read_committed") as reader, Consumer(self.bootstrap) as other:
            reader.assign_topic(self.topic)
            other.assign_topic(self.topic)
            assert reader.end_offsets() == other.end_offsets(), "a transaction is open"
            return Counter((record.value or b"").decode() for record in reader.records())

    def expect(self, *epochs_seen: int) -> None:
        wanted = {f"{epoch}/{task}/{row}" for epoch in epochs_seen for task in range(TASKS) for row in range(3)}
        assert self.seen() == dict.fromkeys(wanted, 1)

    def open_transactions(self) -> list[str]:
        with Cluster(self.bootstrap) as cluster:
            listed = TransactionAdmin(cluster).list_transactions(states=["Ongoing"])
        return [one.id for one in listed if self.query in one.id]


@pytest.fixture
def run(broker: Broker, topic_name: str) -> Run:
    return Run(broker.bootstrap, topic_name)


def shares_of(messages: list[Written]) -> list[Share]:
    return [message.share for message in messages if message.share is not None]


def killed_at(monkeypatch: pytest.MonkeyPatch, nth: int, before: bool, work: Callable[[], object]) -> bool:
    """Run `work`, killed before or after its nth request; return True if it sent so many requests."""
    sent = count(1)
    send = Connection.send

    def dying(self: Connection, *args: Any, **kwargs: Any) -> Any:
        due = next(sent) == nth
        if due and before:
            raise Killed
        result = send(self, *args, **kwargs)
        if due:
            raise Killed
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "send", dying)
        patch.setattr(TransactionalProducer, "close", lambda self: None)  # a killed process aborts nothing
        patch.setattr(TransactionalProducer, "abort", lambda self: None)
        try:
            work()
        except Killed:
            return True
    return False


@pytest.mark.parametrize("before", [True, False], ids=["before it is sent", "before its answer"])
def test_a_commit_cut_off_at_any_request_is_finished_by_the_replay(
    run: Run, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    for nth in count(1):
        epoch = nth - 1
        messages = [run.task(epoch, task) for task in range(TASKS)]
        cut_off = killed_at(monkeypatch, nth, before, lambda: run.commit(epoch, messages))  # noqa: B023
        run.epoch(epoch)
        run.expect(*range(nth))
        if not cut_off:
            break
    assert nth > 10


def test_tasks_cut_off_at_any_request_leave_nothing_behind(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for nth in count(1):
        cut_off = killed_at(monkeypatch, nth, False, lambda: run.task(nth, 0))  # noqa: B023
        run.epoch(nth)
        run.expect(*range(1, nth + 1))
        if not cut_off:
            break
    assert nth > 3


def test_a_task_of_a_decided_epoch_writes_nothing_and_says_so(run: Run) -> None:
    run.epoch(0)
    run.epoch(1)
    for epoch in (0, 1):
        assert run.task(epoch, 0) == Written(run.query, epoch, 0, decided=True)
    run.expect(0, 1)
    assert run.open_transactions() == []


def test_a_task_without_rows_has_nothing_to_commit(run: Run) -> None:
    assert write_exactly_once(run.options, run.query, 0, iter([])).share is None


def test_the_second_attempt_of_a_task_is_ignored(run: Run) -> None:
    messages = [run.task(0, task) for task in range(TASKS)]
    run.task(0, 1)  # its message is dropped
    run.commit(0, messages)
    run.expect(0)


def test_an_attempt_that_is_late_aborts(run: Run) -> None:
    messages = [run.task(0, task) for task in range(TASKS)]

    def slow() -> Any:
        yield pa.record_batch({"value": pa.array(["late"])})
        run.commit(0, messages)

    assert write_exactly_once(run.options, run.query, 0, slow()).decided
    run.expect(0)


def test_rows_that_fail_halfway_are_aborted_by_the_task(run: Run) -> None:
    def failing() -> Any:
        for number in range(100):
            yield pa.record_batch({"value": pa.array([f"{number}" * 5000])})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_exactly_once(run.options, run.query, 0, failing())
    assert run.open_transactions() == []
    run.expect()


def test_abort_ends_the_transactions_of_an_undecided_epoch(run: Run) -> None:
    run.epoch(0)
    messages = [run.task(1, task) for task in range(TASKS)]
    abort_epoch(run.options, run.query, 1, shares_of(messages))
    run.expect(0)
    run.epoch(1)
    run.expect(0, 1)


def test_abort_of_a_batch_also_ends_transactions_of_attempts_without_a_message(run: Run) -> None:
    for task in range(TASKS):
        run.task(0, task)
    abort_epoch(run.options, run.query, 0, [], replayable=False)
    run.expect()


def test_an_aborted_batch_has_no_transaction_whenever_its_attempts_run_and_are_killed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver aborts a batch before any request of an attempt, and Spark kills the attempt before any later one."""
    for aborted_at in count(1):
        for killed_at in count(aborted_at + 1):
            run.query = str(uuid.uuid4())
            attempt = Attempt(run, aborted_at, killed_at)
            attempt.run(monkeypatch)
            if not attempt.aborted:
                abort_epoch(run.options, run.query, 0, [], replayable=False)
            assert run.open_transactions() == [], (aborted_at, killed_at)
            if not attempt.killed:
                break
        if not attempt.aborted:
            break
    run.expect()
    assert aborted_at > 5


class Attempt:
    """An attempt of a batch's task. Before one of its requests the driver aborts the batch, and before another request
    Spark kills the attempt."""

    def __init__(self, run: Run, aborted_at: int, killed_at: int) -> None:
        self._run, self._aborted_at, self._killed_at = run, aborted_at, killed_at
        self._sent = 0
        self.aborted = self.killed = False

    def run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        send, close = Connection.send, TransactionalProducer.close

        def counting(connection: Connection, *args: Any, **kwargs: Any) -> Any:
            self._sent += 1
            if self._sent == self._aborted_at:
                self.aborted = True
                with monkeypatch.context() as patch:
                    patch.setattr(Connection, "send", send)
                    abort_epoch(self._run.options, self._run.query, 0, [], replayable=False)
            if self._sent == self._killed_at:
                self.killed = True
                raise Killed
            return send(connection, *args, **kwargs)

        def close_unless_killed(producer: TransactionalProducer) -> None:
            if not self.killed:  # a killed process aborts nothing
                close(producer)

        with monkeypatch.context() as patch, suppress(Killed, EpochExpired):
            patch.setattr(Connection, "send", counting)
            patch.setattr(TransactionalProducer, "close", close_unless_killed)
            self._run.task(0, 0)


def test_the_abort_of_a_batch_cut_off_at_any_request_can_be_repeated(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def abort(messages: list[Written]) -> None:
        abort_epoch(run.options, run.query, 0, shares_of(messages[:1]), replayable=False)

    for nth in count(1):
        run.query = str(uuid.uuid4())
        messages = [run.task(0, task) for task in range(2)]
        cut_off = killed_at(monkeypatch, nth, False, lambda: abort(messages))  # noqa: B023
        abort(messages)
        assert run.open_transactions() == []
        run.expect()
        if not cut_off:
            break
    assert nth > 5


def test_an_abort_that_is_late_leaves_the_replay_alone(run: Run) -> None:
    old = [run.task(0, task) for task in range(TASKS)]
    messages = [run.task(0, task) for task in range(TASKS)]
    abort_epoch(run.options, run.query, 0, shares_of(old))
    run.commit(0, messages)
    run.expect(0)


def test_abort_leaves_a_decided_epoch_to_the_replay(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [run.task(0, task) for task in range(TASKS)]
    with monkeypatch.context() as patch:
        patch.setattr(epochs, "end_transaction", _raise_killed)
        with pytest.raises(Killed):
            run.commit(0, messages)
    abort_epoch(run.options, run.query, 0, shares_of(messages))
    assert len(run.open_transactions()) == TASKS
    run.epoch(0)
    run.expect(0)


def test_a_driver_that_was_replaced_cannot_decide(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    old = [run.task(0, task) for task in range(TASKS)]
    write = epochs._write

    def replaced(*args: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(epochs, "_write", write)
            run.epoch(0)  # another driver runs the epoch from its beginning to its end
        write(*args)

    with monkeypatch.context() as patch:
        patch.setattr(epochs, "_write", replaced)
        with pytest.raises(ProducerFenced):
            run.commit(0, old)
    run.expect(0)


def test_a_driver_that_is_slow_to_abort_leaves_a_later_use_of_the_id_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has listed the open transactions, and aborts them when the next epoch uses the ids already."""
    for task in range(TASKS):
        run.task(0, task)  # their messages are dropped
    messages: list[Written] = []

    def slow_abort(cluster: Cluster, identity: TransactionIdentity, commit: bool) -> None:
        if not commit and not messages:
            messages.extend(run.task(1, task) for task in range(TASKS))
        end_transaction(cluster, identity, commit)

    monkeypatch.setattr(epochs, "end_transaction", slow_abort)
    run.epoch(0)
    run.commit(1, messages)
    run.expect(0, 1)


def test_a_driver_that_was_replaced_aborts_nothing_of_its_successor(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old driver lists the open transactions when they belong to the new driver's next epoch."""
    old = [run.task(0, task) for task in range(TASKS)]
    look = epochs._open_transactions
    messages: list[Written] = []

    def replaced(*args: Any) -> list[TransactionIdentity]:
        with monkeypatch.context() as patch:
            patch.setattr(epochs, "_open_transactions", look)
            run.epoch(0)
        messages.extend(run.task(1, task) for task in range(TASKS))
        found = look(*args)
        assert len(found) == TASKS
        return found

    with monkeypatch.context() as patch:
        patch.setattr(epochs, "_open_transactions", replaced)
        with pytest.raises(ProducerFenced):
            run.commit(0, old)
    run.commit(1, messages)
    run.expect(0, 1)


def test_a_driver_that_finds_its_epoch_done_leaves_the_next_one_alone(run: Run) -> None:
    old = [run.task(0, task) for task in range(TASKS)]
    run.epoch(0)
    messages = [run.task(1, task) for task in range(TASKS)]
    run.commit(0, old)
    run.commit(1, messages)
    run.expect(0, 1)


def test_a_decision_behind_another_querys_open_transaction_is_waited_for(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read_committed consumer stops before that transaction, and would take the epoch for undecided."""
    write = epochs._write
    with TransactionalProducer(run.bootstrap, f"other-{run.topic}") as other:

        def behind_another(*args: Any) -> None:
            leave_in_decisions(other, run)
            write(*args)

        def end_and_be_killed(*args: Any, **kwargs: Any) -> None:
            end_transaction(*args, **kwargs)
            raise Killed

        messages = [run.task(0, task) for task in range(TASKS)]
        with monkeypatch.context() as patch:
            patch.setattr(epochs, "_write", behind_another)
            patch.setattr(epochs, "end_transaction", end_and_be_killed)
            with pytest.raises(Killed):
                run.commit(0, messages)
        replay = [run.task(0, task) for task in range(TASKS)]
        assert not any(message.decided for message in replay)
        refresh = Decisions.refresh

        def and_then_ended(self: Decisions) -> None:
            refresh(self)
            if other.in_transaction:
                other.abort()

        with monkeypatch.context() as patch:
            patch.setattr(Decisions, "refresh", and_then_ended)
            run.commit(0, replay)
    run.expect(0)


def test_another_querys_transaction_that_stays_open_is_reported(broker: Broker, topic_name: str) -> None:
    run = Run(broker.bootstrap, topic_name, decisionTopic=f"{topic_name}-decisions")
    with TransactionalProducer(run.bootstrap, f"other-{run.topic}") as other:
        leave_in_decisions(other, run)
        with Cluster(run.bootstrap) as cluster, pytest.raises(DecisionsUnusable, match=r"up to offset 0 and has .* 1"):
            Decisions(cluster, run.options.decision_topic).read_all(0.0)


def test_decisions_that_are_gone_are_noticed_where_a_task_has_seen_them(broker: Broker, topic_name: str) -> None:
    run = Run(broker.bootstrap, topic_name, decisionTopic=f"{topic_name}-decisions")
    run.epoch(0)
    messages = [run.task(0, task) for task in range(TASKS)]
    with Admin(run.bootstrap) as admin:
        admin.delete_topics([run.options.decision_topic])
        ensure_decision_topic(admin.cluster, run.options.decision_topic)
    with pytest.raises(DecisionLost, match="not say so any more: it was deleted"):
        run.commit(0, messages)
    run.expect(0)


def test_a_batch_that_is_committed_has_not_failed_when_its_decision_cannot_be_forgotten(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    messages = [run.task(0, task) for task in range(TASKS)]

    def broker_is_down(*_: Any) -> None:
        raise ConnectionFailed("gone")

    monkeypatch.setattr(epochs, "_finish", broker_is_down)
    commit_epoch(run.options, run.query, 0, shares_of(messages), replayable=False)
    run.expect(0)
    assert "gone" in caplog.text


def test_a_transaction_that_ended_before_the_decision_fails_the_epoch_as_a_whole(run: Run) -> None:
    messages = [run.task(0, task) for task in range(TASKS)]
    end_one(run, shares_of(messages)[1], commit=False)
    with pytest.raises(EpochExpired, match=r"Epoch 0 is not committed.*kafka\.transaction\.timeout\.ms"):
        run.commit(0, messages)
    abort_epoch(run.options, run.query, 0, shares_of(messages))
    run.expect()
    run.epoch(0)
    run.expect(0)


def test_the_error_names_a_transaction_that_ended_after_the_decision(
    run: Run, monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    messages = [run.task(0, task) for task in range(TASKS)]
    with monkeypatch.context() as patch:
        patch.setattr(epochs, "end_transaction", _raise_killed)
        with pytest.raises(Killed):
            run.commit(0, messages)
    lost = shares_of(messages)[1]
    with Cluster(broker.bootstrap) as cluster:
        TransactionAdmin(cluster).abort(lost.transactional_id)  # as the broker does after the transaction time-out
    replay = [run.task(0, task) for task in range(TASKS)]
    with pytest.raises(DecidedTransactionLost) as failure:
        run.commit(0, replay)
    text = str(failure.value)
    assert lost.transactional_id in text
    assert "3 of its 9 rows are missing" in text
    assert "onLostTransactions=skip" in text
    skipping = Run.__new__(Run)
    skipping.__dict__ |= run.__dict__
    skipping.options = sink_options(
        {"kafka.bootstrap.servers": run.bootstrap, "topic": run.topic, "delivery": "exactly-once"}
        | {"onLostTransactions": "skip"}
    )
    skipping.commit(0, replay)
    assert sum(run.seen().values()) == 6
    run.epoch(1)
    assert sum(run.seen().values()) == 15


def test_an_id_is_used_again_only_in_a_later_epoch() -> None:
    ids = TaskIds()
    first = [ids.take("q", 5) for _ in range(3)]
    assert len(set(first)) == 3
    assert ids.take("q", 5) not in first
    assert ids.take("q", 6) == first[0]
    assert ids.take("other", 6) not in first
    assert TaskIds().take("q", 5) != first[0]


def leave_in_decisions(other: TransactionalProducer, run: Run) -> None:
    """Write a record to the decision topic in a transaction that stays open."""
    other.begin()
    other.send(run.options.decision_topic, b"never read", b"key", partition=0)
    other.flush()


def end_one(run: Run, share: Share, *, commit: bool) -> None:
    with Cluster(run.bootstrap) as cluster:
        end_transaction(cluster, TransactionIdentity(*share[:3]), commit)


def _raise_killed(*_: Any, **__: Any) -> None:
    raise Killed


def test_a_query_with_epochs_without_rows_leaves_one_decision(broker: Broker, topic_name: str) -> None:
    run = Run(broker.bootstrap, topic_name, decisionTopic=f"{topic_name}-decisions")
    run.epoch(0)
    run.commit(1, [write_exactly_once(run.options, run.query, 1, iter([]))])
    run.epoch(2)
    run.epoch(5)
    with Consumer(run.bootstrap, isolation="read_committed") as consumer:
        consumer.assign_topic(run.options.decision_topic)
        last = {record.key: record.value for record in consumer.records()}
    assert [key for key, value in last.items() if value is not None] == [f"{run.query}/5".encode()]
    run.expect(0, 2, 5)


def test_a_task_whose_connections_break_after_its_last_row_does_not_fail(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = TransactionalProducer.flush

    def flush_and_lose_the_connections(producer: TransactionalProducer) -> None:
        flush(producer)
        for connection in producer.cluster._by_node.values():
            if not connection.closed:
                connection._socket.shutdown(socket.SHUT_RDWR)

    with monkeypatch.context() as patch:
        patch.setattr(TransactionalProducer, "flush", flush_and_lose_the_connections)
        messages = [run.task(0, task) for task in range(TASKS)]
    run.commit(0, messages)
    run.expect(0)
