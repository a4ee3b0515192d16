"""AlterPartition requests of a leader: one in flight, retried as a whole, with errors of partitions for each caller."""

from typing import Any

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import ALTER_PARTITION
from kafkapy.replica.isr_changes import RETRY_S, IsrChange, IsrChanges, WrittenIsr
from kafkapy.replica.links import LinkError

ID = {"a": b"a" * 16, "b": b"b" * 16}


class Controller:
    """A stand-in for the link that keeps the requests until a test responds. Messages are encoded and decoded."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, int, Any]] = []

    def ask(self, api: Any, message: Any, done: Any, *, timeout_s: float, versions: tuple[int, int]) -> None:
        version = versions[1]
        request = api.decode_request(api.encode_request(message(version), version), version, 0)
        self.asked.append((request, version, done))

    def answer(self, *parts: tuple[str, int, int, list[int]], error: int = 0) -> None:
        _, version, done = self.asked.pop(0)
        topics = [
            ALTER_PARTITION.Response.Topics(
                topic_name=topic,
                topic_id=ID.get(topic, bytes(16)),
                partitions=[
                    ALTER_PARTITION.Response.Topics.Partitions(
                        partition_index=index, error_code=code, leader_id=1, leader_epoch=5, isr=isr, partition_epoch=8
                    )
                ],
            )
            for topic, index, code, isr in parts
        ]
        response = ALTER_PARTITION.Response(error_code=error, topics=topics)
        done(ALTER_PARTITION.decode_response(ALTER_PARTITION.encode_response(response, version), version, 0), None)


class ByHand:
    """A timer whose entries run when the test says so."""

    def __init__(self) -> None:
        self.entries: list[tuple[float, Any]] = []

    def schedule(self, delay_s: float, fn: Any) -> None:
        self.entries.append((delay_s, fn))

    def run(self) -> None:
        entries, self.entries = self.entries, []
        for delay_s, fn in entries:
            assert delay_s == RETRY_S
            fn()


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
def timer() -> ByHand:
    return ByHand()


@pytest.fixture
def changes(controller: Controller, timer: ByHand) -> IsrChanges:
    epochs = iter(range(100, 200))
    return IsrChanges(lambda: controller, 1, lambda: next(epochs), timer, 30.0)  # type: ignore[arg-type,return-value]


def change(topic: str, partition: int, isr: list[int], topic_id: bytes | None = None) -> IsrChange:
    return IsrChange(topic, ID[topic] if topic_id is None else topic_id, partition, 5, 7, isr)


def test_what_comes_while_a_request_is_in_flight_goes_out_in_the_next(
    changes: IsrChanges, controller: Controller
) -> None:
    got: list[Any] = []
    assert changes.submit(change("a", 0, [1, 2]), got.append)
    assert changes.submit(change("a", 1, [1, 3]), got.append)
    assert changes.submit(change("b", 0, [1]), got.append)
    ((request, version, _),) = controller.asked
    assert (version, request.broker_id, request.broker_epoch) == (3, 1, 100)
    (topic,) = request.topics
    (part,) = topic.partitions
    assert (topic.topic_id, part.partition_index, part.leader_epoch, part.partition_epoch) == (ID["a"], 0, 5, 7)
    assert [(one.broker_id, one.broker_epoch) for one in part.new_isr_with_epochs] == [(1, -1), (2, -1)]
    controller.answer(("a", 0, 0, [1, 2]))
    assert got == [WrittenIsr(1, 5, 8, (1, 2))]
    ((request, _, _),) = controller.asked
    assert [(topic.topic_id, [one.partition_index for one in topic.partitions]) for topic in request.topics] == [
        (ID["a"], [1]),
        (ID["b"], [0]),
    ]


def test_a_second_change_of_a_partition_that_waits_is_not_taken(changes: IsrChanges, controller: Controller) -> None:
    got: list[Any] = []
    assert changes.submit(change("a", 0, [1, 2]), got.append)
    assert not changes.submit(change("a", 0, [1]), got.append)
    controller.answer(("a", 0, 0, [1, 2]))
    assert changes.submit(change("a", 0, [1]), got.append)
    assert len(got) == 1


def test_a_callback_may_submit_the_next_change_of_its_partition(changes: IsrChanges, controller: Controller) -> None:
    got: list[Any] = []

    def again(result: Any) -> None:
        got.append(result)
        assert changes.submit(change("a", 0, [1]), got.append)

    changes.submit(change("a", 0, [1, 2]), again)
    controller.answer(("a", 0, 0, [1, 2]))
    assert len(controller.asked) == 1
    controller.answer(("a", 0, 0, [1]))
    assert [one.isr for one in got] == [(1, 2), (1,)]


def test_an_error_of_a_partition_is_its_callers_and_does_not_stop_the_others(
    changes: IsrChanges, controller: Controller, timer: ByHand
) -> None:
    got: dict[int, Any] = {}
    for partition in (0, 1):
        changes.submit(change("b", partition, [1]), lambda result, at=partition: got.setdefault(at, result))
    controller.answer(("b", 0, Errors.INVALID_UPDATE_VERSION, []))
    controller.answer(("b", 1, 0, [1]))
    assert isinstance(got[0], KafkaError)
    assert got[0].code == Errors.INVALID_UPDATE_VERSION
    assert got[1].isr == (1,)
    assert not timer.entries


@pytest.mark.parametrize("failure", ["STALE_BROKER_EPOCH", "NOT_CONTROLLER", "lost", "no controller"])
def test_a_failure_of_the_whole_request_is_retried_with_the_epoch_then_valid(failure: str, timer: ByHand) -> None:
    controller, got = Controller(), []
    present: list[Controller | None] = [None if failure == "no controller" else controller]
    epochs = iter((100, 101))
    changes = IsrChanges(lambda: present[0], 1, lambda: next(epochs), timer, 30.0)  # type: ignore[arg-type,return-value]
    changes.submit(change("a", 0, [1, 2]), got.append)
    if failure == "lost":
        controller.asked.pop(0)[2](None, LinkError("the connection to broker 0 was lost"))
    elif failure != "no controller":
        controller.answer(error=getattr(Errors, failure))
    present[0] = controller
    assert not controller.asked
    timer.run()
    assert controller.asked[0][0].broker_epoch == (100 if failure == "no controller" else 101)
    controller.answer(("a", 0, 0, [1, 2]))
    assert got == [WrittenIsr(1, 5, 8, (1, 2))]


def test_a_response_that_lacks_a_partition_leaves_it_waiting(
    changes: IsrChanges, controller: Controller, timer: ByHand
) -> None:
    got: list[Any] = []
    changes.submit(change("a", 0, [1, 2]), got.append)
    controller.answer(("b", 0, 0, [1]), ("a", 9, 0, [1]))
    assert not got
    timer.run()
    controller.answer(("a", 0, 0, [1, 2]))
    assert len(got) == 1


def test_a_topic_without_an_id_is_asked_for_by_name(changes: IsrChanges, controller: Controller) -> None:
    got: list[Any] = []
    changes.submit(change("a", 0, [1, 2], topic_id=bytes(16)), got.append)
    request, version, _ = controller.asked[0]
    assert (version, request.topics[0].topic_name, request.topics[0].partitions[0].new_isr) == (1, "a", [1, 2])
    controller.answer(("a", 0, 0, [1, 2]))
    assert len(got) == 1


def test_nothing_is_sent_after_a_stop(changes: IsrChanges, controller: Controller, timer: ByHand) -> None:
    changes.submit(change("a", 0, [1, 2]), lambda result: None)
    changes.submit(change("a", 1, [1, 2]), lambda result: None)
    changes.stop()
    controller.answer(("a", 0, 0, [1, 2]))
    timer.run()
    assert not controller.asked
