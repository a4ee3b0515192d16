"""Blocks of producer ids that a broker requests from the controller on another broker."""

from types import SimpleNamespace

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import ALLOCATE_PRODUCER_IDS
from kafkapy.replica.links import LinkError
from kafkapy.server.producer_id_requests import ask_for_producer_ids


class Controller:
    """The link to a controller that responds with the fields of `answer`, or with the error."""

    def __init__(self, **answer):
        self.answer = answer
        self.asked = []

    def ask(self, api, message, done, *, timeout_s):
        assert api is ALLOCATE_PRODUCER_IDS
        assert timeout_s == 30
        self.asked.append(message(0))
        error = self.answer.get("error")
        done(None if error else api.Response(**self.answer), error)


def outcome(link):
    services = SimpleNamespace(
        broker_id=3,
        broker_epoch=77,
        config={"controller.socket.timeout.ms": 30_000},
        peers=SimpleNamespace(controller=lambda: link),
    )
    outcomes = []
    ask_for_producer_ids(services, outcomes.append)
    (found,) = outcomes
    return found


def test_a_block_is_taken_as_the_controller_gives_it():
    controller = Controller(producer_id_start=4000, producer_id_len=1000)
    assert outcome(controller) == range(4000, 5000)
    (request,) = controller.asked
    assert (request.broker_id, request.broker_epoch) == (3, 77)


@pytest.mark.parametrize(
    "answer",
    [
        {"error_code": Errors.STALE_BROKER_EPOCH},
        {"error_code": Errors.BROKER_ID_NOT_REGISTERED},
        {"error_code": Errors.NOT_CONTROLLER},
        {"error_code": Errors.UNKNOWN_SERVER_ERROR},
        {"producer_id_start": -1, "producer_id_len": 1000},
        {"producer_id_start": 0, "producer_id_len": 0},
        {"producer_id_start": 2**63 - 2, "producer_id_len": 1000},
        {"error": LinkError("broker 1 does not answer")},
    ],
)
def test_without_a_block_clients_are_to_try_again(answer):
    found = outcome(Controller(**answer))
    assert isinstance(found, KafkaError)
    assert found.code == Errors.COORDINATOR_LOAD_IN_PROGRESS


def test_without_a_controller_clients_are_to_try_again():
    assert outcome(None).code == Errors.COORDINATOR_LOAD_IN_PROGRESS
